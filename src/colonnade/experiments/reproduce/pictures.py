"""Pictures of a sheet: ours with bars or bands for ± 2 sd, the paper's hollow.

Dots: one panel per column, a line of dots per row. Lines: one panel, the columns along the axis.
"""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from colonnade.experiments.plots import (
    FAINT,
    INK,
    RC,
    Floats,
    Limits,
    Picture,
    Style,
    clipped,
    method_styles,
    new_panel,
    padded,
    to_svg,
)
from colonnade.experiments.reproduce.assess import Assessment
from colonnade.experiments.reproduce.study import Column

OURS = "#0072B2"
APART = 0.17  # ours a little above the line, the paper's a little below


def draw(assessment: Assessment, name: str) -> list[Picture]:
    """`name`: makes the ids of the pictures different from those of other sheets."""
    shown = bool(_values(assessment).size) and bool(assessment.ours.cells)
    if not shown or assessment.sheet.picture is None:
        return []
    if assessment.sheet.picture == "lines":
        return [_lines(assessment, name)]
    return _dots(assessment, name)


def line_styles(assessment: Assessment) -> dict[str, Style]:
    return method_styles(row.name for row in assessment.sheet.rows)


def _values(assessment: Assessment) -> Floats:
    """Every mean and every published figure, as drawn."""
    ours = [cell.mean for cell in assessment.ours.cells.values()]
    paper = [e.published.value for e in assessment.entries.values() if e.published]
    return assessment.ours.metric.scale * np.array(ours + paper)


def _limits(assessment: Assessment) -> Limits:
    """Of the axis. Figures far from all others would press the rest together (one method at 10 %
    where the others differ by tenths): they are left outside, and told at the edge."""
    values = _values(assessment)
    q1, q3 = np.quantile(values, (0.25, 0.75))
    reach = max(1.5 * (q3 - q1), 1.0)
    near = values[(values >= q1 - reach) & (values <= q3 + reach)]
    ends = [bar for bar in _bars(assessment) if q1 - reach <= bar <= q3 + reach]
    return padded(np.array([*near, *ends]), 0.06)


def _bars(assessment: Assessment) -> list[float]:
    """The ends of our error bars."""
    scale = assessment.ours.metric.scale
    cells = assessment.ours.cells.values()
    return [scale * (cell.mean + sign * (cell.spread or 0.0)) for cell in cells for sign in (-1, 1)]


def _dots(assessment: Assessment, name: str) -> list[Picture]:
    limits = _limits(assessment)
    rows = [row.name for row in assessment.sheet.rows if _known(assessment, row.name)]
    pictures = []
    for number, column in enumerate(assessment.sheet.columns):
        with matplotlib.rc_context(RC):
            figure, axes = new_panel(0.85 + 0.36 * len(rows))
            for height, row in enumerate(rows):
                _dot(axes, assessment, (row, column.name), height, limits)
            _name_rows(axes, rows)
            axes.set(xlim=limits, xlabel=assessment.ours.metric.title)
            axes.xaxis.set_major_locator(MaxNLocator(5))
            svg = to_svg(figure, f"{name}-{number}")
        pictures.append(Picture(svg, column.name, _description(assessment, [column])))
    return pictures


def _known(assessment: Assessment, row: str) -> bool:
    return any(
        (row, column.name) in assessment.ours.cells
        or assessment.entries[row, column.name].published
        for column in assessment.sheet.columns
    )


def _dot(
    axes: Axes, assessment: Assessment, at: tuple[str, str], height: float, limits: Limits
) -> None:
    scale = assessment.ours.metric.scale
    cell, published = assessment.ours.cells.get(at), assessment.entries[at].published
    if cell is not None:
        ours = {"color": OURS, "fmt": "o", "ms": 6.5, "lw": 2.2, "mfc": OURS}
        _mark(axes, scale * cell.mean, scale * (cell.spread or 0), height - APART, limits, ours)
    if published is not None:
        paper = {"color": INK, "fmt": "o", "ms": 6, "lw": 1, "mfc": "white", "mew": 1.2}
        spread = scale * (published.spread or 0)
        _mark(axes, scale * published.value, spread, height + APART, limits, paper)


def _mark(
    axes: Axes, value: float, spread: float, height: float, limits: Limits, style: dict[str, object]
) -> None:
    """A dot with its bar, or, outside the axis, an arrow with the figure."""
    if limits[0] <= value <= limits[1]:
        axes.errorbar(value, height, xerr=spread or None, **style)  # pyright: ignore[reportArgumentType]
        return
    low = value < limits[0]
    axes.annotate(
        f"◂ {value:.1f}" if low else f"{value:.1f} ▸",
        (limits[0] if low else limits[1], height),
        ha="left" if low else "right",
        va="center",
        fontsize=9,
        color=str(style["color"]),
    )


def _name_rows(axes: Axes, rows: list[str]) -> None:
    axes.set_yticks(range(len(rows)), [clipped(row) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)


def _lines(assessment: Assessment, name: str) -> Picture:
    sheet, metric = assessment.sheet, assessment.ours.metric
    with matplotlib.rc_context(RC):
        figure, axes = new_panel(3.4, 6.0)
        rows = [row.name for row in sheet.rows if _known(assessment, row.name)]
        styles = line_styles(assessment)
        limits = padded(np.array([*_values(assessment), *_bars(assessment)]), 0.06)
        for row in rows:
            _line(axes, assessment, row, styles[row])
        axes.set_xticks(range(len(sheet.columns)), [column.name for column in sheet.columns])
        axes.set(xlabel=sheet.axis, ylabel=metric.title, ylim=limits)
        axes.set_xlim(-0.35, len(sheet.columns) - 0.65)
        axes.grid(axis="x", visible=False)
        axes.tick_params(labelcolor=FAINT)
        svg = to_svg(figure, name)
    return Picture(svg, sheet.title, _description(assessment, list(sheet.columns)))


def _line(axes: Axes, assessment: Assessment, row: str, style: Style) -> None:
    scale = assessment.ours.metric.scale
    columns = list(enumerate(assessment.sheet.columns))
    paper = [
        (x, scale * published.value)
        for x, column in columns
        if (published := assessment.entries[row, column.name].published)
    ]
    ours = [
        (x, scale * cell.mean, scale * (cell.spread or 0.0))
        for x, column in columns
        if (cell := assessment.ours.cells.get((row, column.name)))
    ]
    if paper:
        # Larger than ours: where both agree, the one surrounds the other.
        hollow = {"mfc": "none", "ms": 10, "lw": 1.1, "ls": ":", "marker": style.marker}
        axes.plot(*np.array(paper).T, color=style.colour, **hollow)  # pyright: ignore[reportArgumentType]
    if ours:
        x, y, spread = np.array(ours).T
        line = axes.plot(x, y, color=style.colour, marker=style.marker, ms=6, lw=1.8)[0]
        if style.dashes:
            line.set_dashes(style.dashes)
        axes.fill_between(x, y - spread, y + spread, color=style.colour, alpha=0.14, lw=0)


def _description(assessment: Assessment, columns: list[Column]) -> str:
    """The picture in words, for readers who cannot see it."""
    parts = []
    for column in columns:
        figures = [
            f"{row} {assessment.ours.text(cell)}"
            for row, cell in assessment.ours.ranking(column.name)
        ]
        parts.append(f"{column.words}: {', '.join(figures) or 'no figure of ours'}")
    return f"{assessment.ours.metric.title}. {'; '.join(parts)}."
