"""Pictures of links as SVG text: how many bytes went over each link, by kind of content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from colonnade.common.results import LedgerRow
from colonnade.experiments.hover import Mark, hover
from colonnade.experiments.plots import HEAT, INK, RC, Picture, clipped, new_panel, to_svg
from colonnade.experiments.table import MANY_PARTIES, bytes_text, party_labels


def link_pictures(ledgers: Mapping[str, Sequence[LedgerRow]]) -> dict[str, list[Picture]]:
    """For each method one picture per kind of content: bytes of each link in training."""
    sizes = {method: _link_sizes(rows) for method, rows in ledgers.items()}
    every = [
        size for kinds in sizes.values() for links in kinds.values() for size in links.values()
    ]
    pictures: dict[str, list[Picture]] = {method: [] for method in ledgers}
    for number, (method, kinds) in enumerate(sizes.items()):
        for kind, links in kinds.items():
            with matplotlib.rc_context(RC):
                figure, axes, marks = _heat_map(links, max(every))
                svg = to_svg(figure, f"links-{number}-{len(pictures[method])}")
            total, (sender, receiver) = (
                bytes_text(sum(links.values())),
                max(links, key=links.__getitem__),
            )
            text = f"{method}, {kind}: {total} in training; most from {sender} to {receiver}."
            shown = hover(axes, marks=marks, everywhere=True)
            pictures[method].append(Picture(svg, f"{kind} · {total}", text, shown))
    return pictures


def _link_sizes(rows: Sequence[LedgerRow]) -> dict[str, dict[tuple[str, str], int]]:
    """Kind → (sender, receiver) → bytes in training; between groups where parties are many."""
    rows = [row for row in rows if row.phase == "training"]
    labels = party_labels(party for row in rows for party in (row.sender, row.receiver))
    if len(labels) <= MANY_PARTIES:
        labels = {party: party for party in labels}
    kinds: dict[str, dict[tuple[str, str], int]] = {}
    for row in rows:
        link = (labels[row.sender], labels[row.receiver])
        links = kinds.setdefault(row.kind, {})
        links[link] = links.get(link, 0) + row.bytes
    return kinds


def _heat_map(
    sizes: Mapping[tuple[str, str], int], largest: int
) -> tuple[Figure, Axes, list[Mark]]:
    senders = list(dict.fromkeys(sender for sender, _ in sizes))
    received = {receiver for _, receiver in sizes}
    parties = dict.fromkeys([*senders, *(receiver for _, receiver in sizes)])
    receivers = [party for party in parties if party in received]
    grid = np.full((len(senders), len(receivers)), np.nan)
    marks = []
    for (sender, receiver), size in sizes.items():
        row, column = senders.index(sender), receivers.index(receiver)
        grid[row, column] = size
        said = f"{sender} → {receiver}\n{bytes_text(size)}"
        marks.append(Mark(column + 0.5, row + 0.5, said))
    figure, axes = new_panel(0.95 + min(0.3 * len(senders), 3.2))
    # Square root: links differ by orders of magnitude, and small ones must not vanish.
    norm = PowerNorm(0.5, vmin=0, vmax=max(largest, 1))
    axes.pcolormesh(grid, cmap=HEAT, norm=norm, edgecolor="white", linewidth=1.5)
    if len(receivers) <= 6:
        for (row, column), size in np.ndenumerate(grid):
            if not np.isnan(size):
                centre = (column + 0.5, row + 0.5)
                text = axes.annotate(
                    bytes_text(size), centre, fontsize=10 if len(senders) <= 12 else 8
                )
                text.set(ha="center", va="center")
    _name_parties(axes, senders, receivers)
    return figure, axes, marks


def _name_parties(axes: Axes, senders: Sequence[str], receivers: Sequence[str]) -> None:
    crowded = len(receivers) * max(map(len, receivers)) > 36
    axes.set_yticks(np.arange(len(senders)) + 0.5, [clipped(s, 14) for s in senders])
    axes.set_xticks(np.arange(len(receivers)) + 0.5, [clipped(r, 14) for r in receivers])
    axes.tick_params(axis="x", rotation=90 if crowded else 0)
    axes.tick_params(length=0, labelcolor=INK, labelsize=10 if len(senders) <= 12 else 7.5)
    axes.set(xlabel="received by", ylabel="sent by")
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
