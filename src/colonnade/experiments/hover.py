"""Values under the pointer: what a picture tells the page's script, as JSON.

The script (templates/report.js) shows, of lines, the values nearest to the pointer's x, and of
marks, the text of the nearest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

if TYPE_CHECKING:
    from colonnade.experiments.plots import Style

DIGITS = 5  # significant ones
REACH = 28  # pixels from a mark


@dataclass(frozen=True)
class Line:
    """A curve, by its points."""

    name: str
    style: Style
    x: NDArray[np.float64]
    y: NDArray[np.float64]


@dataclass(frozen=True)
class Mark:
    """A point with a text; lines of the text are separated by newlines."""

    x: float
    y: float
    text: str
    method: int | None = None  # that it belongs to


def hover(
    axes: Axes,
    lines: Sequence[Line] = (),
    marks: Sequence[Mark] = (),
    *,
    rows: bool = False,
    everywhere: bool = False,
) -> str:
    """JSON for one picture, after it was drawn: only then the axes have their place. `rows`: a mark
    is found by its y alone; `everywhere`: the nearest mark is found at any distance."""
    place = axes.get_position()
    facts: dict[str, Any] = {
        "box": _short([place.x0, 1 - place.y1, place.width, place.height]),
        "x": _short(axes.get_xlim()),
        "y": _short(axes.get_ylim()),
        "axis": axes.get_xlabel(),
    }
    if lines:
        facts["lines"] = [
            {
                "name": line.name,
                "colour": line.style.colour,
                "method": line.style.number,
                "x": _short(line.x),
                "y": _short(line.y),
            }
            for line in lines
        ]
    if marks:
        facts["marks"] = [[*_short([m.x, m.y]), m.text, m.method] for m in marks]
        facts["reach"] = None if everywhere or rows else REACH
        facts["rows"] = rows
    return msgspec.json.encode(facts).decode()


def _short(values: Sequence[float] | NDArray[np.float64]) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values]
