"""Results as tables: methods × fault settings, costs, and what left each party.

A `Grid` holds finished text; the terminal and the report draw the same grids.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from colonnade.common.metric_names import main_metric, title_of
from colonnade.common.results import CONFIG, LedgerRow, Result, real
from colonnade.experiments.paired import Certainty, certainty

if TYPE_CHECKING:
    from rich.table import Table

ACCURACY = "test_accuracy"
NOTHING = "–"
NOT_MEASURED = "Nothing was measured on test rows."
UNITS = {  # of fractions, beside all accuracies
    "active_rand": "%",
    "active_best": "%",
    "active_worst": "%",
    "any_rand": "%",
    "spread": "points",
    "accuracy_lost": "points",
    "Shapley_value": "points",
}
MANY_PARTIES = 24  # above this, links are shown between groups


@dataclass(frozen=True)
class Plan:
    """What the experiment file asks for: rows and columns in their order, and the seeds."""

    methods: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    metric: str | None = None  # that the user chose to decide; None: the usual one of the goal

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Plan:
        """From a parsed `config.toml`."""
        labels = config.get("data") or config.get("rows") or {}
        return cls(
            metric=labels.get("metric"),
            methods=tuple(str(method["name"]) for method in config.get("methods", ())),
            faults=tuple(str(fault["name"]) for fault in config.get("faults", ())),
            seeds=tuple(config.get("seeds", ())),
        )

    def joined(self, results: Iterable[Result]) -> Plan:
        """This plan, followed by methods, faults and seeds that only the results have."""
        results = list(results)
        return Plan(
            metric=self.metric,
            methods=tuple(dict.fromkeys([*self.methods, *(r.method for r in results)])),
            faults=tuple(dict.fromkeys([*self.faults, *(r.faults for r in results)])),
            seeds=tuple(dict.fromkeys([*self.seeds, *(r.seed for r in results)])),
        )

    @property
    def runs(self) -> int:
        return len(self.methods) * len(self.faults) * len(self.seeds)


@dataclass(frozen=True)
class Grid:
    """A table of text; the first `words` columns are words, the others figures."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str
    words: int = 1
    best: frozenset[tuple[int, int]] = frozenset()  # (row, column)
    faint: frozenset[int] = frozenset()  # rows that belong to the one above, printed dim


@dataclass(frozen=True)
class Cell:
    """One method in one setting."""

    values: tuple[float, ...]  # one per finished seed
    seeds: tuple[int, ...] = ()  # of the values; 0, 1, … if not given

    def __post_init__(self) -> None:
        if not self.seeds:
            object.__setattr__(self, "seeds", tuple(range(len(self.values))))

    @property
    def by_seed(self) -> dict[int, float]:
        return dict(zip(self.seeds, self.values, strict=True))

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def spread(self) -> float | None:
        """Two sample standard deviations; one seed says nothing about spread."""
        return 2 * stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Metric:
    """The name of a metric, how its values are written, and whether higher is better."""

    name: str

    @property
    def unit(self) -> str:
        """The unit of fractions, which are written as percentages; other metrics have none."""
        return "%" if self.name.endswith("accuracy") else UNITS.get(self.name, "")

    @property
    def title(self) -> str:
        return title_of(self.name) + (f" ({self.unit})" if self.unit else "")

    @property
    def scale(self) -> float:
        return 100.0 if self.unit else 1.0

    @property
    def higher_is_better(self) -> bool:
        lower = r"loss|error|mse|mae|perplexity|seconds|bytes|messages|spread"
        return not re.search(lower, self.name)

    def text(self, value: float) -> str:
        if "megabytes" in self.name:
            return f"{value:,.2f}"
        if re.search("bytes|rounds", self.name):
            return f"{value:,.0f}"
        if self.name.startswith("messages"):
            return f"{value:,.1f}"
        if self.name.endswith("seconds"):
            return f"{value:,.1f}" if abs(value) >= 0.05 else short(value)
        return f"{self.scale * value:.2f}" if self.unit else f"{value:.4f}"

    def figure(self, value: float) -> str:
        """With its unit, in a sentence."""
        unit = "s" if self.name.endswith("seconds") else self.unit
        return self.text(value) + (f"\u00a0{unit}" if unit else "")

    def distance(self, value: float) -> str:
        """Between two values, in a sentence."""
        return f"{self.text(value)} points" if self.unit else self.figure(value)

    def change(self, value: float) -> str:
        """A difference of two values, with its sign."""
        text = self.text(abs(value))
        sign = "" if text == self.text(0.0) else "−" if value < 0 else "+"
        return sign + text


