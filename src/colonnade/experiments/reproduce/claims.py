"""Statements about figures, held against ours: a claim holds, does not hold, or was not measured.

A claim is a handful of facts. A fact is a sum of figures of one sheet, some taken away from
others, and the range in which the statement puts that sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, sqrt
from typing import Literal

from colonnade.experiments.table import Cell

At = tuple[str, str]  # row, column of a sheet
Verdict = Literal["holds", "does not hold", "not measured"]


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
        total = sum(cells[at].mean for at in self.plus) - sum(cells[at].mean for at in self.minus)
        return min(total - self.low, self.high - total)

    def spread(self, cells: Mapping[At, Cell]) -> float | None:
        """2 sd of that sum; None where one seed says nothing about it."""
        spreads = [cells[at].spread for at in self.places]
        known = [spread for spread in spreads if spread is not None]
        return sqrt(sum(s * s for s in known)) if len(known) == len(spreads) else None


@dataclass(frozen=True)
class Claim:
    text: str
    facts: tuple[Fact, ...]  # all of them must hold
    ours: bool = False  # a question of ours that the paper does not speak of


@dataclass(frozen=True)
class Judgement:
    claim: Claim
    verdict: Verdict
    certainty: str  # how much the seeds have to say about it; empty if not measured
    figures: Mapping[At, Cell]


def ahead(one: At, other: At, by: float = 0.0) -> Fact:
    """One is above the other, by more than `by`."""
    return Fact((one,), (other,), low=by)


def close(one: At, other: At, margin: float) -> Fact:
    return Fact((one,), (other,), -margin, margin)


def at_most_behind(one: At, other: At, margin: float) -> Fact:
    """One may be below the other by less than `margin`, or above."""
    return Fact((one,), (other,), low=-margin)


def gains_more(better: At, worse: At, *, than: tuple[At, At]) -> Fact:
    """The distance between two figures is larger than that between two others."""
    return Fact((better, than[1]), (worse, than[0]))


def equals(one: At, figure: float, margin: float = 0.5) -> Fact:
    return Fact((one,), (), figure - margin, figure + margin)


def judge(claim: Claim, cells: Mapping[At, Cell]) -> Judgement:
    """`cells`: our figures, where there are any."""
    places = dict.fromkeys(at for fact in claim.facts for at in fact.places)
    known = {at: cells[at] for at in places if at in cells}
    if len(known) < len(places):
        return Judgement(claim, "not measured", "", known)
    margins = [fact.margin(known) for fact in claim.facts]
    holds = all(margin > 0 for margin in margins)
    deciding = [
        (margin, fact.spread(known))
        for margin, fact in zip(margins, claim.facts, strict=True)
        if holds or margin <= 0
    ]
    return Judgement(
        claim, "holds" if holds else "does not hold", _certainty(deciding, holds), known
    )


def _certainty(deciding: list[tuple[float, float | None]], holds: bool) -> str:
    """A claim holds clearly if all its facts do; one fact that clearly fails fells it clearly."""
    if any(spread is None for _, spread in deciding):
        return "one seed"
    clear = [abs(margin) > (spread or 0.0) for margin, spread in deciding]
    return "clearly" if (all(clear) if holds else any(clear)) else "within 2 sd"
