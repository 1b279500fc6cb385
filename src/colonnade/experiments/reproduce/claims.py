"""Statements about figures, held against ours: a claim holds, does not hold, was not measured, or
is not judged because the scale cannot say anything about it.

A claim is a handful of facts. A fact is a sum of figures of one sheet, some taken away from
others, and the range in which the statement puts that sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean
from typing import Literal

from colonnade.experiments.paired import Certainty, certainty, half_width
from colonnade.experiments.table import Cell

At = tuple[str, str]  # row, column of a sheet
Verdict = Literal["holds", "does not hold", "not measured", "not judged"]


@dataclass(frozen=True)
class Fact:
    """low < Σ plus − Σ minus < high."""

    plus: tuple[At, ...]
    minus: tuple[At, ...] = ()
    low: float = 0.0
    high: float = inf

    @property
    def places(self) -> tuple[At, ...]:
        return self.plus + self.minus

    def margin(self, cells: Mapping[At, Cell]) -> float:
        """How far inside its range the sum of our means lies; below 0: outside."""
        return self._inside(self._total({at: cells[at].mean for at in self.places}))

    def certainty(self, cells: Mapping[At, Cell]) -> Certainty:
        """What the seeds that all figures have say about that, seed by seed."""
        figures = {at: cells[at].by_seed for at in self.places}
        seeds = set.intersection(*(set(found) for found in figures.values()))
        totals = [self._total({at: f[seed] for at, f in figures.items()}) for seed in sorted(seeds)]
        margins, doubt = [self._inside(total) for total in totals], half_width(totals)
        if doubt is None or not any(margins):
            return certainty(margins)
        # Of the mean total: where the range has two ends, margins are no differences.
        if abs(self._inside(fmean(totals))) > doubt:
            return "clear"
        return "every seed" if min(margins) > 0 or max(margins) < 0 else "chance"

    def _total(self, figures: Mapping[At, float]) -> float:
        return sum(figures[at] for at in self.plus) - sum(figures[at] for at in self.minus)

    def _inside(self, total: float) -> float:
        return min(total - self.low, self.high - total)


@dataclass(frozen=True)
class Claim:
    text: str
    facts: tuple[Fact, ...]  # all of them must hold
    ours: bool = False  # a question of ours that the paper does not speak of
    any_scale: bool = False  # about what is counted, not learnt or drawn: a smoke run will do


@dataclass(frozen=True)
class Judgement:
    claim: Claim
    verdict: Verdict
    certainty: str  # how much the seeds have to say about it; empty if not measured
    figures: Mapping[At, Cell]


def judge(claim: Claim, cells: Mapping[At, Cell], *, meaningful: bool = True) -> Judgement:
    """`cells`: our figures, where there are any. `meaningful`: they are of a scale that can say
    something about the claim."""
    places = dict.fromkeys(at for fact in claim.facts for at in fact.places)
    known = {at: cells[at] for at in places if at in cells}
    if len(known) < len(places):
        return Judgement(claim, "not measured", "", known)
    if not (meaningful or claim.any_scale):
        return Judgement(claim, "not judged", "", known)
    margins = [fact.margin(known) for fact in claim.facts]
    holds = all(margin > 0 for margin in margins)
    deciding: list[Certainty] = [
        fact.certainty(known)
        for margin, fact in zip(margins, claim.facts, strict=True)
        if holds or margin <= 0
    ]
    return Judgement(
        claim, "holds" if holds else "does not hold", _certainty(deciding, holds), known
    )


def _certainty(deciding: Sequence[Certainty], holds: bool) -> str:
    """A claim holds clearly if all its facts do; one fact that clearly fails fells it clearly."""
    if "one seed" in deciding:
        return "one seed"
    enough = all if holds else any
    if enough(found == "clear" for found in deciding):
        return "clearly"
    if enough(found in ("clear", "every seed") for found in deciding):
        return "at every seed"
    return "may be chance"
