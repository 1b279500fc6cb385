"""Leading a program, and following its leader: at which round a party goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from colonnade.network.clock import SECOND
from colonnade.network.live.commits import WINDOW
from colonnade.network.live.generations import LedProgram
from colonnade.network.live.messages import NACK
from colonnade.network.live.peers import Peer
from colonnade.network.live.post import Post
from colonnade.network.live.waiting import AGAIN, Missing, Rejoin
from colonnade.network.program_counter import END, MAIN, ProgramCounter, after_rounds

if TYPE_CHECKING:
    from colonnade.network.live.network import Live

log = logging.getLogger(__name__)

LOOK_ROUND = SECOND  # so long a restarted leader listens before it goes on

Fresh = Callable[[], "Live"]  # a network for another attempt at the program
Run = Callable[["Live"], Coroutine[Any, Any, Any]]


class Siblings:
    """Programs that run side by side at one party. Each ends when all of them are done: until then
    its leader may crash, return and take up rounds that it has not kept."""

    def __init__(self, count: int) -> None:
        self.running = count

    async def run(self, post: Post, program: Coroutine[Any, Any, Any]) -> None:
        await program
        self.end(post)

    def end(self, post: Post) -> None:
        self.running -= 1
        post.news.notify()

    async def wait(self, net: Live, leader: str) -> None:
        """This party is done with its part of a program that another one leads."""
        over = net.origin.at(END, 0)
        await net.attend(lambda: net.post.peers[leader].reached(over), lambda: [leader])
        self.end(net.post)
        try:
            await net.attend(lambda: not self.running, list)
        except Rejoin:
            self.running += 1
            raise


async def lead(post: Post, led: LedProgram, fresh: Fresh, run: Run, resume_at: int) -> Any:
    """Run a program that this party leads, in a new generation, from a round on."""
    limit = post.clock.now + (LOOK_ROUND if led.origin else 0)  # the main program has gathered
    while any(k.there and not k.positions for k in post.peers.values()) and post.clock.now < limit:
        await post.clock.wait(post.news, limit)
    post.lead(led, after_rounds(led.origin, min(resume_at, END)))
    net = fresh()
    net.resume_at = resume_at
    result = await run(net)
    finish(post, led.origin)
    return result


def finish(post: Post, origin: ProgramCounter = MAIN) -> None:
    """Tell everybody that the program is over here."""
    post.reach(origin.at(END, 0))
    post.beat_all()


async def follow(
    post: Post,
    led: LedProgram,
    fresh: Fresh,
    run: Run,
    *,
    resume_at: int = 0,
    own_rounds: range = range(0),
    around: Live | None = None,
    siblings: Siblings | None = None,
) -> Any:
    """Run a program from its leader's round on, again whenever the leader begins anew. `around`:
    the network on which the program was started side by side with its `siblings`. `resume_at` and
    `own_rounds`: see `take_part`."""
    leader = post.peers[led.leader or ""]
    joined = 0  # the generation this party has taken part in
    mine = resume_at  # the round that this party would do next by itself
    while True:
        await _wait_for_leader(post, led, leader, around)
        net = fresh()
        ahead = leader.positions.rounds_done(led.origin)
        early = 0 if joined == led.generation else WINDOW  # so much it may be ahead of us
        theirs = max(led.start.rounds_done(led.origin), ahead - early)
        net.resume_at = entry(mine, theirs, own_rounds) if mine < own_rounds.stop else theirs
        net.own_rounds = own_rounds
        joined = led.generation
        led.mail.passed.clear()
        try:
            result = await run(net)
            if siblings is not None:
                finish(post, led.origin)
                await siblings.wait(net, led.leader or "")
            return result
        except Rejoin as rejoin:
            if rejoin.net is not net:
                raise
            log.info("%s: %s: going on from the round of %s", post.party, net.program, led.leader)
        mine = max(mine, net.rounds_begun)


async def _wait_for_leader(post: Post, led: LedProgram, leader: Peer, around: Live | None) -> None:
    """Until the leader has begun and told where it is, or has passed the program."""
    ask_at, missing = post.clock.now + AGAIN, Missing(post)
    while True:
        if around is not None:
            around.check_generation()
        begun = any(counter.inside(led.origin) for counter in leader.positions.values())
        if (led.generation and begun) or leader.positions.rounds_done(led.origin) >= END:
            return
        missing.say([led.leader or ""])
        if post.clock.now >= ask_at:
            ask_at = post.clock.now + AGAIN
            if leader.there:
                post.tell(led.leader or "", NACK, led.origin.at(0, 0))
        await post.clock.wait(post.news, ask_at)


def entry(mine: int, theirs: int, own_rounds: range) -> int:
    """Where to go on: with the others, but not past rounds that this party does by itself."""
    return max(mine, min(theirs, own_rounds.start) if mine < own_rounds.stop else theirs)
