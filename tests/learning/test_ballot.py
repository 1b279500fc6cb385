"""Which version of the model is the best: among those that are kept, and by whom."""

from __future__ import annotations

from typing import Any

from colonnade.learning.versions import Ballot

PARTIES = ["server", "client0", "client1"]


class Company:
    """A network on which some are missing, and everybody keeps what it took part in."""

    now, round = 0, 0

    def __init__(self, *missing: str) -> None:
        self.gone = missing

    def missing(self) -> tuple[str, ...]:
        return self.gone

    def lacking(self, version: Any, company: Any) -> list[str]:
        return []

    def away_since(self, time: float, parties: Any) -> list[str]:
        return []


def ballot(*measured: tuple[float, tuple[str, ...]]) -> tuple[int, int | None]:
    """The rounds of the best and of the best committed version."""
    found, best, sure = Ballot(PARTIES), None, None
    for round, (accuracy, missing) in enumerate(measured):
        net: Any = Company(*missing)
        found.add(net, (1, round), accuracy, 1 - accuracy, error=0.02)
        best, sure = found.settle(net)
    assert best is not None
    return best.version[1], sure and sure.version[1]


def test_a_version_of_all_wins_over_one_that_is_better_by_chance() -> None:
    assert ballot((0.95, ()), (0.96, ("client1",))) == (0, 0)
    assert ballot((0.96, ("client1",)), (0.95, ())) == (1, 1)


def test_a_version_that_is_much_better_wins_though_somebody_lacks_it() -> None:
    assert ballot((0.90, ()), (0.96, ("client1",))) == (1, 1)


def test_among_versions_of_all_the_better_one_wins() -> None:
    assert ballot((0.95, ()), (0.96, ()), (0.955, ())) == (1, 1)
