"""Leading a program, and following its leader: at which round a party goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from colonnade.network.clock import SECOND
from colonnade.network.live.commits import WINDOW
from colonnade.network.live.generations import LedProgram
from colonnade.network.live.messages import NACK
from colonnade.network.live.peers import Past, Peer
from colonnade.network.live.post import Post
from colonnade.network.live.waiting import ASK_EVERY, Over, Rejoin, WaitLog
from colonnade.network.program_counter import (
    BEGINNING,
    END,
    MAIN,
    ProgramCounter,
    after_rounds,
)

if TYPE_CHECKING:
    from colonnade.network.live.network import Live

log = logging.getLogger(__name__)

LISTEN_FIRST = SECOND  # for which a restarted leader listens before it goes on

NewNetwork = Callable[[], "Live"]  # makes the network for an attempt at the program
Run = Callable[["Live"], Coroutine[Any, Any, Any]]


class Siblings:
    """Programs that run side by side at one party. Each ends when all of them are done: until then
    its leader may crash, return and take up rounds that it has not kept. The counter, if there is
    one, waits for no leader that is away once another program has ended and all others, too."""

    def __init__(
        self, around: Live, leaders: Mapping[int, str | None], counter: str | None
    ) -> None:
        """`around`: the network on which they were just started. `leaders`: by the number of the
        program, of those in which this party has a part."""
        self.post, self.leaders, self.counter = around.post, leaders, counter
        self.running = dict.fromkeys(leaders)
        self.origins: dict[int, ProgramCounter] = {}
        self.after = around.origin.at(around.rounds_begun, around.step + 1)  # when all have ended

    async def run(
        self, number: int, origin: ProgramCounter, program: Coroutine[Any, Any, Any]
    ) -> None:
        self.origins[number] = origin
        try:
            await program
        except Over:
            if self.leaders[number] == self.post.party:
                # Those who follow may be in a round of it: two leaders that returned while the
                # counter went on waited in each other's program for ever.
                self.post.reach(_given_up(origin))
                self.post.beat_all()
        self.end(number)

    def end(self, number: int) -> None:
        self.running.pop(number, None)
        self.post.news.notify()

    async def wait(self, net: Live, number: int) -> None:
        """This party is done with its part of a program that another one leads."""
        over, leader = net.origin.at(END, 0), self.leaders[number] or ""
        await net.wait_until(lambda: net.post.peers[leader].reached(over), lambda: [leader])
        self.end(number)
        try:
            await net.wait_until(lambda: not self.running, list)
        except Rejoin:
            self.running[number] = None
            raise

    def is_over(self, number: int) -> bool:
        """Whether a program ends here without its leader."""
        leader, peers = self.leaders[number], self.post.peers
        if self.counter is None or leader is None:
            return False
        if self.counter == self.post.party:
            some_ended = len(self.running) < len(self.leaders)
            return some_ended and not any(self._there(self.leaders[n]) for n in self.running)
        gone_on = peers[self.counter].reached(self.after)
        return gone_on and (
            leader == self.post.party
            or not self._there(leader)
            or peers[leader].reached(self.after)
            or peers[leader].reached(_given_up(self.origins[number]))
        )

    def _there(self, party: str | None) -> bool:
        return party == self.post.party or self.post.peers[party or ""].there


def _given_up(origin: ProgramCounter) -> ProgramCounter:
    """The position of a leader that has ended its program because the counter had gone on."""
    return origin.at(END, 1)


async def lead(
    post: Post, led: LedProgram, new_network: NewNetwork, run: Run, resume_at: int
) -> Any:
    """Run a program that this party leads, in a new generation, from round `resume_at` on."""
    # Before the main program, `take_part` has waited for the others already.
    limit = post.clock.now + (LISTEN_FIRST if led.origin else 0)
    while any(k.there and not k.positions for k in post.peers.values()) and post.clock.now < limit:
        await post.clock.wait(post.news, limit)
    while True:
        post.lead(led, after_rounds(led.origin, min(resume_at, END)))
        net = new_network()
        net.resume_at = resume_at
        try:
            result = await run(net)
        except Rejoin as rejoin:  # a decision of the counter was lost with its process
            if rejoin.net is not net:
                raise
            resume_at = max(resume_at, net.rounds_done)
        else:
            finish(post, led.origin)
            return result


def finish(post: Post, origin: ProgramCounter = MAIN) -> None:
    """Tell everybody that the program is over at this party."""
    post.reach(origin.at(END, 0))
    post.beat_all()


async def follow(
    post: Post,
    led: LedProgram,
    new_network: NewNetwork,
    run: Run,
    *,
    resume_at: int = 0,
    own_rounds: range = range(0),
    around: Live | None = None,
    siblings: Siblings | None = None,
    number: int = 0,
) -> Any:
    """Run a program from its leader's round on, again whenever the leader begins anew. `around`:
    the network on which the program was started side by side with its `siblings`, as which
    `number`. `resume_at` and `own_rounds`: see `take_part`."""
    leader = post.peers[led.leader or ""]
    joined = 0  # the newest generation in which this party has taken part
    mine = resume_at  # the round at which this party would go on by itself
    while True:
        await _wait_for_leader(post, led, leader, around, lambda: _over(siblings, number))
        net = new_network()
        ahead = leader.positions.rounds_done(led.origin)
        early = 0 if joined == led.generation else WINDOW  # rounds that the leader may be ahead
        theirs = max(led.start.rounds_done(led.origin), ahead - early)
        net.resume_at = entry_round(mine, theirs, own_rounds) if mine < own_rounds.stop else theirs
        net.own_rounds = own_rounds
        if led is post.main:
            post.joined_at = ahead
        joined = led.generation
        led.mail.passed.clear()
        try:
            result = await run(net)
            if siblings is not None:
                finish(post, led.origin)
                await siblings.wait(net, number)
            return result
        except Rejoin as rejoin:
            if rejoin.net is not net:
                raise
            log.info("%s: %s: going on from the round of %s", post.party, net.program, led.leader)
            if led is post.main and joined == led.generation:  # what it has sent may be in use
                position = max(post.before.position, post.positions.get(MAIN, BEGINNING))
                post.before = Past(position, post.weights)
        mine = max(mine, net.rounds_begun)


def _over(siblings: Siblings | None, number: int) -> bool:
    return siblings is not None and siblings.is_over(number)


async def _wait_for_leader(
    post: Post, led: LedProgram, leader: Peer, around: Live | None, over: Callable[[], bool]
) -> None:
    """Until the leader has begun and told where it is, or has passed the program. Raises `Over` if
    it is `over` without the leader."""
    ask_at = post.clock.now + ASK_EVERY
    wait_log = WaitLog(post, once=around is not None)  # side by side: again in every epoch
    while True:
        if around is not None:
            around.check_generation()
        begun = any(counter.inside(led.origin) for counter in leader.positions.values())
        passed = leader.positions.rounds_done(led.origin) >= END
        if passed or (led.generation and begun and post.knows(led.leader or "")):
            return
        if over():
            raise Over
        wait_log.log_if_due([led.leader or ""])
        if post.clock.now >= ask_at:
            ask_at = post.clock.now + ASK_EVERY
            if leader.there:
                post.tell(led.leader or "", NACK, led.origin.at(0, 0))
        await post.clock.wait(post.news, ask_at)


def entry_round(mine: int, theirs: int, own_rounds: range) -> int:
    """The round at which to go on: that of the others, but not beyond rounds that this party does
    by itself."""
    return max(mine, min(theirs, own_rounds.start) if mine < own_rounds.stop else theirs)
