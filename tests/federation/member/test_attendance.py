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


def test_a_party_that_came_later_joined_at_a_round_and_one_below_a_half_is_warned_of() -> None:
    """The label holder's own notes, and those of rounds without labels, warn as well."""
    attendance = Attendance("server", ("lab", "clinic", "ward"))
    for round in range(1380):
        there = ["ward"] * (round != 5) + ["clinic"] * (round >= 690) + ["lab"] * (round >= 992)
        attendance.count(round, there)
    joined = "warning: lab: 388 of 1,380 rounds, joined at 992; the model knows little of it"
    half = "clinic: 690 of 1,380 rounds, joined at 690"
    assert attendance.notes() == [joined, half, "ward: 1,379 of 1,380 rounds"]
    attendance.alone |= {"lab": 49, "clinic": 50, "ward": 100}
    few, enough = attendance.notes(unlabelled=100)[3:]
    assert few == "warning: lab: 49 of 100 rounds without labels; the model knows little of it"
    assert enough == "clinic: 50 of 100 rounds without labels"


def test_a_party_that_lost_its_disk_did_not_join_then_but_began_again() -> None:
    attendance = Attendance("server", ("lab",))
    for round in range(100):
        if round == 60:
            assert attendance.begins_anew("lab", start=7, rounds=60)
        attendance.count(round, ["lab"])
    [note] = attendance.notes()
    assert note == (
        "warning: lab: 40 of 100 rounds, began again with new weights at 60; the model knows "
        "little of it"
    )