@dataclass(frozen=True)
class Summary:
    """Mean ± 2 sd over seeds of one metric, for each method and fault setting."""

    metric: Metric
    plan: Plan
    cells: Mapping[tuple[str, str], Cell]
    ranked: bool = True  # the best of a column is printed in bold

    def ranking(self, fault: str) -> list[tuple[str, Cell]]:
        """Methods that have a figure for this fault setting, best first."""
        found = [(m, self.cells[m, fault]) for m in self.plan.methods if (m, fault) in self.cells]
        return sorted(found, key=lambda pair: pair[1].mean, reverse=self.metric.higher_is_better)

    def certainty(self, one: Cell, other: Cell) -> Certainty:
        """How certain the difference is, by the seeds that both have."""
        mine, yours = one.by_seed, other.by_seed
        return certainty([mine[seed] - yours[seed] for seed in mine if seed in yours])

    def level(self, one: Cell, other: Cell) -> bool:
        """Whether it depends on the seed which of the two is ahead, so that their means do not show
        it."""
        return self.certainty(one, other) == "chance"

    def text(self, cell: Cell | None) -> str:
        if cell is None:
            return NOTHING
        text = self.metric.text(cell.mean)
        if cell.spread is not None:
            text += f" ± {self.metric.text(cell.spread)}"
        planned = len(self.plan.seeds)
        return text if len(cell.values) == planned else f"{text} ({len(cell.values)}/{planned})"

    def grid(self) -> Grid:
        rows = [
            (method, *(self.text(self.cells.get((method, fault))) for fault in self.plan.faults))
            for method in self.plan.methods
        ]
        return Grid(("method", *self.plan.faults), tuple(rows), self.caption(), best=self._best())

    def _best(self) -> frozenset[tuple[int, int]]:
        """The best figures, to be printed in bold. Figures that are equal as printed are both
        best."""
        columns = enumerate(self.plan.faults, start=1)
        return frozenset(
            (self.plan.methods.index(method), column)
            for column, fault in columns
            for method in self.winners(fault)
        )

    def winners(self, fault: str) -> list[str]:
        """The methods to be printed in bold: none if there is only one method."""
        ranking = self.ranking(fault)
        if len(ranking) < 2 or not self.ranked:
            return []
        best = self.metric.text(ranking[0][1].mean)
        return [method for method, cell in ranking if self.metric.text(cell.mean) == best]

    def caption(self) -> str:
        if not self.cells:
            return NOT_MEASURED
        label = self.metric.title[:1].upper() + self.metric.title[1:]
        seeds = len(self.plan.seeds)
        text = f"{label}, mean ± 2 sd over {seeds} seeds" if seeds > 1 else f"{label}, one seed"
        text += "" if self.metric.higher_is_better else "; lower is better"
        if self._best():
            text += "; best mean in bold" if seeds > 1 else "; best in bold"
        if any(len(cell.values) < seeds for cell in self.cells.values()):
            text += f"; (n/{seeds}): only n of {seeds} seeds"
        return text + "."


def planned(folder: Path) -> Plan:
    """What the configuration in an output folder asks for."""
    return Plan.of(tomllib.loads((folder / CONFIG).read_text(encoding="utf-8")))


def measured(results: Iterable[Result]) -> list[str]:
    """The names of the metrics that the results hold."""
    return list(dict.fromkeys(name for result in results for name in result.metrics))


def summarise(
    results: Iterable[Result], plan: Plan | None = None, metric: str | None = None
) -> Summary:
    """Summarise the metric that decides, unless another one is named. If a run appears twice, its
    later result counts; values that are not finite are left out."""
    newest = {result.key: result for result in results}.values()
    plan = (plan or Plan()).joined(newest)
    metric = metric or main_metric(plan.metric, measured(newest))
    values: dict[tuple[str, str], dict[int, float]] = {}
    for result in sorted(newest, key=lambda result: result.seed):
        value = result.metrics.get(metric)
        if value is not None and isfinite(value):
            values.setdefault((result.method, result.faults), {})[result.seed] = value
    cells = {key: Cell(tuple(found.values()), tuple(found)) for key, found in values.items()}
    return Summary(Metric(metric), plan, cells)


