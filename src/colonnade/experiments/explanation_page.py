"""Explanations for readers: a sentence, tables, bars, and maps of embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from colonnade.common.explanations import Explanation, PartyExplanation
from colonnade.experiments.plots import (
    COLOURS,
    FAINT,
    INK,
    RC,
    WIDTH,
    Picture,
    clipped,
    new_panel,
    to_svg,
)
from colonnade.experiments.table import NOTHING, Grid, Metric

MOST_BARS = 40  # parties with a bar of their own
MOST_MAPS = 12  # parties with a map of their own
MOST_CLASSES = 10  # with a colour of their own
NOISY = "Looks like noise"


def title(one: Explanation) -> str:
    return f"{one.method}, faults {one.faults}, seed {one.seed}"


def sentences(one: Explanation) -> list[str]:
    """What a reader should know first."""
    metric, ranking = Metric(one.metric), one.ranking
    total = metric.change(one.full - one.empty) + (" points" if metric.unit else "")
    first, last = ranking[0], ranking[-1]
    found = [
        f"{first.party} contributes most, {_signed(metric, first.shapley)}; {last.party} least, "
        f"{_signed(metric, last.shapley)}. Together the parties add {total}."
        if any(p.shapley for p in one.parties)
        else "No party changes the score: the model answers the same without any of them."
    ]
    for verdict, words in (
        (
            "looks like noise",
            f"{NOISY}: these rows do not show that what {{}} tells has to do with the labels.",
        ),
        ("the same for every row", "Tells the same of every row: {}."),
    ):
        if named := [p.party for p in one.parties if p.verdict == verdict]:
            found.append(words.format(", ".join(named)))
    if one.fewer is not None:
        rows = ", ".join(f"{who} {metric.figure(_value(metric, s))}" for who, s in trained(one))
        found.append(f"Trained anew (parties ranked by {one.fewer.ranked_by}): {rows}.")
    return [*found, *one.notes]


def trained(one: Explanation) -> list[tuple[str, float]]:
    """Which parties a model was trained with, and its score."""
    fewer = one.fewer
    if fewer is None:
        return []
    count = len(fewer.best)
    return [
        ("all parties", fewer.all_score),
        (f"the {count} that contribute most", fewer.best_score),
        (f"the {count} that contribute least", fewer.worst_score),
    ]


def grid(one: Explanation) -> Grid:
    """A row for each party, in the order of their contributions."""
    metric = Metric(one.metric)
    columns: list[tuple[str, Any]] = [
        ("Shapley value", lambda p: _with_error(metric, p.shapley, p.shapley_error)),
        ("lost without it", lambda p: _signed(metric, p.absent)),
        ("lost if noise", lambda p: _with_error(metric, p.noised, p.noised_error)),
        (
            "weight in the model",
            lambda p: NOTHING if p.importance is None else f"{p.importance:#.3g}",
        ),
        ("tells of the label (sd)", lambda p: NOTHING if p.tells is None else f"{p.tells:.1f}"),
    ]
    texts = [[text(p) for p in one.ranking] for _, text in columns]
    used = [i for i, column in enumerate(texts) if any(text != NOTHING for text in column)]
    rows = [(_name(p), *(texts[i][r] for i in used)) for r, p in enumerate(one.ranking)]
    header = ("party", *(columns[i][0] for i in used))
    return Grid(header, tuple(rows), _caption(one, metric))


def _name(party: PartyExplanation) -> str:
    return f"{party.party}, {party.verdict}" if party.verdict else party.party


def _caption(one: Explanation, metric: Metric) -> str:
    unit = "points" if metric.unit else f"units of the {metric.title}"
    text = (
        f"{title(one)}: {metric.title} {metric.text(_value(metric, one.full))} with all parties, "
    )
    text += f"{metric.text(_value(metric, one.empty))} with none, on {one.rows:,} rows"
    if one.error is not None:
        text += f" (standard error {metric.text(one.error)})"
    text += f". In {unit}; Shapley values add up to the difference"
    if any(p.shapley_error is not None for p in one.parties):
        text += ", ± the standard error of sampling coalitions"
    if one.sigma is not None:
        text += f"; noise: {one.sigma:g} × each column's own scale, ± over draws"
    return f"{text}. {one.evaluations:,} evaluations in {one.seconds:.1f} s."


def _value(metric: Metric, score: float) -> float:
    """The metric itself: a score is minus the metric where that is better when lower."""
    return score if metric.higher_is_better else -score


def _signed(metric: Metric, value: float | None) -> str:
    if value is None:
        return NOTHING
    return metric.change(value).removeprefix("+")


def _with_error(metric: Metric, value: float | None, error: float | None) -> str:
    text = _signed(metric, value)
    return text if error is None or value is None else f"{text} ± {metric.text(error)}"


def pictures(one: Explanation, name: str) -> list[Picture]:
    """Bars of what the parties contribute, and maps of their embeddings. `name`: of its own."""
    drawn = [_bars(one, f"{name}-bars")]
    if one.map and any(p.points for p in one.parties):
        drawn.append(_maps(one, f"{name}-maps"))
    return drawn


def _bars(one: Explanation, name: str) -> Picture:
    metric, shown = Metric(one.metric), one.ranking[:MOST_BARS]
    places = np.arange(len(shown))
    with matplotlib.rc_context(RC):
        figure, axes = new_panel(1.2 + 0.27 * len(shown))
        values = [metric.scale * p.shapley for p in shown]
        errors = [metric.scale * (p.shapley_error or 0.0) for p in shown]
        sampled = any(errors)
        axes.barh(
            places,
            values,
            height=0.62,
            color=COLOURS[5],
            xerr=errors if sampled else None,
            ecolor=INK,
            label="Shapley value",
        )
        for key, marker, colour, label in (
            ("absent", "o", COLOURS[1], "lost without it"),
            ("noised", "D", COLOURS[2], "lost if noise"),
        ):
            known = [
                (metric.scale * v, i)
                for i, p in enumerate(shown)
                if (v := getattr(p, key)) is not None
            ]
            if known:
                axes.plot(*zip(*known, strict=True), marker, color=colour, ms=4.5, label=label)
        axes.set_yticks(places, [clipped(p.party, 16) for p in shown])
        axes.set(xlabel="points" if metric.unit else metric.title, ylim=(len(shown) - 0.4, -0.6))
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.grid(axis="y", visible=False)
        axes.axvline(0, color=FAINT, lw=0.8)
        figure.legend(loc="outside upper left", ncols=3, frameon=False, fontsize=9)
        svg = to_svg(figure, name)
    left_out = len(one.parties) - len(shown)
    caption = "What each party contributes" + (f"; {left_out} more below" if left_out else "")
    said = "; ".join(f"{p.party} {metric.text(p.shapley)}" for p in shown)
    return Picture(svg, caption, f"Shapley values, {title(one)}: {said}.")


def _maps(one: Explanation, name: str) -> Picture:
    shown: Sequence[PartyExplanation] = [p for p in one.ranking if p.points][:MOST_MAPS]
    columns = min(3, len(shown))
    rows, labels = math.ceil(len(shown) / columns), np.array(one.labels)
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(WIDTH, 0.4 + 1.75 * rows), layout="constrained")
        for i, party in enumerate(shown):
            axes = figure.add_subplot(rows, columns, i + 1)
            _draw_map(axes, np.array(party.points), labels)
            axes.set_title(clipped(party.party, 16), fontsize=9.5, color=INK)
        handles, names = figure.axes[0].get_legend_handles_labels()
        if handles:
            figure.legend(
                handles,
                names,
                loc="outside lower left",
                ncols=10,
                frameon=False,
                fontsize=9,
                handletextpad=0.1,
                markerscale=2,
                columnspacing=0.9,
            )
        svg = to_svg(figure, name)
    how = {"pca": "two principal directions", "tsne": "t-SNE"}.get(one.map, one.map)
    text = f"What each party tells of {len(labels)} rows ({how}), by label"
    return Picture(svg, text, f"Maps of embeddings, {title(one)}, a panel for each party.")


def _draw_map(axes: Axes, places: np.ndarray, labels: np.ndarray) -> None:
    """Coloured by class, or by number."""
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    found = np.unique(labels)
    if len(found) > MOST_CLASSES:
        axes.scatter(*places.T, c=labels, cmap="viridis", s=6, linewidths=0)
        return
    wheel = matplotlib.colormaps["tab10"]
    for number, label in enumerate(found):
        axes.plot(
            *places[labels == label].T,
            "o",
            color=wheel(number),
            ms=2.4,
            mew=0,
            label=f"{label:g}",
        )
