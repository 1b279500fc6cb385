"""Taking part in a program that other parties may have begun already."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from colonnade.network.clock import SECOND
from colonnade.network.live.commits import WINDOW
from colonnade.network.live.following import LISTEN_FIRST, entry_round, finish, follow, lead
from colonnade.network.live.messages import NACK
from colonnade.network.live.network import Live
from colonnade.network.live.post import Post
from colonnade.network.live.waiting import ASK_EVERY, WaitLog
from colonnade.network.program_counter import BEGINNING, END, MAIN, ProgramCounter

MAJORITY = 60.0  # seconds after which, without a leader, half of the neighbours are enough
# So long a leader that goes on from its checkpoint waits for parties that fell together with it: as
# long as a start takes.
RESTART = 3 * SECOND

RoundsByProgram = dict[ProgramCounter, int]


async def take_part(
    post: Post,
    program: Callable[[Live], Coroutine[Any, Any, Any]],
    *,
    resume_at: int = 0,
    rounds_by_program: RoundsByProgram | None = None,
    unlabelled: int = 0,
    own_rounds: range = range(0),
    gather: float | None = 60.0,
    patience: float = 1.0,
) -> Any:
    """Run a program to its end with the parties that are there, from the leader's round on, or,
    where nobody leads, from the neighbours' round on.

    `resume_at`: the round at which this party would go on by itself. `rounds_by_program`: the same
    for programs that run side by side (`Network.rounds_by_program`); it is updated. `unlabelled`:
    the first so many rounds go on while the leader is away; a leader that returns during them joins
    at the others' round. `own_rounds`: rounds that this party does by itself and never skips.
    `gather`: seconds that a leader, or any party where nobody leads, waits for the others before it
    begins without them. None: a leader waits without limit; where nobody leads, a party waits 60 s
    and then until half of its neighbours are there. Nobody waits
    so long for a training that has begun already. The post must be listening.
    """
    known = {} if rounds_by_program is None else rounds_by_program

    def new_network() -> Live:
        net = Live(post, patience=patience)
        net.rounds_by_program = known
        return net

    if post.leader is None:
        return await _among_equals(post, new_network, program, resume_at, own_rounds, gather)
    if not post.leads:
        return await follow(
            post, post.main, new_network, program, resume_at=resume_at, own_rounds=own_rounds
        )
    if resume_at < END - 1:  # after the training, parties that are away may have left for good
        await _gather(post, gather, begun=resume_at > 0)
    counters = [c for peer in post.peers.values() for c in peer.positions.values()]
    others = [counter.rounds_done(MAIN) for counter in counters if counter != BEGINNING]
    resume_at = max(resume_at, min([unlabelled, *others]) if others else 0)
    return await lead(post, post.main, new_network, program, resume_at)


async def _among_equals(
    post: Post,
    new_network: Callable[[], Live],
    program: Callable[[Live], Coroutine[Any, Any, Any]],
    resume_at: int,
    own_rounds: range,
    gather: float | None,
) -> Any:
    if resume_at < END - 1:  # after the training there is nothing to begin together
        limit = post.clock.now + int((MAJORITY if gather is None else gather) * SECOND)
        await _gather(post, gather)
        await _hear_of_all(post, limit)
    net = new_network()
    post.joined_at = net.rounds_to_follow()
    net.resume_at = entry_round(resume_at, post.joined_at - WINDOW, own_rounds)
    net.own_rounds = own_rounds
    result = await program(net)
    finish(post)
    return result


async def _hear_of_all(post: Post, limit: int) -> None:
    """Wait until all parties have gathered, not only the neighbours: in each step a party tells its
    neighbours that it knows of the parties one hop further away. So no party begins while a party
    further away still waits for one of its own neighbours."""
    world = post.world
    for step in range(1, world.topology.diameter(len(world.columns)) + 1):
        counter = ProgramCounter((*BEGINNING, step))  # before the first step of the program
        post.reach(counter)
        post.beat_all()
        while any(k.there and not k.reached(counter) for k in post.peers.values()):
            if _begun(post) or post.clock.now >= limit:
                return
            await post.clock.wait(post.news, min(limit, post.clock.now + ASK_EVERY))


async def _gather(post: Post, seconds: float | None, begun: bool = False) -> None:
    """Wait until all neighbours are there. `seconds`: `gather` of `take_part`; `begun`: this party
    has done rounds of the training before it started again."""
    begin, ask_at, wait_log = post.clock.now, post.clock.now + ASK_EVERY, WaitLog(post)
    while True:
        known = {party: peer.there and bool(peer.positions) for party, peer in post.peers.items()}
        passed = post.clock.now - begin
        if all(known.values()):
            return
        if any(known.values()):
            if passed >= LISTEN_FIRST and _begun(post):
                return
            if begun and passed >= RESTART:  # the others may all have started again, too
                return
        if seconds is None:
            majority = post.leader is None and 2 * sum(known.values()) >= len(known)
            if majority and passed >= MAJORITY * SECOND:
                return
        elif any(known.values()) and passed >= seconds * SECOND:
            return
        wait_log.log_if_due([party for party, there in known.items() if not there])
        # A greeting that overtook its sender's liveliness token was forgotten: ask again.
        if post.leader is None and post.clock.now >= ask_at:
            ask_at = post.clock.now + ASK_EVERY
            for party, peer in post.peers.items():
                if peer.there and not peer.positions:
                    post.tell(party, NACK)
        await post.clock.wait(post.news, post.clock.now + ASK_EVERY)


def _begun(post: Post) -> bool:
    """Whether the others have begun the program."""
    if post.leader is not None:
        return post.main.newest > 0
    return any(
        counter.reached((1, 0)) or counter.branch
        for peer in post.peers.values()
        for counter in peer.positions.values()
    )
