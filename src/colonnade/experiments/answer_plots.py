"""Pictures of the answers to the test rows: ROC curves, calibration, confusion; for numbers,
predicted beside true, and errors. Drawn from `curves/`, sums over rows; see common/curves.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm

from colonnade.common.curves import BINS, FALSE_POSITIVE_RATES, Bin, Cloud, Curves
from colonnade.experiments.hover import Line, Mark, hover
from colonnade.experiments.plots import (
    FAINT,
    HEAT,
    INK,
    RC,
    Floats,
    Picture,
    Style,
    clipped,
    draw_line,
    new_panel,
    to_svg,
)

Runs = Mapping[str, Sequence[Curves]]  # method → curves of its seeds
FIGURES = 12  # classes up to which a cell of a confusion matrix has its figure
XY = tuple[Floats, Floats]


def roc_picture(runs: Runs, styles: Mapping[str, Style], fault: str, name: str) -> Picture | None:
    """One line per method: the mean over seeds of the true positive rate, at each false positive
    rate."""
    known = {m: [c.roc for c in found if c.roc] for m, found in runs.items()}
    x = np.array([0.0, *FALSE_POSITIVE_RATES])
    means = {m: np.concatenate([[0.0], np.mean(found, 0)]) for m, found in known.items() if found}
    areas = {m: ((y[1:] + y[:-1]) / 2 * np.diff(x)).sum() for m, y in means.items()}
    points = {m: (x, y) for m, y in means.items()}
    titles = "false positive rate", "true positive rate"
    said = {m: f"area {area:.3f}" for m, area in areas.items()}
    return _lines_in_square(points, styles, titles, fault, name, "ROC curve", said)


def calibration_picture(
    runs: Runs, styles: Mapping[str, Style], fault: str, name: str
) -> Picture | None:
    """One line per method: how many rows are as predicted, by probability, over all seeds."""
    points, worst = {}, {}
    for method, found in runs.items():
        bins = _pooled([b for curves in found for b in curves.calibration])
        if bins:
            p = np.array([b.probability / b.rows for b in bins])
            share = np.array([b.hits / b.rows for b in bins])
            points[method] = p, share
            rows = np.array([b.rows for b in bins])
            error = float((rows * np.abs(p - share)).sum() / rows.sum())
            worst[method] = f"{error:.3f} away from the diagonal on average"
    two = any(curves.classes == 2 for found in runs.values() for curves in found)
    titles = "confidence (probability of the predicted class)", "accuracy"
    if two:
        titles = "predicted probability of class 1", "share of rows of class 1"
    return _lines_in_square(points, styles, titles, fault, name, "Calibration", worst)


def _pooled(bins: Sequence[Bin]) -> list[Bin]:
    """One bin for each of the `BINS`, from the bins of several seeds."""
    found: dict[int, list[Bin]] = {}
    for one in bins:
        found.setdefault(min(int(BINS * one.probability / one.rows), BINS - 1), []).append(one)
    return [
        Bin(sum(b.rows for b in same), sum(b.probability for b in same), sum(b.hits for b in same))
        for _, same in sorted(found.items())
    ]


def _lines_in_square(
    points: Mapping[str, XY],
    styles: Mapping[str, Style],
    titles: tuple[str, str],
    fault: str,
    name: str,
    what: str,
    said: Mapping[str, str],
) -> Picture | None:
    """Curves from 0 to 1 on both axes, with the diagonal."""
    if not points:
        return None
    with matplotlib.rc_context(RC):
        figure, axes = new_panel(4.2)
        axes.plot([0, 1], [0, 1], color=FAINT, lw=0.8, dashes=(4, 3))
        for method, (x, y) in points.items():
            draw_line(axes, x, y, styles[method])
            if len(x) <= BINS:
                look: dict[str, Any] = {"color": styles[method].colour, "gid": styles[method].gid}
                axes.plot(x, y, styles[method].marker, ms=4, **look)
        edge = (-0.02, 1.02)
        axes.set(xlim=edge, ylim=edge, xlabel=titles[0], ylabel=titles[1])
        svg = to_svg(figure, name)
    lines = [Line(method, styles[method], x, y) for method, (x, y) in points.items()]
    text = f"{what}, faults {fault}: " + "; ".join(f"{m} {one}" for m, one in said.items()) + "."
    return Picture(svg, f"Faults: {fault}", text, hover(axes, lines))


def confusion_picture(
    method: str, found: Sequence[Curves], fault: str, name: str
) -> Picture | None:
    """The counts of all seeds, as shares of the rows of each true class."""
    counts = [np.array(c.confusion) for c in found if c.confusion]
    if not counts:
        return None
    total = np.sum(counts, axis=0)
    shares = total / np.maximum(total.sum(1, keepdims=True), 1)
    names = found[0].names or [str(i) for i in range(len(total))]
    with matplotlib.rc_context(RC):
        figure, axes = new_panel(4.4)
        norm = PowerNorm(0.5, vmin=0, vmax=1)  # square root: few mistakes must be visible
        axes.pcolormesh(shares, cmap=HEAT, norm=norm, edgecolor="white", linewidth=1.0)
        if len(total) <= FIGURES:
            _write_counts(axes, total)
        _name_classes(axes, names)
        svg = to_svg(figure, name)
    marks = [
        Mark(c + 0.5, r + 0.5, _cell_text(names[r], names[c], int(n), float(shares[r, c])))
        for (r, c), n in np.ndenumerate(total)
    ]
    right = float(np.trace(total) / max(1, total.sum()))
    text = f"Confusion matrix of {method}, faults {fault}: {100 * right:.2f} % of rows are right."
    shown = hover(axes, marks=marks, everywhere=True)
    return Picture(svg, method, text, shown, method)


def _cell_text(true: str, predicted: str, rows: int, share: float) -> str:
    return f"true {true}, predicted {predicted}\n{rows:,} rows, {100 * share:.1f} % of true {true}"


def _write_counts(axes: Axes, total: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
    size = 10.5 if len(total) <= 6 else 8.5
    for (row, column), count in np.ndenumerate(total):
        if count:
            text = axes.annotate(f"{count}", (column + 0.5, row + 0.5), fontsize=size)
            text.set(ha="center", va="center")


def _name_classes(axes: Axes, names: Sequence[str]) -> None:
    step = -(-len(names) // 15)
    short = [clipped(name, 10) for name in names[::step]]
    places = np.arange(0, len(names), step) + 0.5
    axes.set_xticks(places, short)
    axes.set_yticks(places, short)
    axes.tick_params(length=0, labelcolor=INK, labelsize=9 if len(names) > 6 else 10)
    if max(map(len, short)) * len(short) > 40:
        axes.tick_params(axis="x", rotation=90)
    axes.set(xlabel="predicted", ylabel="true", aspect="equal")
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def cloud_picture(method: str, found: Sequence[Curves], fault: str, name: str) -> Picture | None:
    """Predicted beside true numbers, in the first seed: each dot is a cell, its area the rows."""
    cloud = next((curves.cloud for curves in found if curves.cloud), None)
    if cloud is None:
        return None
    x, y, rows = _cells(cloud)
    edges = cloud.edges[0], cloud.edges[-1]
    with matplotlib.rc_context(RC):
        figure, axes = new_panel(4.2)
        axes.plot(edges, edges, color=FAINT, lw=0.8, dashes=(4, 3))
        axes.scatter(x, y, s=110 * rows / rows.max(), color="#0072B2", alpha=0.55, lw=0)
        axes.set(xlim=edges, ylim=edges, xlabel="true", ylabel="predicted")
        svg = to_svg(figure, name)
    marks = [
        Mark(a, b, f"true about {a:.4g}, predicted about {b:.4g}\n{n:,.0f} rows")
        for a, b, n in zip(x, y, rows, strict=True)
    ]
    text = f"Predicted beside true numbers of {method}, faults {fault}; on the line they are equal."
    return Picture(svg, method, text, hover(axes, marks=marks), method)


def _cells(cloud: Cloud) -> tuple[Floats, Floats, Floats]:
    """Middles of the cells that have rows, and how many they have."""
    counts, edges = np.array(cloud.counts, dtype=np.float64), np.array(cloud.edges)
    middles = (edges[1:] + edges[:-1]) / 2
    true, predicted = counts.nonzero()
    return middles[true], middles[predicted], counts[true, predicted]


def error_picture(runs: Runs, styles: Mapping[str, Style], fault: str, name: str) -> Picture | None:
    """One line per method: the share of rows by predicted minus true, in the first seed."""
    clouds = {m: next((c.cloud for c in found if c.cloud), None) for m, found in runs.items()}
    points = {m: _errors(cloud) for m, cloud in clouds.items() if cloud}
    if not points:
        return None
    with matplotlib.rc_context(RC):
        figure, axes = new_panel(3.1)
        axes.axvline(0, color=FAINT, lw=0.8, dashes=(4, 3))
        for method, (x, y) in points.items():
            draw_line(axes, x, y, styles[method])
        axes.set(xlabel="predicted minus true", ylabel="rows (%)", ylim=(0, None))
        svg = to_svg(figure, name)
    lines = [Line(method, styles[method], x, y) for method, (x, y) in points.items()]
    peaks = "; ".join(f"{m} most often about {x[y.argmax()]:.3g}" for m, (x, y) in points.items())
    text = f"Predicted minus true, faults {fault}: {peaks}."
    return Picture(svg, f"Faults: {fault}", text, hover(axes, lines))


def _errors(cloud: Cloud) -> XY:
    edges, counts = np.array(cloud.error_edges), np.array(cloud.errors, dtype=np.float64)
    return (edges[1:] + edges[:-1]) / 2, 100 * counts / counts.sum()


Overlaid = Callable[[Runs, Mapping[str, Style], str, str], Picture | None]
Alone = Callable[[str, Sequence[Curves], str, str], Picture | None]
# Title, sentence under it, and what draws it: one picture per kind of faults, or per method.
OVERLAID: tuple[tuple[str, str, Overlaid], ...] = (
    ("ROC curve", "Mean over seeds and classes, each class against all others.", roc_picture),
    (
        "Calibration",
        "All seeds together. On the diagonal, predicted probabilities are true ones.",
        calibration_picture,
    ),
    ("Errors", "Predicted minus true, in the first seed.", error_picture),
)
ALONE: tuple[tuple[str, str, Alone], ...] = (
    (
        "Confusion",
        "Test rows of all seeds together. Colour: share of the rows of the true class.",
        confusion_picture,
    ),
    ("Predicted beside true", "In the first seed. Area of a dot: test rows.", cloud_picture),
)
