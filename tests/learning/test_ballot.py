"""Which version of the model is the best: among those that are kept, and by whom."""

from __future__ import annotations

from copy import deepcopy
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

    def unheard(self, parties: Any) -> list[str]:
        return []

    def away_since(self, time: float, parties: Any) -> list[str]:
        return []

    def past_without(self, version: Any, parties: Any) -> list[str]:
        return []


class AfterRestart(Company):
    """The label holder has just started again. Some parties are away, so that nobody knows what
    they keep; others say that they keep nothing of earlier trainings."""

    def __init__(self, *gone: str, needed: bool = True, empty: tuple[str, ...] = ()) -> None:
        super().__init__(*gone)
        self.empty, self.needed = empty, needed

    def missing(self) -> tuple[str, ...]:
        return self.gone if self.needed else ()

    def lacking(self, version: Any, company: Any) -> list[str]:
        without = self.empty if version[0] == 1 else ()
        return [party for party in company if party in (*self.gone, *without)]

    def unheard(self, parties: Any) -> list[str]:
        return [party for party in parties if party in self.gone]

    def away_since(self, time: float, parties: Any) -> list[str]:
        return list(parties)


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


def restarted(net: Any, score: float = 0.46) -> tuple[int, int | None]:
    """A label holder had a committed version of all parties, starts again, and measures another
    one on this network."""
    before, after = Ballot(PARTIES), Ballot(PARTIES)
    calm: Any = Company()
    before.add(calm, (1, 10), 0.95, 0.05)
    before.settle(calm)
    after.restore(deepcopy(before.candidates))
    after.add(net, (2, 20), score, 1 - score)
    best, sure = after.settle(net)
    return best.version[1], sure and sure.version[1]


def test_a_party_that_is_away_when_the_label_holder_restarts_has_lost_nothing() -> None:
    assert restarted(AfterRestart("client1")) == (10, 10)


def test_a_party_that_returns_without_its_part_takes_the_version_along() -> None:
    assert restarted(AfterRestart(empty=("client1",))) == (20, 20)


def test_a_party_that_is_away_with_a_final_part_does_not_hold_up_better_versions() -> None:
    """As in DVFL, where the label holder learns from encodings that it has collected."""
    assert restarted(AfterRestart("client1", needed=False), score=0.97) == (20, 20)


class GoneOn(Company):
    """A network on which client1 has gone on without its part of version 0."""

    def lacking(self, version: Any, company: Any) -> list[str]:
        return ["client1"] if version[1] == 0 else []

    def past_without(self, version: Any, parties: Any) -> list[str]:
        return list(parties)


def test_a_version_that_somebody_went_on_without_is_not_waited_for() -> None:
    found = Ballot(PARTIES)
    net: Any = GoneOn()
    found.add(net, (1, 0), 0.9, 0.1)
    found.add(net, (1, 1), 0.8, 0.2)
    best, sure = found.settle(net)
    assert best is sure
    assert best.version == (1, 1)