def short(value: float) -> str:
    """Three significant digits, whole numbers from 100 on."""
    return f"{value:,.0f}" if abs(value) >= 99.95 or value == 0 else f"{value:.3g}"


def bytes_text(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= 0.9995 * size:
            return f"{short(count / size)} {unit}"
    return f"{count:.0f} B"


Cost = tuple[str, str, Callable[[float], str]]  # key, title, as text
COSTS: tuple[Cost, ...] = (
    ("bytes", "MB sent", lambda count: short(count / 1e6)),
    ("rounds", "rounds", short),
    ("bytes_per_round", "MB per round", lambda count: short(count / 1e6)),
    ("virtual_seconds", "virtual seconds", short),
    ("wall_seconds", "wall seconds", short),
    ("rounds_to_target", "rounds to target", short),
    ("bytes_to_target", "MB to target", lambda count: short(count / 1e6)),
    ("seconds_to_target", "seconds to target", short),
)


def cost_grid(results: Iterable[Result], plan: Plan | None = None) -> Grid:
    """The mean costs of a run of each method; a cost that is 0 in all runs has no column."""
    newest = list({result.key: result for result in results}.values())
    plan = (plan or Plan()).joined(newest)
    spent = [cost for cost in _costs(newest) if any(r.cost.get(cost[0]) for r in newest)]
    rows = tuple(
        (method, *(_mean_cost([r for r in newest if r.method == method], *c) for c in spent))
        for method in plan.methods
    )
    caption = "Cost of one run, mean over all fault settings and seeds."
    return Grid(("method", *(title for _, title, _ in spent)), rows, caption)


def _costs(results: Sequence[Result]) -> list[Cost]:
    """Runs of real federations have no virtual time."""
    if not real(results):
        return list(COSTS)
    return [
        (key, "seconds" if key == "wall_seconds" else title, text)
        for key, title, text in COSTS
        if key != "virtual_seconds"
    ]


def _mean_cost(runs: Sequence[Result], key: str, _: str, text: Callable[[float], str]) -> str:
    values = [value for run in runs if (value := run.cost.get(key)) is not None]
    if not values:
        return NOTHING
    # A target that some runs never reached: the mean is over those that did.
    return text(fmean(values)) + (
        "" if len(values) == len(runs) else f" ({len(values)}/{len(runs)})"
    )


def party_labels(names: Iterable[str]) -> dict[str, str]:
    """Names without their trailing numbers: client0 … client3 are "client × 4"."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(name.rstrip("0123456789") or name, []).append(name)
    return {
        name: f"{group.rstrip('-_ .')} × {len(members)}" if len(members) > 1 else name
        for group, members in groups.items()
        for name in members
    }


def ledger_grid(rows: Sequence[LedgerRow], caption: str) -> Grid:
    """What left each party (each group, where parties are many), to which group, in every phase."""
    groups = party_labels(name for row in rows for name in (row.sender, row.receiver))
    many = len(groups) > MANY_PARTIES
    totals: dict[tuple[str, ...], tuple[int, int]] = {}
    for row in rows:
        sender = groups[row.sender] if many else row.sender
        key = (row.phase, sender, groups[row.receiver], row.kind)
        messages, size = totals.get(key, (0, 0))
        totals[key] = (messages + row.messages, size + row.bytes)
    body = tuple((*key, f"{m:,}", bytes_text(size)) for key, (m, size) in totals.items())
    return Grid(("phase", "sender", "to", "kind", "messages", "bytes"), body, caption, words=4)


def render(grid: Grid, *, narrow: bool = False) -> Table:
    """For the terminal. `narrow`: where there is little room, only words are wrapped."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, caption=Text(grid.caption), caption_justify="left")
    if narrow:
        table.padding = (0, 1, 0, 0)
    for column, title in enumerate(grid.header):
        side = "left" if column < grid.words else "right"
        whole = narrow and column >= grid.words
        table.add_column(Text(title), justify=side, overflow="fold", no_wrap=whole)
    for number, row in enumerate(grid.rows):
        usual = "dim" if number in grid.faint else ""
        styles = ["bold" if (number, column) in grid.best else usual for column in range(len(row))]
        table.add_row(*(Text(text, style) for text, style in zip(row, styles, strict=True)))
    return table
