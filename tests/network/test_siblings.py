"""Programs side by side that the counter has ended while a leader of one of them was away."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from colonnade.experiments.run import drive
from colonnade.network.live.following import Siblings
from colonnade.network.live.peers import Peer
from colonnade.network.live.waiting import Over
from colonnade.network.program_counter import MAIN, ProgramCounter

START = MAIN.at(9, 1)  # where the programs were started
LEADERS = {0: "north", 1: "south"}


class Bank:
    """What programs side by side ask of the post of a party; `others` hear of its positions."""

    def __init__(self, party: str, others: list[Bank]) -> None:
        self.party, self.others = party, others
        self.peers = {name: Peer(there=True) for name in ("north", "south", "centre")}
        self.news: Any = SimpleNamespace(notify=lambda: None)
        self.told: list[ProgramCounter] = []

    def reach(self, counter: ProgramCounter) -> None:
        self.told.append(counter)

    def beat_all(self) -> None:
        for other in self.others:
            for counter in self.told:
                other.peers[self.party].positions.advance(counter)

    def programs(self) -> Siblings:
        around: Any = SimpleNamespace(post=self, origin=MAIN, rounds_begun=9, step=1)
        found = Siblings(around, LEADERS, "centre")
        found.origins |= {number: START.beside(number) for number in LEADERS}
        return found


async def given_up() -> None:
    raise Over


def test_two_leaders_that_return_when_the_counter_has_gone_on_do_not_wait_for_each_other() -> None:
    """Each is in a round of the other's program, and has ended its own one: the counter will not
    answer any more. They waited for each other for ever."""
    banks: list[Bank] = []
    banks += [Bank(party, banks) for party in LEADERS.values()]
    programs = [bank.programs() for bank in banks]
    for number, bank in enumerate(banks):
        bank.reach(START.beside(number).at(3, 1))
        bank.beat_all()
        bank.peers["centre"].positions.advance(MAIN.at(9, 6))
        assert programs[number].is_over(number), "its own program"
    assert not programs[0].is_over(1), "a round of a leader that is there, and has not ended it"
    for number in LEADERS:
        drive(programs[number].run(number, START.beside(number), given_up()))
    assert programs[0].is_over(1)
    assert programs[1].is_over(0)
