"""Which method to choose, in sentences that are made from the figures.

A method that is level with the best one by its paired differences over seeds is as good a choice.
The yardstick, which moves all columns to one place, is never advised."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from colonnade.common.results import Result
from colonnade.experiments.findings import PLAIN, Voice
from colonnade.experiments.table import Cell, Summary, bytes_text, short

NEAR = 0.01  # of an accuracy, or as a share of another metric: hardly a loss
MANY = 3  # methods that are named in one sentence


@dataclass(frozen=True)
class Field:
    """The methods that may be advised, with their figures."""

    summary: Summary
    results: Sequence[Result]
    reveals_rows: Mapping[str, bool]  # method → whether single rows' encodings leave a party

    @property
    def methods(self) -> list[str]:
        return [m for m in self.summary.plan.methods if m in self.reveals_rows]

    def ranking(self, fault: str) -> list[tuple[str, Cell]]:
        """The methods that answer with whoever is there, best first."""
        late = self.late(fault)
        return [pair for pair in self.summary.ranking(fault) if pair[0] in self.methods_but(late)]

    def late(self, fault: str) -> list[str]:
        """The methods whose answers waited for parties that were away."""
        waited = {r.method for r in self.results if r.faults == fault and r.cost.get("waits")}
        return [method for method in self.methods if method in waited]

    def methods_but(self, others: Sequence[str]) -> list[str]:
        return [method for method in self.methods if method not in others]

    def leaders(self, fault: str) -> list[str]:
        ranking = self.ranking(fault)
        return [method for method, cell in ranking if self.summary.level(cell, ranking[0][1])]

    def behind(self, method: str, fault: str) -> float:
        """How far a method is behind the best one, in the metric; inf where it has no figure."""
        ranking = self.ranking(fault)
        cell = dict(ranking).get(method)
        return float("inf") if cell is None else abs(ranking[0][1].mean - cell.mean)

    def near(self, method: str, fault: str) -> bool:
        best = self.ranking(fault)[0][1].mean
        unit = 1.0 if self.summary.metric.unit else abs(best)
        return self.behind(method, fault) <= NEAR * unit or method in self.leaders(fault)

    def cost(self, method: str, key: str) -> float | None:
        values = [r.cost.get(key) for r in self.results if r.method == method]
        known = [value for value in values if value is not None]
        return fmean(known) if known else None


def advice(field: Field, voice: Voice = PLAIN) -> list[str]:
    """One sentence per question that a person may have."""
    faults = [fault for fault in field.summary.plan.faults if field.ranking(fault)]
    if not faults:
        return []
    sentences = [_best(field, fault, voice) for fault in faults]
    calm = faults[0]
    sentences += [_cheapest(field, calm, "bytes", "Where bytes matter", bytes_text, voice)]
    if all(field.cost(method, "virtual_seconds") for method in field.methods):  # there are delays
        seconds = lambda value: f"{short(value)} virtual s"  # noqa: E731
        key = "virtual_seconds"
        sentences += [_cheapest(field, calm, key, "Where time matters", seconds, voice)]
    sentences += [_hidden(field, calm, voice), _unsure(field, faults, voice)]
    return [sentence for sentence in sentences if sentence]


def _best(field: Field, fault: str, voice: Voice) -> str:
    said = _ahead(field, fault, voice)
    for method in field.late(fault):
        cell = field.summary.cells.get((method, fault))
        figure = "" if cell is None else f" ({field.summary.metric.figure(cell.mean)})"
        said += f" {voice.strong(method)}{figure} waits until enough parties are back."
    return said


def _ahead(field: Field, fault: str, voice: Voice) -> str:
    ranking, leaders = field.ranking(fault), field.leaders(fault)
    figures = {m: f"{voice.strong(m)} ({field.summary.metric.figure(c.mean)})" for m, c in ranking}
    place = "Without faults" if fault == field.summary.plan.faults[0] else f"With {fault}"
    named = ", ".join(figures[method] for method in leaders[:MANY])
    more = f" and {len(leaders) - MANY} more" if len(leaders) > MANY else ""
    if len(leaders) > 1:
        return f"{voice.plain(place)}: {named}{more}, which are level."
    if len(ranking) == 1:
        return f"{voice.plain(place)}: {named}."
    ahead = field.summary.metric.distance(abs(ranking[0][1].mean - ranking[1][1].mean))
    return f"{voice.plain(place)}: {named}, {ahead} ahead of {figures[ranking[1][0]]}."


def _cheapest(
    field: Field, fault: str, key: str, question: str, text: Callable[[float], str], voice: Voice
) -> str:
    """Of the methods that are near the best one, the one that costs least."""
    costs = {m: cost for m in field.methods if (cost := field.cost(m, key)) is not None}
    near = {m: cost for m, cost in costs.items() if field.near(m, fault)}
    if not near:
        return ""
    least, best = min(near, key=near.__getitem__), field.ranking(fault)[0][0]
    said = f"{question}: {voice.strong(least)}, {text(near[least])} for a figure near the best"
    if best in costs and least != best and near[least]:
        said += f"; {voice.strong(best)} takes {short(costs[best] / near[least])} times as much"
    return f"{said}."


def _hidden(field: Field, fault: str, voice: Voice) -> str:
    """The methods in which no encoding of a single row leaves a party in the clear."""
    hidden = [m for m in field.methods if not field.reveals_rows[m]]
    figures = {method: field.summary.cells.get((method, fault)) for method in hidden}
    named = [
        f"{voice.strong(method)} ({field.summary.metric.figure(cell.mean)})"
        for method, cell in figures.items()
        if cell is not None
    ]
    if not named:
        return ""
    return f"Where nobody may see an encoding of a single row: {', '.join(named)}."


def _unsure(field: Field, faults: Sequence[str], voice: Voice) -> str:
    """The method whose largest distance from the best, over all settings, is smallest."""
    if len(faults) < 2 or len(field.methods) < 2:
        return ""
    regret = {m: max(field.behind(m, fault) for fault in faults) for m in field.methods}
    least = min(regret, key=regret.__getitem__)
    if regret[least] == float("inf"):
        return ""
    distance = field.summary.metric.distance(regret[least])
    return (
        f"If you do not know what will fail: {voice.strong(least)}; it is at most {distance} "
        f"behind the best in each of these {len(faults)} settings."
    )
