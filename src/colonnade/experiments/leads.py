"""Who led when, where several parties lead at their own pace: a table and a time line."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes

from colonnade.common.results import LeadsRow, TurnRow
from colonnade.experiments.plots import COLOURS, INK, RC, Picture, clipped, new_panel, to_svg
from colonnade.experiments.table import Grid

SHOWN = 60  # rounds of the time line


def leads_grid(rows: Sequence[LeadsRow], caption: str) -> Grid:
    """Rounds of each party in the whole training, and how stale its gradients were."""
    total, lines = sum(row.rounds for row in rows), []
    for party in dict.fromkeys(row.party for row in rows):
        mine = [row for row in rows if row.party == party]
        rounds, others = sum(row.rounds for row in mine), sum(row.others for row in mine)
        share, mean = 100 * rounds / total, others / rounds
        most = max(row.most for row in mine)
        lines.append((party, f"{rounds:,}", f"{share:.1f}", f"{mean:.1f}", f"{most:,}"))
    header = ("led by", "rounds", "% of all", "steps of others, mean", "most")
    return Grid(header, tuple(lines), caption)


def time_line(rows: Sequence[TurnRow], name: str, axis: str = "virtual seconds") -> Picture:
    """The first rounds, each as a bar from its beginning to its end; by their order where nothing
    takes time. `axis`: what its seconds are."""
    shown = list(rows[:SHOWN])
    timed = any(row.ended > row.began for row in shown)
    parties = list(dict.fromkeys(sorted(row.party for row in rows)))
    with matplotlib.rc_context(RC):
        figure, axes = new_panel(0.9 + 0.34 * len(parties))
        for i, row in enumerate(shown):
            begin, end = (row.began, row.ended) if timed else (i, i + 1)
            _bar(axes, parties.index(row.party), begin, end)
        axes.set_yticks(range(len(parties)), [clipped(party, 14) for party in parties])
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.grid(axis="y", visible=False)
        axes.set(xlabel=axis if timed else "rounds", ylim=(len(parties) - 0.5, -0.5))
        axes.margins(x=0.01)
        axes.spines["left"].set_visible(False)
        svg = to_svg(figure, name)
    counts = {party: sum(row.party == party for row in shown) for party in parties}
    told = ", ".join(f"{party} {count}" for party, count in counts.items())
    return Picture(svg, f"The first {len(shown)} rounds", f"Rounds led by each party: {told}.")


def _bar(axes: Axes, place: int, begin: float, end: float) -> None:
    colour = COLOURS[place % len(COLOURS)]
    axes.barh(place, end - begin, left=begin, height=0.62, color=colour, ec="white", lw=0.8)
