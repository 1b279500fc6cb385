"""Two processes of one party: one of them counts, and the other one is told to end."""

from __future__ import annotations

import pytest
import torch

from colonnade.network import Group, World
from colonnade.network.clock import SECOND, Clock
from colonnade.network.live.messages import HEARTBEAT
from colonnade.network.live.post import Post
from colonnade.network.program_counter import MAIN
from colonnade.network.wire import Header, encode
from colonnade.testing.storm import Storm, Weather

CLIENTS = Group("clients", ("lab",), "client")
SERVER = Group("server", ("clinic",), "owner")
WORLD = World((CLIENTS, SERVER), CLIENTS)
GRACE = 3.0
CALM = Weather(delay=0.5, gust=0, duplicate=0, notice=20, ordered=True)


class Town:
    """A clinic that listens, and processes of a lab that come and go."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.storm = Storm(self.clock, 0, CALM)
        self.told: dict[int, list[int]] = {}  # by life of the lab: which life the clinic named
        self.changes: list[bool] = []
        self.clinic = self.process("clinic", 1)
        self.clinic.on_change = lambda party, there: self.changes.append(there)

    def process(self, party: str, life: int) -> Post:
        post = Post(WORLD, self.storm.seat(party), leader="clinic", life=life, grace=GRACE)
        post.greeting = f"life {life}"
        post.on_twice = lambda _, named: self.told.setdefault(life, []).append(named)
        post.listen()
        return post

    async def wait(self, seconds: float) -> None:
        await self.clock.sleep_until(self.clock.now + int(seconds * SECOND))


def letter(life: int, round: int) -> bytes:
    header = Header((round, 1), "clients", 0, "server", 0, "embedding", life=life)
    return encode(header, torch.full((1, 1), float(life)))


def beat(life: int) -> bytes:
    ends = ("everyone", 0, "everyone", 1)
    return encode(Header((life, 0), *ends, HEARTBEAT, nothing=True, life=life), None)


def read(post: Post, round: int) -> float | None:
    found = post.main.mail.letters.get((MAIN.at(round, 1), "clients", 0, "server", 0))
    return None if found is None else float(found)


def test_messages_of_the_first_process_count_and_both_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    town = Town()

    async def story() -> None:
        first = town.process("lab", 100)
        await town.wait(1)
        second = town.process("lab", 50)  # whatever its clock says
        await town.wait(1)
        for post in (first, second):
            post.transport.publish("clinic", letter(post.life, post.life))
        await town.wait(1)
        assert read(town.clinic, 100) == 100
        assert read(town.clinic, 50) is None
        assert not town.told
        await town.wait(GRACE)
        assert town.told == {100: [100], 50: [100]}
        assert town.changes == [True]
        await town.wait(2 * GRACE)
        assert len(town.told[50]) == 3, "one that stays is told again"

    town.clock.run(("story", story()))
    assert caplog.text.count("lab: a second process has its certificate") == 1


def test_a_process_that_was_started_again_counts_once_the_end_of_the_first_is_noticed() -> None:
    town = Town()
    heard: list[str] = []
    town.clinic.on_greeting = lambda sender, note: heard.append(note)

    async def story() -> None:
        first = town.process("lab", 100)
        await town.wait(1)
        # A power cut: nobody has seen yet that the first one is gone.
        town.storm.seats = [seat for seat in town.storm.seats if seat is not first.transport]
        second = town.process("lab", 200)
        await town.wait(1)
        second.tell("clinic", HEARTBEAT, MAIN.at(7, 0))
        await town.wait(0.1)
        assert "life 200" not in heard
        assert not town.clinic.peers["lab"].reached((7, 0))
        town.clinic.notice("lab", False, 100)
        assert town.changes == [True, False, True]
        assert "life 200" in heard, "what it said meanwhile is not lost"
        assert town.clinic.peers["lab"].reached((7, 0))
        town.clinic.receive("lab", letter(100, 3))  # it was on its way all the time
        second.transport.publish("clinic", letter(200, 4))
        await town.wait(2 * GRACE)
        assert read(town.clinic, 3) is None
        assert read(town.clinic, 4) == 200
        assert not town.told

    town.clock.run(("story", story()))


def test_a_process_that_stood_still_and_was_replaced_is_the_second_one_when_it_goes_on() -> None:
    town = Town()

    async def story() -> None:
        town.process("lab", 100)
        await town.wait(1)
        town.clinic.notice("lab", False, 100)  # its lease is over
        town.process("lab", 200)
        await town.wait(1)
        town.clinic.notice("lab", True, 100)
        await town.wait(GRACE + 1)
        assert town.told == {100: [200], 200: [200]}

    town.clock.run(("story", story()))


def test_what_a_second_process_writes_counts_against_the_quota_of_its_party() -> None:
    town = Town()
    quota = town.clinic.quota
    quota.bytes = 2**20

    async def story() -> None:
        town.process("lab", 100)
        await town.wait(1)
        ends = ("everyone", 0, "everyone", 1)
        header = Header((7, 0), *ends, HEARTBEAT, nothing=True, life=200, note="€" * 50_000)
        for _ in range(100):
            town.clinic.receive("lab", encode(header, None))
        assert 2**19 < quota.held("lab") <= 2**20
        assert quota.drops.total > 80
        town.clinic.notice("lab", False, 100)
        town.clinic.notice("lab", True, 300)
        assert quota.held("lab") == 0

    town.clock.run(("story", story()))


def test_no_number_of_processes_fills_the_memory() -> None:
    town = Town()

    async def story() -> None:
        town.process("lab", 100)
        await town.wait(1)
        for life in range(1000, 3000):
            town.clinic.notice("lab", True, life)
            town.clinic.receive("lab", letter(life, 3))
            town.clinic.receive("lab", beat(life))

    town.clock.run(("story", story()))
    lives = town.clinic.peers["lab"].lives
    assert len(lives.present) < 20
    assert town.clinic.quota.held("lab") < 2**20
    assert not town.clinic.main.mail.letters
