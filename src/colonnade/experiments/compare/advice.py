"""Which method to choose, in sentences that are made from the figures.

Methods are compared by their paired differences over seeds. Two are level if it depends on the seed
which of them is ahead; a method that is behind at every seed is not, but that may be chance while
the 95 % interval of its mean difference holds 0. The yardstick, which moves all columns to one
place, is never advised."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from colonnade.common.results import Result
from colonnade.experiments.findings import PLAIN, Voice, listed
from colonnade.experiments.paired import Certainty, certainty
from colonnade.experiments.table import Cell, Summary, bytes_text, short

NEAR = 0.01  # of an accuracy, or as a share of another metric: hardly a loss
ONE_SEED = "With one seed, that may be chance."


@dataclass(frozen=True)
class Field:
    """The methods that may be advised, with their figures."""

    summary: Summary
    results: Sequence[Result]
    reveals_rows: Mapping[str, bool]  # method → whether single rows' encodings leave a party
    untimed: Sequence[str] = ()  # methods whose virtual time lacks what parties learn alone

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

    def compared(self, fault: str) -> dict[str, Certainty]:
        """How certain it is that the best method is ahead of each other one, best first."""
        (_, best), *others = self.ranking(fault)
        return {method: self.summary.certainty(best, cell) for method, cell in others}

    def level(self, fault: str) -> list[str]:
        """The best method, and those of which it depends on the seed whether they are ahead."""
        found = self.compared(fault)
        return [self.ranking(fault)[0][0], *(m for m, how in found.items() if how == "chance")]

    def behind(self, method: str, fault: str) -> float:
        """How far a method is behind the best one, in the metric; inf where it has no figure."""
        ranking = self.ranking(fault)
        cell = dict(ranking).get(method)
        return float("inf") if cell is None else abs(ranking[0][1].mean - cell.mean)

    def behind_by_seed(self, method: str, fault: str) -> dict[int, float]:
        """The same, seed by seed; below 0 where the method is ahead."""
        ranking = self.ranking(fault)
        best, mine = ranking[0][1].by_seed, dict(ranking)[method].by_seed
        sign = 1 if self.summary.metric.higher_is_better else -1
        return {seed: sign * (best[seed] - mine[seed]) for seed in mine if seed in best}

    def near(self, fault: str) -> list[str]:
        """The methods with hardly a loss."""
        best = self.ranking(fault)[0][1].mean
        unit = 1.0 if self.summary.metric.unit else abs(best)
        return [m for m, _ in self.ranking(fault) if self.behind(m, fault) <= NEAR * unit]

    def as_good(self, fault: str) -> list[str]:
        """The methods that are near the best one, or no further behind it than one that is level
        with it."""
        counted = [*self.near(fault), *self.level(fault)]
        furthest = max(self.behind(method, fault) for method in counted)
        return [m for m, _ in self.ranking(fault) if self.behind(m, fault) <= furthest]

    def cost(self, method: str, key: str) -> float | None:
        if key == "virtual_seconds" and method in self.untimed:
            return None
        values = [r.cost.get(key) for r in self.results if r.method == method]
        known = [value for value in values if value is not None]
        return fmean(known) if known else None


def advice(field: Field, voice: Voice = PLAIN) -> list[str]:
    """One sentence, or a few, per question that a person may have."""
    faults = [fault for fault in field.summary.plan.faults if field.ranking(fault)]
    if not faults:
        return []
    sentences = [_best(field, fault, voice) for fault in faults]
    calm = faults[0]
    sentences += [_cheapest(field, calm, "bytes", "Where bytes matter", bytes_text, voice)]
    key, timed = "virtual_seconds", [m for m in field.methods if m not in field.untimed]
    if timed and all(field.cost(method, key) for method in timed):  # there are delays
        seconds = lambda value: f"{short(value)} virtual s"  # noqa: E731
        sentences += [_cheapest(field, calm, key, "Where time matters", seconds, voice)]
    sentences += [_hidden(field, calm, voice), _unsure(field, faults, voice)]
    return [sentence for sentence in sentences if sentence]


def _best(field: Field, fault: str, voice: Voice) -> str:
    said = _ahead(field, fault, voice) + _doubtful(field, fault, voice)
    for method in field.late(fault):
        cell = field.summary.cells.get((method, fault))
        figure = "" if cell is None else f" ({field.summary.metric.figure(cell.mean)})"
        said += f" {voice.strong(method)}{figure} waits until enough parties are back."
    return said


def _figures(field: Field, fault: str, voice: Voice) -> dict[str, str]:
    """Methods with their figures, best first."""
    figure = field.summary.metric.figure
    return {m: f"{voice.strong(m)} ({figure(c.mean)})" for m, c in field.ranking(fault)}


def _ahead(field: Field, fault: str, voice: Voice) -> str:
    figures, level = _figures(field, fault, voice), field.level(fault)
    place = "Without faults" if fault == field.summary.plan.faults[0] else f"With {fault}"
    said = f"{voice.plain(place)}: {listed([figures[method] for method in level])}"
    if len(level) > 1:
        return f"{said}, which are level."
    second, certain = next(iter(field.compared(fault).items()), ("", ""))
    if not second or certain == "every seed":  # then it is named with those that may be as good
        return f"{said}."
    ahead = field.summary.metric.distance(field.behind(second, fault))
    return f"{said}, {ahead} ahead of {figures[second]}."


def _doubtful(field: Field, fault: str, voice: Voice) -> str:
    """The methods that are behind the best one, but not so that chance is ruled out."""
    figures, found = _figures(field, fault, voice), field.compared(fault)
    behind = [figures[method] for method, how in found.items() if how == "every seed"]
    if behind:
        return f" Behind the best at every seed, but that may be chance: {listed(behind)}."
    return f" {ONE_SEED}" if "one seed" in found.values() else ""


def _cheapest(
    field: Field, fault: str, key: str, question: str, text: Callable[[float], str], voice: Voice
) -> str:
    """The method that costs least: of those that are as good as the best one, and, if that is
    another one, of those with hardly a loss."""
    costs = {m: cost for m in field.methods if (cost := field.cost(m, key)) is not None}
    ranking, metric = field.ranking(fault), field.summary.metric
    least = _least(costs, field.as_good(fault))
    if least is None:
        return ""
    best, figure = ranking[0][0], metric.figure(dict(ranking)[least].mean)
    said = f"{question}: {voice.strong(least)}, {text(costs[least])} for {figure}"
    if least != best:
        said += f", {metric.distance(field.behind(least, fault))} behind {voice.strong(best)}"
        if best in costs and costs[least]:
            said += f", which takes {short(costs[best] / costs[least])} times as much"
    near = _least(costs, field.near(fault))
    if near is None or near == least:
        return f"{said}."
    loss = "a point" if metric.unit else "1\u00a0%"
    return f"{said}. Within {loss} of the best: {voice.strong(near)}, {text(costs[near])}."


def _least(costs: Mapping[str, float], among: Sequence[str]) -> str | None:
    return min((m for m in among if m in costs), key=costs.__getitem__, default=None)


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
    """The method whose largest distance from the best, over all settings, is smallest, and those
    whose largest distance is not clearly larger."""
    worst = {m: max(faults, key=lambda f, m=m: field.behind(m, f)) for m in field.methods}
    regret = {m: field.behind(m, fault) for m, fault in worst.items()}
    ranked = sorted((m for m in regret if regret[m] != float("inf")), key=regret.__getitem__)
    if len(faults) < 2 or len(field.methods) < 2 or not ranked:
        return ""
    distance, least = field.summary.metric.distance, ranked[0]
    said = (
        f"If you do not know what will fail: {voice.strong(least)}; it is at most "
        f"{distance(regret[least])} behind the best in each of these {len(faults)} settings."
    )
    known = field.behind_by_seed(least, worst[least])

    def clearly_worse(method: str) -> bool:
        mine = field.behind_by_seed(method, worst[method])
        return certainty([mine[seed] - known[seed] for seed in mine if seed in known]) == "clear"

    if len(known) == 1:
        return f"{said} {ONE_SEED}"
    others = [m for m in ranked[1:] if not clearly_worse(m)]
    if not others:
        return said
    named = listed([f"{voice.strong(m)} (at most {distance(regret[m])})" for m in others])
    return f"{said} The seeds do not rule out that these do as well: {named}."
