"""Shapley values against answers that are known otherwise."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.learning import coalitions
from colonnade.learning.coalitions import Score, evaluations, shapley

worths = st.lists(st.floats(-10, 10), min_size=1, max_size=6)


def names(count: int) -> list[str]:
    return [f"client{i}" for i in range(count)]


def random_game(count: int, seed: int) -> Score:
    """A score for every coalition, drawn at random."""
    known: dict[frozenset[str], float] = {}
    stream = np.random.default_rng(seed)
    return lambda coalition: known.setdefault(coalition, float(stream.normal()))


@pytest.fixture
def _always_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalitions, "EXACT", 0)


@given(worths)
def test_in_an_additive_game_a_value_is_what_the_party_is_worth(worth: list[float]) -> None:
    parties = names(len(worth))
    by_party = dict(zip(parties, worth, strict=True))
    found = shapley(parties, lambda heard: 3 + sum(by_party[party] for party in heard))
    assert found.values == pytest.approx(by_party, abs=1e-9)


def test_what_two_parties_are_worth_together_only_is_shared_between_them() -> None:
    gloves = lambda heard: float(len(heard & {"client0", "client1"}) == 2)  # noqa: E731
    found = shapley(names(4), gloves)
    wanted = {"client0": 0.5, "client1": 0.5, "client2": 0.0, "client3": 0.0}
    assert found.values == pytest.approx(wanted)
    assert found.without == {"client0": 0.0, "client1": 0.0, "client2": 1.0, "client3": 1.0}


def test_exact_values_are_the_mean_over_all_orders() -> None:
    parties, score = names(5), random_game(5, 1)
    rises = dict.fromkeys(parties, 0.0)
    orders = list(permutations(parties))
    for order in orders:
        for place, party in enumerate(order):
            before = frozenset(order[:place])
            rises[party] += (score(before | {party}) - score(before)) / len(orders)
    assert shapley(parties, score).values == pytest.approx(rises)


@pytest.mark.parametrize("count", [1, 3, 10, 11, 14])
def test_values_add_up_to_the_score_with_all_minus_the_score_with_none(count: int) -> None:
    found = shapley(names(count), random_game(count, count), orders=6)
    assert (found.errors is None) == (count <= 10)
    assert sum(found.values.values()) == pytest.approx(found.full - found.empty)


@pytest.mark.usefixtures("_always_sampled")
def test_sampled_values_are_within_their_error_bars_of_the_exact_ones() -> None:
    misses = []
    for game in range(20):
        score = random_game(7, game)
        found = shapley(names(7), score, orders=100, seed=game)
        assert found.errors is not None
        exact = coalitions._exact(names(7), score)
        misses += [(found.values[p] - exact[p]) / found.errors[p] for p in names(7)]
    assert np.abs(misses).max() < 4.5
    assert 0.8 < np.std(misses) < 1.25  # errors are neither too small nor too large


def test_no_coalition_is_scored_twice_and_the_cost_is_known_beforehand() -> None:
    for count in (4, 12):
        asked: list[frozenset[str]] = []
        shapley(names(count), lambda heard, asked=asked: asked.append(heard) or 0.0, orders=8)
        assert len(asked) == len(set(asked)) <= evaluations(count, 8)
    assert evaluations(4) == 16
