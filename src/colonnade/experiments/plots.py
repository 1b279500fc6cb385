"""Pictures of the report as SVG text: final figures and learning curves.

Every panel is its own small SVG: the page lays panels out for its width, and text keeps its size.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from colonnade.experiments.hover import Line, Mark, hover
from colonnade.experiments.table import Metric, Plan, Summary

Floats = NDArray[np.float64]
Limits = tuple[float, float]

WIDTH = 5.0  # inches; 360 CSS pixels at matplotlib's 72 per inch
POINTS = 240  # of a curve; more points would not be visible
INK, FAINT, RULE = "#1f2328", "#6a737d", "#e4e7eb"
# Okabe and Ito's colours for colour-blind readers, without their yellow, too pale on white; then
# two of ours.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"),
    *("#6A3D9A", "#8A8F98"),
)
DASHES = ((), (6.0, 2.0), (1.5, 1.5), (6.0, 2.0, 1.5, 2.0), (10.0, 3.0))
MARKERS = ("o", "s", "D", "^", "v")
HEAT = LinearSegmentedColormap.from_list("links", ["#f2f6fb", "#6ba6d6"])
RC: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 10.5,
    "text.color": INK,
    "axes.labelcolor": FAINT,
    "axes.edgecolor": "#b6bcc4",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "xtick.color": "#b6bcc4",
    "ytick.color": "#b6bcc4",
    "xtick.labelcolor": FAINT,
    "ytick.labelcolor": FAINT,
}


@dataclass(frozen=True)
class Style:
    """How one method looks in every picture."""

    colour: str
    dashes: tuple[float, ...]
    marker: str
    number: int = 0  # of the method, by which the page hides and shows it

    @property
    def gid(self) -> str:
        """Marks what a method draws: see `to_svg`."""
        return f"method{self.number}"


@dataclass(frozen=True)
class Picture:
    svg: str
    caption: str
    description: str  # in words, for readers who cannot see the picture
    hover: str = ""  # the values that the page shows under the pointer; see hover.py
    method: str | None = None  # that it shows alone


@dataclass(frozen=True)
class Curve:
    """Mean, lowest and highest over seeds, on a common grid."""

    x: Floats
    mean: Floats
    low: Floats
    high: Floats


def method_styles(methods: Iterable[str]) -> dict[str, Style]:
    return {
        method: Style(
            COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)], MARKERS[i % len(MARKERS)], i
        )
        for i, method in enumerate(methods)
    }


def average(runs: Sequence[tuple[Floats, Floats]]) -> Curve:
    """The curve over seeds, by step interpolation; a run that stopped early keeps its last
    value."""
    grid = np.unique(np.concatenate([x for x, _ in runs]))
    grid = grid[grid >= max(x[0] for x, _ in runs)]  # from where every seed has a value
    if len(grid) > POINTS:
        grid = grid[np.unique(np.linspace(0, len(grid) - 1, POINTS).round().astype(int))]
    values = np.stack([y[np.searchsorted(x, grid, side="right") - 1] for x, y in runs])
    return Curve(grid, values.mean(0), values.min(0), values.max(0))


def curves_over(
    plan: Plan,
    histories: Mapping[tuple[str, str, int], Sequence[Mapping[str, float | None]]],
    key: str,
    scale: float,
    metric: str,
) -> dict[str, dict[str, Curve]]:
    """Faults → method → curve of `metric` over `key`, without the empty ones."""
    curves: dict[str, dict[str, Curve]] = {}
    for fault in plan.faults:
        for method in plan.methods:
            runs = [histories.get((method, fault, seed), ()) for seed in plan.seeds]
            points = [_points(run, key, scale, metric) for run in runs]
            found = [(x, y) for x, y in points if len(x)]
            if found:
                curves.setdefault(fault, {})[method] = average(found)
    return curves


def _points(
    run: Sequence[Mapping[str, float | None]], key: str, scale: float, metric: str
) -> tuple[Floats, Floats]:
    """Values that were not finite are null in the history and are left out here."""
    pairs = [(row.get(key), row.get(metric)) for row in run]
    points = np.array([pair for pair in pairs if None not in pair], dtype=np.float64)
    points = points.reshape(-1, 2)
    return scale * points[:, 0], points[:, 1]


def learning_curves(
    curves: Mapping[str, Mapping[str, Curve]],
    styles: Mapping[str, Style],
    metric: Metric,
    axis: str,
    name: str,
) -> list[Picture]:
    """One picture per fault setting, on equal scales; `curves` is faults → method → curve."""
    every = [curve for panel in curves.values() for curve in panel.values()]
    scale = metric.scale
    y = padded(scale * np.concatenate([np.concatenate([c.low, c.high]) for c in every]))
    x = padded(np.concatenate([c.x for c in every]))
    pictures = []
    for fault, panel in curves.items():
        with matplotlib.rc_context(RC):
            figure, axes = new_panel(3.1)
            for method, curve in panel.items():
                _draw_curve(axes, curve, scale, styles[method])
            axes.set(xlim=x, ylim=y, xlabel=axis, ylabel=metric.title)
            axes.xaxis.set_major_locator(MaxNLocator(5))
            axes.xaxis.set_major_formatter("{x:,.6g}")
            svg = to_svg(figure, f"{name}-{len(pictures)}")
        lines = [Line(m, styles[m], c.x, scale * c.mean) for m, c in panel.items()]
        ends = "; ".join(f"{m} ends at {metric.text(c.mean[-1])}" for m, c in panel.items())
        said = f"{metric.title} over {axis}, faults {fault}: {ends}."
        pictures.append(Picture(svg, f"Faults: {fault}", said, hover(axes, lines)))
    return pictures


def _draw_curve(axes: Axes, curve: Curve, scale: float, style: Style) -> None:
    low, high = scale * curve.low, scale * curve.high
    axes.fill_between(curve.x, low, high, color=style.colour, alpha=0.14, lw=0, gid=style.gid)
    draw_line(axes, curve.x, scale * curve.mean, style)
    # The dot says where training ended.
    end = curve.x[-1], scale * curve.mean[-1]
    axes.plot(*end, style.marker, color=style.colour, ms=4, gid=style.gid)


def draw_line(axes: Axes, x: Floats, y: Floats, style: Style) -> None:
    line = axes.plot(x, y, color=style.colour, lw=1.7, gid=style.gid)[0]
    if style.dashes:
        line.set_dashes(style.dashes)


def final_figures(summary: Summary) -> list[Picture]:
    """One picture per fault setting: a dot for the mean, a bar for ± 2 sd, a tick per seed."""
    cells = summary.cells.values()
    scale = summary.metric.scale
    ends = [cell.mean + sign * (cell.spread or 0.0) for cell in cells for sign in (-1, 1)]
    limits = padded(scale * np.array(ends + [v for cell in cells for v in cell.values]), 0.05)
    pictures = []
    for fault in summary.plan.faults:
        with matplotlib.rc_context(RC):
            figure, axes = new_panel(0.8 + 0.34 * len(summary.plan.methods))
            _draw_cells(axes, summary, fault, scale)
            axes.set(xlim=limits, xlabel=summary.metric.title)
            axes.xaxis.set_major_locator(MaxNLocator(5))
            svg = to_svg(figure, f"final-{len(pictures)}")
        ranking, styles = summary.ranking(fault), method_styles(summary.plan.methods)
        said = "; ".join(f"{m} {summary.text(cell)}" for m, cell in ranking)
        marks = [
            Mark(scale * c.mean, styles[m].number, f"{m}\n{summary.text(c)}", styles[m].number)
            for m, c in ranking
        ]
        text = f"{summary.metric.title}, faults {fault}: {said or 'no finished runs'}."
        shown = hover(axes, marks=marks, rows=True)
        pictures.append(Picture(svg, f"Faults: {fault}", text, shown))
    return pictures


def _draw_cells(axes: Axes, summary: Summary, fault: str, scale: float) -> None:
    methods = summary.plan.methods
    styles = method_styles(methods)
    for row, method in enumerate(methods):
        cell, style = summary.cells.get((method, fault)), styles[method]
        if cell is None:
            continue
        seeds = scale * np.array(cell.values)
        look: dict[str, Any] = {"color": style.colour, "gid": style.gid}
        axes.plot(seeds, [row] * len(seeds), "|", alpha=0.55, ms=13, **look)
        mean, spread = scale * cell.mean, scale * (cell.spread or 0.0)
        axes.plot([mean - spread, mean + spread], [row, row], lw=2, **look)
        axes.plot(mean, row, style.marker, ms=6, **look)
    axes.set_yticks(range(len(methods)), [clipped(method) for method in methods])
    axes.set_ylim(len(methods) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)


def new_panel(height: float, width: float = WIDTH) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def padded(values: Floats, share: float = 0.03) -> Limits:
    low, high = float(values.min()), float(values.max())
    margin = share * (high - low) or 0.5
    return low - margin, high + margin


def clipped(name: str, length: int = 22) -> str:
    return name if len(name) <= length else name[: length - 1] + "…"


def to_svg(figure: Figure, name: str) -> str:
    """SVG for a page: no header, no addresses, ids that begin with `name`, the page's font, short
    paths. What a method draws has `data-method`, its number, in place of an id."""
    buffer = io.StringIO()
    unsigned = {"Date": None, "Creator": None, "Format": None, "Type": None}
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=unsigned)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    # matplotlib writes the font as one property or, in newer versions, as several.
    svg = re.sub(r"font: (?:\d+ )?([\d.]+)px [^;\"]*|font-family: [^;\"]*; ", _font_size, svg)
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), svg)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    svg = re.sub(r' id="method(\d+)"', r' data-method="\1"', svg)
    return re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{name}-", svg)


def _font_size(font: re.Match[str]) -> str:
    return f"font-size: {font[1]}px" if font[1] else ""
