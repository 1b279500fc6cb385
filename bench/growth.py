"""What a training costs as it grows: more parties, more rows, more columns, more runs.

Each method is trained for one epoch at sizes that grow by a constant factor, each in a process of
its own. A power law, cost = constant · size^exponent, is fitted to the largest sizes, where fixed
costs count least. `python -m bench.growth_page` draws the points and writes the tables of
docs/explanation/growth.md. `python -m bench links` measures what one link of a grid costs.

`python -m bench growth --keep FILE` appends every point to FILE as it is measured, one JSON object
per line, and does not measure again what FILE holds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import log
from pathlib import Path
from statistics import fmean

from rich import box
from rich.table import Table

from bench.growth_points import Family, Point, measured
from bench.timing import Figure

SPLITNN = Family("splitnn", "splitnn")
DVFL = Family("dvfl", "dvfl", {"client_epochs": 1, "aggregator_epochs": 2, "replay": "all"})
GRID = Family("mags, grid", "mags", {"method": "CD-MVFL"}, "grid")
COMPLETE = Family("mags, complete", "mags", {"method": "CD-MVFL"})
SHARES = {"encoder": [4], "clip": 4.0, "data_bits": 5, "model_bits": 11}
FEDVS = Family("fedvs", "fedvs", SHARES)
CVFL = Family("cvfl", "cvfl", {"active": 4})
VAFL = Family("vafl", "vafl")
VIM = Family("vim", "vim", {"head": None})
RUNS = Family("grid of runs", "splitnn")
FACTORS = {"parties": 4, "rows": 10, "columns": 4, "runs": 4}
FIRST = {"parties": 4, "rows": 10_000, "columns": 4, "runs": 4}
# The largest size: as large as a minute and a few gigabytes allow.
LAST: dict[str, dict[Family, int]] = {
    "parties": {
        SPLITNN: 4096,
        VIM: 4096,
        CVFL: 4096,
        GRID: 4096,
        DVFL: 1024,
        VAFL: 256,
        COMPLETE: 256,
        FEDVS: 256,
    },
    "rows": dict.fromkeys((SPLITNN, VIM, CVFL, GRID, DVFL, VAFL), 10_000_000) | {FEDVS: 1_000_000},
    "columns": dict.fromkeys((SPLITNN, VIM, CVFL, GRID, DVFL, VAFL), 4096) | {FEDVS: 1024},
    "runs": {RUNS: 1024},
}
FITTED = 3  # of the largest sizes


@dataclass(frozen=True)
class Fit:
    """size^exponent, by least squares of the logarithms; `low` and `high`: the smallest and the
    largest exponent between two neighbouring sizes."""

    exponent: float
    low: float
    high: float

    @classmethod
    def of(cls, points: Sequence[Point], cost: Callable[[Point], float]) -> Fit:
        logs = [(log(point.size), log(max(cost(point), 1e-9))) for point in points[-FITTED:]]
        if len(logs) < 2:
            return cls(0.0, 0.0, 0.0)
        x, y = (fmean(values) for values in zip(*logs, strict=True))
        slope = sum((a - x) * (b - y) for a, b in logs) / sum((a - x) ** 2 for a, _ in logs)
        between = [(d - b) / (c - a) for (a, b), (c, d) in pairwise(logs)]
        return cls(slope, min(between), max(between))

    def __str__(self) -> str:
        return f"{self.exponent:.2f} ({self.low:.2f} – {self.high:.2f})"


@dataclass(frozen=True)
class Curve:
    """One method as one quantity grows."""

    family: str
    quantity: str
    points: list[Point]  # by size
    time: Fit
    held: Fit
    sent: Fit
    messages: Fit

    @classmethod
    def of(cls, points: Iterable[Point]) -> Curve:
        found = sorted(points, key=lambda point: point.size)
        fits = [Fit.of(found, cost) for cost in (_time, _held, _sent, _messages)]
        return cls(found[0].family, found[0].quantity, found, *fits)

    @property
    def largest(self) -> Point:
        return self.points[-1]

    def per_unit(self, cost: Callable[[Point], float]) -> float:
        """What one more party, row or column adds, between the two largest sizes."""
        if len(self.points) < 2:
            return cost(self.largest) / self.largest.size
        before, last = self.points[-2:]
        return (cost(last) - cost(before)) / (last.size - before.size)


def _time(point: Point) -> float:
    return point.time


def _held(point: Point) -> float:
    return point.held


def _sent(point: Point) -> float:
    return point.sent


def _messages(point: Point) -> float:
    return point.messages / point.units


def plan() -> Iterator[tuple[Family, str, int]]:
    for quantity, families in LAST.items():
        for family, last in families.items():
            size = FIRST[quantity]
            while size <= last:
                yield family, quantity, size
                size *= FACTORS[quantity]


def kept(path: Path | None) -> dict[tuple[str, str, int], Point]:
    """The points of an earlier call."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    points = [Point(**facts) for facts in map(json.loads, lines)]
    return {point.key: point for point in points}


def curves(points: Iterable[Point]) -> list[Curve]:
    found: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        found.setdefault((point.quantity, point.family), []).append(point)
    return [Curve.of(each) for each in found.values()]


def run(keep: Path | None = None) -> list[Figure]:
    done = kept(keep)
    for family, quantity, size in plan():
        if (family.name, quantity, size) in done:
            continue
        point = done[family.name, quantity, size] = measured(family, quantity, size)
        if keep is not None:
            with keep.open("a") as file:
                file.write(json.dumps(asdict(point)) + "\n")
        print(point, file=sys.stderr, flush=True)
    return [
        Figure("growth", f"{c.family}, {c.quantity}", 1e3 * c.largest.time, detail=c)
        for c in curves(done.values())
    ]


CAPTION = """\
time: processor time of a batch of 64 rows (as parties or columns grow), of an epoch (rows), of all
runs; memory: the largest of the process, above that of an idle one
exponent: of the three largest sizes (smallest – largest between two neighbouring sizes)"""


def table(figures: list[Figure]) -> Table:
    result = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=CAPTION)
    for header in ("grows", "method"):
        result.add_column(header)
    for header in ("up to", "ms", "exponent", "MB held", "exponent", "MB sent", "exponent"):
        result.add_column(header, justify="right", no_wrap=True)
    for curve in (figure.detail for figure in figures):
        last = curve.largest
        result.add_row(
            curve.quantity,
            curve.family,
            f"{last.size:,}",
            f"{1e3 * last.time:,.1f}",
            f"{curve.time}",
            f"{last.held / 1e6:,.0f}",
            f"{curve.held.exponent:.2f}",
            f"{last.sent / 1e6:,.3f}",
            f"{curve.sent.exponent:.2f}",
        )
    return result
