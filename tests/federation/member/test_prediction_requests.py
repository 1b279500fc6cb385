"""Requests for predictions, in virtual time: rows that some parties refuse, deadlines, truths."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.agreement.party_file import PartyFile
from colonnade.federation.asking.predictions import read_answer
from colonnade.federation.member.leaderless import member_kind
from colonnade.federation.member.member import Member
from colonnade.federation.member.own_data import read_own
from colonnade.federation.member.prediction_requests import Asked, Predicted, Predictor, by_refusal
from colonnade.federation.member.stage import Stage
from colonnade.network.clock import SECOND, Clock
from colonnade.network.transport.memory import MemoryTransport

ALLOWED = 6


@cache
def federation(name: str, noise: bool = False) -> Federation:
    method: dict[str, Any] = {"algorithm": name, "epochs": 1}
    if noise:
        method["noise"] = {"clip": 1.0, "delta": 1e-5, "epsilon": 50.0, "releases": ALLOWED}
    data = {"dataset": "digits", "rows": 200, "parties": 3}
    network = {"gather": 5.0, "patience": 1.0}
    return parse_federation(
        {"name": "test", "data": data, "method": method, "network": network}, "test"
    )


class Room:
    """A trained federation whose parties answer, in virtual time."""

    def __init__(self, fed: Federation, folder: Path) -> None:
        self.fed, self.clock = fed, Clock()
        room = MemoryTransport(self.clock)
        self.members: dict[str, Member] = {
            p: member_kind(fed)(
                fed,
                read_own(PartyFile("test", fed, p, folder)),
                room.seat(p),
                folder / p,
                life=1,
            )
            for p in fed.members
        }
        self.asked = self.members[fed.speaker]

    def run(self, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            while any(m.state.stage not in (Stage.ANSWERING, Stage.TRAINED) for m in self.all()):
                await self.clock.sleep_until(self.clock.now + SECOND // 10)
            await story()

        for one in self.all():
            self.clock.spawn(one.live(), one.party)
        self.clock.run(("story", whole()))

    def all(self) -> list[Member]:
        return list(self.members.values())

    async def predict(self, ids: list[str], **more: Any) -> Predicted:
        replies: list[bytes] = []
        Predictor(self.asked, replies.append).begin(msgspec.json.encode(Asked(ids, **more)))
        while not replies:
            await self.clock.sleep_until(self.clock.now + SECOND // 100)
        return read_answer(replies[0], self.asked.party)


@pytest.mark.parametrize("name", ["splitnn", "fedvs", "mags"])
def test_a_party_that_lacks_a_row_has_its_part_in_all_other_rows(name: str, tmp_path: Path) -> None:
    room = Room(federation(name), tmp_path)

    async def story() -> None:
        whole = await room.predict(["1", "2", "3"])
        places = room.members["client1"].own.places
        assert isinstance(places, dict)
        del places["2"]
        found = await room.predict(["1", "2", "3", "x", "2"])
        assert found.unknown == ["x"]
        absent = dict(zip(found.ids, found.absent, strict=True))
        if name == "fedvs":  # it needs all three clients; the other rows are answered
            assert "need 3 of 3 clients" in found.failed["2"]
            assert absent == {"1": {}, "3": {}}
        else:
            assert absent == {"1": {}, "2": {"client1": "lacks 1 of 1 rows (2)"}, "3": {}}
        for one in ("1", "3"):
            same = [f.probabilities[f.ids.index(one)] for f in (whole, found)]
            assert same[0] == pytest.approx(same[1], abs=1e-5)

    room.run(story)


@pytest.mark.parametrize("name", ["splitnn", "mags"])
def test_a_row_whose_privacy_budget_is_used_up_does_not_block_the_others(
    name: str, tmp_path: Path
) -> None:
    """All parties are asked first: no other row leaves twice because of it."""
    room = Room(federation(name, noise=True), tmp_path)

    async def story() -> None:
        spent = [await room.predict(["5"]) for _ in range(ALLOWED)]
        others = [p for p in room.members if p.startswith("client")]
        assert spent[-1].absent[0].keys() == set(others)
        before = {p: room.members[p].budget for p in others}
        counts = {p: dict(b.count.answers) for p, b in before.items() if b is not None}
        found = await room.predict(["5", "6", "7"])
        absent = dict(zip(found.ids, found.absent, strict=True))
        assert absent["6"] == absent["7"] == {}
        assert set(absent["5"].values()) == {"the privacy budget of 1 of 1 rows (5) is used up"}
        for party, budget in before.items():
            assert budget is not None
            assert budget.count.answers == counts[party] | {"6": 1, "7": 1}

    room.run(story)


@pytest.mark.parametrize("name", ["splitnn", "dvfl", "mags"])
def test_an_answer_that_is_needed_soon_does_not_wait_for_a_silent_party(
    name: str, tmp_path: Path
) -> None:
    """A client that is there, and says nothing, is not waited for beyond the deadline."""
    room = Room(federation(name), tmp_path)

    async def story() -> None:
        silent = room.members["client1"]
        silent.transport.publish = lambda *_, **__: None  # pyright: ignore[reportAttributeAccessIssue]
        begun = room.clock.now
        found = await room.predict(["1", "2"], seconds=0.2)
        assert "client1" in found.absent[0]
        assert room.clock.now - begun <= 0.25 * SECOND
        begun = room.clock.now
        await room.predict(["1", "2"])
        assert room.clock.now - begun >= 0.4 * SECOND, "without a deadline, patience decides"

    room.run(story)


def test_truths_are_told_to_those_who_ask_for_them(tmp_path: Path) -> None:
    room = Room(federation("splitnn"), tmp_path)

    async def story() -> None:
        assert (await room.predict(["1", "2"])).truths == []
        found = await room.predict(["3", "1"], truths=True)
        y = room.asked.own.data.test.y
        assert found.truths == [str(int(y[2])), str(int(y[0]))]
        assert found.model.startswith("round ")
        assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in found.probabilities)

    room.run(story)


def test_a_party_that_is_not_trained_yet_says_at_which_stage_it_is(tmp_path: Path) -> None:
    room, replies = Room(federation("splitnn"), tmp_path), list[bytes]()
    Predictor(room.asked, replies.append).begin(b'{"ids": ["1"]}')
    found = msgspec.json.decode(replies[0], type=Predicted)
    assert found.stage == Stage.STARTING
    assert "is not ready: starting, round 0" in found.error


def test_rows_are_grouped_by_who_refuses_them() -> None:
    refused = {"lab": frozenset({1, 2}), "ward": frozenset({2, 9})}
    assert by_refusal(["a", "b", "c", "d"], refused) == [["a", "d"], ["b"], ["c"]]
    assert by_refusal(["a", "b"], {}) == [["a", "b"]]
