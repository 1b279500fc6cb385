"""Shapley values: what each of several parties contributes to a score.

The score of a coalition is that of the trained model when only the columns of its parties are
heard. A party's Shapley value is the mean, over all orders in which the parties could come, of how
much the score rises when the party comes. The values of all parties add up to the score with all of
them minus the score with none (Shapley, "A value for n-person games", 1953).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from colonnade.common.seeds import numpy_stream

EXACT = 10  # parties; with more, orders are sampled
ORDERS = 64  # that are sampled, unless more or fewer are asked for

Score = Callable[[frozenset[str]], float]  # of those whose columns are heard; higher is better


@dataclass(frozen=True)
class Shapley:
    values: dict[str, float]
    errors: dict[str, float] | None  # standard errors; None: the values are exact
    full: float  # score of all parties
    empty: float  # score of none
    without: dict[str, float]  # score of all but one

    def error(self, party: str) -> float | None:
        return None if self.errors is None else self.errors[party]


def evaluations(parties: int, orders: int = ORDERS) -> int:
    """How many coalitions are scored, at most."""
    if parties <= EXACT:
        return 2**parties
    return 2 + parties + _pairs(orders) * 2 * (parties - 1)


def shapley(
    parties: Sequence[str], score: Score, *, orders: int = ORDERS, seed: int = 0
) -> Shapley:
    """Exact for up to 10 parties; else over sampled orders, each of them forwards and backwards,
    which takes out much of the chance. No coalition is scored twice."""
    known: dict[frozenset[str], float] = {}

    def scored(coalition: frozenset[str]) -> float:
        if coalition not in known:
            known[coalition] = score(coalition)
        return known[coalition]

    everyone = frozenset(parties)
    full, empty = scored(everyone), scored(frozenset())
    without = {party: scored(everyone - {party}) for party in parties}
    if len(parties) <= EXACT:
        return Shapley(_exact(parties, scored), None, full, empty, without)
    values, errors = _sampled(parties, scored, orders, seed)
    return Shapley(values, errors, full, empty, without)


def _exact(parties: Sequence[str], score: Score) -> dict[str, float]:
    count = len(parties)
    members = [[i for i in range(count) if mask >> i & 1] for mask in range(2**count)]
    scores = np.array([score(frozenset(parties[i] for i in some)) for some in members])
    sizes = np.array([len(some) for some in members])
    weights = np.array([1 / (count * comb(count - 1, size)) for size in range(count)])
    found = {}
    for i, party in enumerate(parties):
        before = np.array([mask for mask in range(2**count) if not mask >> i & 1])
        rises = scores[before | 1 << i] - scores[before]
        found[party] = float(weights[sizes[before]] @ rises)
    return found


def _sampled(
    parties: Sequence[str], score: Score, orders: int, seed: int
) -> tuple[dict[str, float], dict[str, float]]:
    stream, count = numpy_stream(seed, "orders of parties"), _pairs(orders)
    rises = np.zeros((count, len(parties)))
    for pair in rises:
        order: list[int] = stream.permutation(len(parties)).tolist()
        for one in (order, order[::-1]):
            heard, before = frozenset[str](), score(frozenset())
            for i in one:
                heard |= {parties[i]}
                after = score(heard)
                pair[i] += (after - before) / 2
                before = after
    errors = rises.std(0, ddof=1) / np.sqrt(count)
    return (
        dict(zip(parties, rises.mean(0).tolist(), strict=True)),
        dict(zip(parties, errors.tolist(), strict=True)),
    )


def _pairs(orders: int) -> int:
    return max(2, -(-orders // 2))  # one pair alone would have no error
