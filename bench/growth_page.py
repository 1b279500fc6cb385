"""`python -m bench.growth_page POINTS.jsonl PAGE.md PICTURE.png`: the tables and the picture of
docs/explanation/growth.md, from the points that `python -m bench growth --keep POINTS.jsonl` keeps.

The tables are written between the marks of the page. What lies beyond the measured sizes is
extrapolated by the fitted exponents, and the tables say so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.ticker import NullFormatter

from bench.growth import Curve, Fit, curves, kept
from bench.growth_points import BATCH, LARGE_BATCH, Point

FAR = {"parties": 10**6, "rows": 10**9}
TITLES = {
    "parties": ("parties", "seconds of a batch of 64 rows"),
    "rows": ("rows", "seconds of an epoch"),
    "columns": ("columns of a party", "seconds of a batch of 64 rows"),
    "runs": ("runs of a grid", "seconds of all runs"),
}


Column = tuple[str, Callable[[Curve], str]]  # header, and the cell of a curve


def _per(one: str, unit: str, scale: float, cost: Callable[[Point], float]) -> Column:
    """What one more of a quantity adds."""
    return f"{unit} per {one}", lambda curve: number(scale * curve.per_unit(cost))


UP_TO: Column = ("up to", lambda c: f"{c.largest.size:,}")
TIME: tuple[Column, ...] = (
    ("time", lambda c: seconds(c.largest.time)),
    ("exponent", lambda c: str(c.time)),
)
HELD: tuple[Column, ...] = (
    ("memory", lambda c: amount(c.largest.held)),
    ("exponent", lambda c: str(c.held)),
)
MESSAGES: tuple[Column, ...] = (
    ("messages", lambda c: f"{c.largest.messages / c.largest.units:,.0f}"),
    ("exponent", lambda c: f"{c.messages.exponent:.2f}"),
    ("µs per message", lambda c: number(1e6 * c.largest.seconds / c.largest.messages)),
    ("bytes per message", lambda c: number(c.largest.bytes / c.largest.messages)),
)
TABLES: dict[str, tuple[str, tuple[Column, ...]]] = {
    "parties": (
        f"**Parties.** A batch of {BATCH} rows, four columns at each party:",
        (UP_TO, *TIME, *MESSAGES, *HELD, _per("party", "KB", 1e-3, lambda p: p.held)),
    ),
    "rows": (
        "**Rows.** An epoch of four parties with four columns each, in batches of "
        f"{LARGE_BATCH:,} rows:",
        (
            UP_TO,
            *TIME,
            _per("row", "µs", 1e6, lambda p: p.time),
            _per("row", "bytes sent", 1, lambda p: p.sent),
            *HELD,
            _per("row", "bytes held", 1, lambda p: p.held),
        ),
    ),
    "columns": (
        f"**Columns.** A batch of {BATCH} rows, four parties:",
        (
            UP_TO,
            *TIME,
            _per("column", "µs", 1e6, lambda p: p.time),
            *HELD,
            _per("column", "KB held", 1e-3, lambda p: p.held),
        ),
    ),
    "runs": (
        "**Runs** that hardly train, one after the other in one process:",
        (UP_TO, *TIME, _per("run", "ms", 1e3, lambda p: p.time), *HELD),
    ),
}


def tables(found: Sequence[Curve]) -> str:
    """All tables, as Markdown."""
    commits = dict.fromkeys(point.commit for curve in found for point in curve.points)
    parts = [f"Measured at commit {', '.join(commits)}."]
    for quantity, (title, columns) in TABLES.items():
        if shown := [c for c in found if c.quantity == quantity]:
            parts += [title, _table(shown, columns)]
    parts += [
        f"**Extrapolated, not measured**: one process that simulates {FAR['parties']:,} parties (a "
        f"batch of {BATCH} rows), or an epoch of {FAR['rows']:,} rows. The larger of two guesses: "
        "what the last step of the sizes added goes on, or its exponent does.",
        _far(found),
    ]
    return "\n\n".join(parts)


def _table(found: Sequence[Curve], columns: Sequence[Column]) -> str:
    lines = [["method", *(header for header, _ in columns)], ["---", *["---:"] * len(columns)]]
    lines += [[curve.family, *(cell(curve) for _, cell in columns)] for curve in found]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _far(found: Sequence[Curve]) -> str:
    of = {(curve.quantity, curve.family): curve for curve in found}
    methods = [curve for curve in found if curve.quantity == "parties"]

    def column(quantity: str, what: str, cell: Callable[[Curve], str]) -> Column:
        header = f"{FAR[quantity]:,} {quantity}: {what}"
        other = lambda curve: of.get((quantity, curve.family))  # noqa: E731
        return header, lambda curve: "–" if (one := other(curve)) is None else cell(one)

    columns = [
        column(quantity, what, cell)
        for quantity in FAR
        for what, cell in (
            ("time", lambda c: seconds(far(c, lambda p: p.time))),
            ("memory", lambda c: amount(far(c, lambda p: p.held))),
            ("sent", lambda c: amount(far(c, lambda p: p.sent))),
        )
    ]
    return _table(methods, columns)


def far(curve: Curve, cost: Callable[[Point], float]) -> float:
    """A cost at the size of `FAR`."""
    last, size = curve.largest, FAR[curve.quantity]
    if len(curve.points) < 2:
        return cost(last) * size / last.size
    goes_on = cost(last) + curve.per_unit(cost) * (size - last.size)
    exponent = Fit.of(curve.points[-2:], cost).exponent
    return max(goes_on, cost(last) * (size / last.size) ** exponent)


def number(value: float) -> str:
    """Three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def seconds(value: float) -> str:
    for unit, size in (("years", 31_557_600), ("days", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        if value >= 2 * size or (unit == "s" and value >= 1):
            return f"{number(value / size)} {unit}"
    return f"{number(1e3 * value)} ms"


def amount(value: float) -> str:
    for unit, size in (("EB", 1e18), ("PB", 1e15), ("TB", 1e12), ("GB", 1e9)):
        if value >= size:
            return f"{number(value / size)} {unit}"
    return f"{number(value / 1e6)} MB"


def draw(found: Sequence[Curve], path: Path) -> None:
    """Time and memory over each quantity, on logarithmic axes, with a line of exponent 1."""
    figure, axes = plt.subplots(2, len(TITLES), figsize=(4 * len(TITLES), 7), layout="constrained")
    families = list(dict.fromkeys(curve.family for curve in found))
    colours = {family: f"C{i % 10}" for i, family in enumerate(families)}
    for column, (quantity, (grows, what)) in enumerate(TITLES.items()):
        costs = ((what, _time), ("MB held, above an idle process", _megabytes))
        for panel, (title, cost) in zip(axes[:, column], costs, strict=True):
            shown = [c for c in found if c.quantity == quantity]
            for curve in shown:
                x = [point.size for point in curve.points]
                y = [cost(point) for point in curve.points]
                panel.plot(x, y, "o-", ms=3, lw=1.4, c=colours[curve.family], label=curve.family)
            panel.set(xscale="log", yscale="log", xlabel=grows, ylabel=title)
            panel.grid(alpha=0.3)
            for axis in (panel.xaxis, panel.yaxis):
                axis.set_minor_formatter(NullFormatter())
            if shown:  # a line that doubles where the quantity doubles, to the lowest last point
                low, high = panel.get_ylim()
                least = min((curve.largest for curve in shown), key=cost)
                slope, sizes = cost(least) / least.size, [shown[0].points[0].size, least.size]
                y = [slope * size for size in sizes]
                panel.plot(sizes, y, ":", c="grey", lw=1, label="exponent 1")
                panel.set_ylim(min(low, high / 40), 1.4 * high)  # a cost that stays is a level line
    handles = {line.get_label(): line for panel in axes.flat for line in panel.lines}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _time(point: Point) -> float:
    return point.time


def _megabytes(point: Point) -> float:
    return max(point.held, 1) / 1e6


BEGIN, END = "<!-- growth: begin -->", "<!-- growth: end -->"


def updated(page: str, text: str) -> str:
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def main(points: str, page: str, picture: str) -> None:
    found = curves(kept(Path(points)).values())
    path = Path(page)
    text = updated(path.read_text(encoding="utf-8"), tables(found))
    path.write_text(text, encoding="utf-8")
    draw(found, Path(picture))


if __name__ == "__main__":
    main(*sys.argv[1:])
