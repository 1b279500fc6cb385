"""Two programs side by side, each with a leader of its own, under seeded schedules of crashes,
restarts, delays, duplicates and reordering.

A failing schedule prints its seed; `explain(seed)` replays it.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch

from colonnade.network import (
    ABSENT,
    ALL,
    EVERYONE,
    LATEST,
    Channel,
    Group,
    Inbox,
    Program,
    World,
    first,
    locally,
)
from colonnade.network.clock import SECOND
from colonnade.network.live.following import finish
from colonnade.network.live.joining import take_part
from colonnade.network.live.network import Live
from colonnade.network.live.post import Post
from colonnade.network.program_counter import ProgramCounter
from colonnade.testing.storm import Crew, StormSeat

SCHEDULES = 100  # `python -m bench storms` runs 250
PARTS = 5

CLIENTS = Group("clients", ("a", "b"), "client")
ACTIVE = (Group("first", ("s",), "owner"), Group("second", ("t",), "owner"))
WORLD = World((CLIENTS, *ACTIVE), CLIENTS)


class Leaders:
    """Clients send to both active parties, and each active party leads a program of its own. Each
    message says who sent it, when, in which program, and in which generation."""

    def __init__(self, seed: int) -> None:
        random = Random(seed * 7 + 1)
        self.main_leader = random.choice(["s", None, "a"])
        self.rounds = [random.choice([3, 6, 12]) for _ in ACTIVE]
        self.before = random.choice([0, 0, 3])  # rounds before the programs start
        self.up = random.choice([ALL, ALL, EVERYONE, first(1)])
        self.kept: dict[str, tuple[int, dict[ProgramCounter, int]]] = {}  # by party
        self.used: dict[tuple[Any, ...], int] = {}  # messages, and how often they were used
        self.begun: list[tuple[int, str, int]] = []  # when a leader began a round of which program
        self.done: set[str] = set()  # parties
        self.crew = Crew(seed, WORLD.parties, self.live)

    async def live(self, seat: StormSeat, life: int) -> None:
        """What a process does."""
        party, started = seat.party, seat.clock.now // 1000 + 1
        post = Post(WORLD, seat, leader=self.main_leader, life=started)
        rounds, by_program = self.kept.get(party, (0, {}))
        by_program = dict(by_program)

        async def program(net: Live) -> None:
            def keep(done: int) -> None:
                if net.rounds_begun % 3 == 0 or net.rounds_by_program:
                    self.kept[party] = (done, dict(net.rounds_by_program))

            net.watch = keep
            net.watch_side_by_side = lambda child: keep(net.rounds_begun)
            await self.train(net, life)

        post.listen()
        self.done.discard(party)
        while True:
            await take_part(
                post,
                program,
                resume_at=rounds,
                rounds_by_program=by_program,
                gather=5.0,
                patience=0.5,
            )
            finish(post)
            self.done.add(party)
            if len(self.done) == len(WORLD.parties):  # nobody crashes any more
                self.crew.results |= dict.fromkeys(WORLD.parties)
            if not await self.taken_up_again(post):
                return
            self.done.discard(party)

    async def taken_up_again(self, post: Post) -> bool:
        """Whether the leader of the main program crashed and began anew before all were done."""
        generation = post.generation
        while len(self.done) < len(WORLD.parties):
            if post.generation != generation:
                return True
            await post.clock.sleep_until(post.clock.now + SECOND // 10)
        return False

    async def train(self, net: Live, life: int) -> None:
        async for _ in net.rounds(range(self.before)):
            await self.exchange(net, ACTIVE[0], -1, life)

        def lead_by(k: int) -> Program:
            async def run(child: Live) -> None:
                async for round in child.rounds(range(self.rounds[k])):
                    if child.here(ACTIVE[k]):
                        self.begun.append((child.clock.now, child.party, k))
                    await self.exchange(child, ACTIVE[k], k, life)
                    await self.note(child, ACTIVE[k], k, life)
                    if round % 3 == 2:
                        mine = self.stamp(child, ACTIVE[k], k, life)
                        decided = locally(lambda m: m[0, 0, 4:5], mine)
                        (told,) = await child.agree(decided, ACTIVE[k], 1)
                        assert told == child.rounds_begun, "a decision of another round"

            return Program(run, ACTIVE[k])

        await net.concurrently(lead_by(0), lead_by(1))

    async def exchange(self, net: Live, leader: Group, program: int, life: int) -> None:
        """There and back."""
        value = self.stamp(net, CLIENTS, program, life)
        channel = Channel(CLIENTS, leader, "up", 7, numbers="int64")
        inbox = await net.send(value, channel, 1, wait=self.up)
        locally(lambda i: self.check(i, CLIENTS, program, net), inbox)
        back = await net.send(
            self.stamp(net, leader, program, life),
            Channel(leader, CLIENTS, "back", 7, numbers="int64"),
            1,
            wait=self.up if self.up is EVERYONE else ALL,
        )
        locally(lambda i: self.check(i, leader, program, net), back)

    async def note(self, net: Live, leader: Group, program: int, life: int) -> None:
        """Registers, of the same kind in both programs."""
        value = self.stamp(net, leader, program, life)
        channel = Channel(leader, CLIENTS, "note", 7, numbers="int64")
        inbox = await net.send(value, channel, 1, wait=LATEST)
        locally(lambda i: self.check(i, leader, program, net, register=True), inbox)

    def stamp(self, net: Live, group: Group, program: int, life: int) -> Any:
        """[members here, 1, 7]: who, in which of its lives, program, generation, exchange, when."""
        exchange = (net.at[-2], net.at[-1] + 1)
        number = WORLD.parties.index
        rows = [
            [[number(group.parties[i]), life, program, net.generation, *exchange, net.clock.now]]
            for i in net.here(group)
        ]
        return torch.tensor(rows, dtype=torch.int64) if rows else ABSENT

    def check(
        self, inbox: Inbox, src: Group, program: int, net: Live, register: bool = False
    ) -> None:
        for slot in inbox.arrived[0].nonzero()[:, 0].tolist():
            message = tuple(inbox.value[0, slot, 0].tolist())
            sender, life, of, generation, *exchange, when = message
            party = WORLD.parties[sender]
            assert party == src.parties[slot], "by another party"
            sent_by = self.crew.lives[party][life]
            assert sent_by.begun <= when
            assert sent_by.ended is None or when <= sent_by.ended, "from the dead"
            assert of == program, "of another program"
            if not register:  # a register holds what was written last, whenever that was
                assert tuple(exchange) == net.at[-2:], "of another round"
                assert generation == net.generation, "of another generation"
            me = (net.party, len(self.crew.lives[net.party]), id(net))
            key = (*me, *message, register)
            self.used[key] = self.used.get(key, 0) + 1
            assert self.used[key] == 1, "twice"


def explain(seed: int) -> Leaders:
    """One schedule, from its seed."""
    leaders = Leaders(seed)
    leaders.crew.run(crashes=Random(seed).choice([0, 1, 3, 8]))
    for k, active in enumerate(ACTIVE):
        (done,) = (n for o, n in leaders.kept[active.parties[0]][1].items() if o[-1] == ~k)
        assert done >= leaders.rounds[k], "a leader ended before its program"
    return leaders


@pytest.mark.parametrize("part", range(PARTS))
def test_both_programs_end_whatever_happens_and_nothing_is_mixed(part: int) -> None:
    used = 0
    for seed in range(part, SCHEDULES, PARTS):
        try:
            used += len(explain(seed).used)
        except Exception as error:
            raise AssertionError(f"schedule {seed} failed: {error!r}") from error
    assert used > 30 * SCHEDULES // PARTS  # they do not finish by never hearing each other


def test_the_same_seed_gives_the_same_history() -> None:
    for seed in (3, 17):
        one, two = explain(seed), explain(seed)
        assert (one.crew.clock.now, one.begun) == (two.crew.clock.now, two.begun)


@pytest.mark.parametrize("main_leader", ["s", "t", "a", None])
@pytest.mark.parametrize("fallen", range(2))
def test_a_leader_that_falls_stops_its_own_program_only(
    fallen: int, main_leader: str | None
) -> None:
    """One leader is away for a minute. The other program ends meanwhile; that of the fallen leader
    waits, and goes on from the leader's checkpoint when it is back."""
    leaders = Leaders(0)
    leaders.main_leader, leaders.before, leaders.up = main_leader, 0, ALL
    leaders.rounds, (party,), clock = [60, 60], ACTIVE[fallen].parties, leaders.crew.clock

    def rounds_of(program: int) -> list[int]:
        return [when for when, _, k in leaders.begun if k == program]

    def crash_in_the_middle() -> None:
        if len(rounds_of(fallen)) >= 10:
            leaders.crew.crash(party, clock.now + 60 * SECOND)
        else:
            clock.call_at(clock.now + SECOND // 1000, crash_in_the_middle)

    crash_in_the_middle()
    leaders.crew.run(crashes=0)
    first_life, second_life = leaders.crew.lives[party]
    assert first_life.ended is not None
    away = [when for when in rounds_of(1 - fallen) if first_life.ended < when < second_life.begun]
    assert len(away) > 5, "the other program goes on"
    assert max(rounds_of(1 - fallen)) < second_life.begun, "and ends"
    resumed = [when for when in rounds_of(fallen) if when > second_life.begun]
    assert 45 <= len(resumed) <= 55, "from the checkpoint, not from the beginning"
