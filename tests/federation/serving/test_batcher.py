"""Requests that are asked together, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.federation.serving.fake_party import FakeParty
from tests.federation.serving.virtual_time import run

from colonnade.federation.member.prediction_requests import Predicted
from colonnade.federation.member.stage import Stage
from colonnade.federation.serving.api import NotReady, response
from colonnade.federation.serving.batcher import Batcher, Full, Late
from colonnade.federation.serving.settings import Limits


async def ask_all(batcher: Batcher, *requests: tuple[list[str], float]) -> list[Any]:
    tasks = [batcher.predict(keys, seconds) for keys, seconds in requests]
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_requests_that_come_together_are_one_question() -> None:
    party = FakeParty()
    batcher = Batcher(party.ask)
    found = run(ask_all(batcher, *[([str(i), "7"], 1.0) for i in range(50)]))
    assert len(party.asked) == 1
    assert party.asked[0].ids == ["0", "7", *(str(i) for i in range(1, 50) if i != 7)]
    for i, answer in enumerate(found):
        rows = response("hospital", [str(i), "7"], answer).rows
        assert [row.key for row in rows] == [str(i), "7"]
        assert rows[0].probabilities == {"no": i / 1000, "yes": 1 - i / 1000}
    assert batcher.counts.requests == 50
    assert batcher.rows == 0


def test_requests_that_come_while_one_is_asked_are_asked_together_afterwards() -> None:
    party = FakeParty(takes=0.1)
    batcher = Batcher(party.ask)

    async def story() -> None:
        first = asyncio.create_task(batcher.predict(["1"], 1.0))
        await asyncio.sleep(0.05)
        await asyncio.gather(first, *[batcher.predict([str(i)], 1.0) for i in range(9)])

    run(story())
    assert [len(asked.ids or []) for asked in party.asked] == [1, 9]


def test_a_question_holds_no_more_rows_than_a_federation_takes_at_once() -> None:
    party = FakeParty()
    many = [str(i) for i in range(600)]
    run(ask_all(Batcher(party.ask), (many, 1.0), (many[::-1], 1.0), (["1"], 1.0)))
    assert [len(asked.ids or []) for asked in party.asked] == [601 - 1, 600]


def test_who_finds_no_room_is_told_at_once_and_the_others_are_answered() -> None:
    party = FakeParty(takes=0.1)
    batcher = Batcher(party.ask, Limits(room=3))
    found = run(ask_all(batcher, *[([str(i)], 1.0) for i in range(5)]))
    assert [type(one) for one in found] == [Predicted] * 3 + [Full] * 2
    assert batcher.counts.full == 2
    assert run(ask_all(batcher, (["1"], 1.0)))[0].ids == ["1"], "there is room again"


def test_a_request_ends_by_its_deadline_and_leaves_no_trace() -> None:
    party = FakeParty(takes=10.0)
    batcher = Batcher(party.ask)

    async def story() -> None:
        found = await ask_all(batcher, (["1"], 0.5), (["2"], 20.0), (["3"], 0.6))
        assert [type(one) for one in found] == [Late, Predicted, Late]
        assert batcher.rows == 0

    run(story())
    assert batcher.counts.late == 2


def test_a_request_in_a_hurry_does_not_hurry_the_others() -> None:
    """What it is asked with is answered by the parties that are quick enough."""
    party = FakeParty(takes=0.01)
    run(ask_all(Batcher(party.ask), (["1"], 0.1), (["2"], 5.0), (["3"], 0.15)))
    assert [asked.ids for asked in party.asked] == [["1", "3"], ["2"]]
    hurried, other = (asked.seconds or 0 for asked in party.asked)
    assert hurried < 0.1
    assert other > 2


def test_a_party_that_is_not_ready_is_told_to_all_who_ask() -> None:
    party = FakeParty()
    party.stage = Stage.TRAINING
    found = run(ask_all(Batcher(party.ask), (["1"], 1.0), (["2"], 1.0)))
    assert [str(one) for one in found] == ["hospital is not ready: training, round 3"] * 2
    assert all(isinstance(one, NotReady) for one in found)


@pytest.mark.parametrize("seed", range(5))
def test_every_request_is_answered_or_told_why_not(seed: int) -> None:
    """Whatever comes when: nobody waits beyond the deadline, and nothing stays behind."""
    import random

    draw = random.Random(seed)
    party = FakeParty(takes=draw.choice([0.0, 0.02, 0.3]))
    batcher = Batcher(party.ask, Limits(room=60))

    async def one(loop: asyncio.AbstractEventLoop) -> None:
        await asyncio.sleep(draw.random())
        keys = [str(draw.randrange(2000)) for _ in range(draw.randrange(1, 20))]
        begun, seconds = loop.time(), draw.choice([0.02, 0.2, 2.0])
        try:
            found = await batcher.predict(keys, seconds)
        except (Full, Late):
            assert loop.time() - begun <= seconds + 1e-9
        else:
            rows = response("hospital", keys, found).rows
            assert [row.status for row in rows] == [200 if len(k) < 4 else 404 for k in keys]

    async def story() -> None:
        await asyncio.gather(*[one(asyncio.get_running_loop()) for _ in range(200)])
        assert batcher.rows == 0
        assert not batcher.queue

    run(story())
