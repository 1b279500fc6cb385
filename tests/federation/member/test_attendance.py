"""Who took part in how many rounds: the totals are those of the training."""

from __future__ import annotations

from colonnade.federation.member.attendance import Attendance


def test_rounds_that_are_done_again_count_once() -> None:
    attendance = Attendance("server", ("client0", "client1"))
    for round in [0, 1, 2, 3, 2, 3, 4]:  # the label holder fell after round 3, and took up round 2
        attendance.count(round, ["client0"] if round == 2 else ["client0", "client1"])
    assert attendance.rounds == 5
    assert attendance.notes() == ["client1: 4 of 5 rounds"]


def test_a_party_that_was_away_says_that_it_tells_of_the_rounds_it_saw() -> None:
    """Its own line names all rounds of the training, as the table does."""
    attendance = Attendance("client0", ("client1",))
    for round in range(40):
        if not 10 <= round < 22:
            attendance.count(round, [] if round in (3, 4) else ["client1"])
    assert attendance.own_notes() == ["client0: 28 of 40 rounds"]
    assert attendance.notes() == ["client1: 26 of 28 rounds that client0 saw"]
