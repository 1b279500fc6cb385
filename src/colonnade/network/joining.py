"""Taking part in a choreography that others may be in the middle of: who begins, who follows, and
where."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from colonnade.network.clock import SECOND
from colonnade.network.live import AGAIN, DONE, WINDOW, Live, Rejoin, ahead_of, round_of
from colonnade.network.post import ASK, END, Peer, Post

log = logging.getLogger(__name__)

LOOK_ROUND = SECOND  # so long a restarted leader listens before it goes on


async def take_part(
    post: Post,
    program: Callable[[Live], Coroutine[Any, Any, Any]],
    *,
    resume_at: int = 0,
    unlabelled: int = 0,
    gather: float = 60.0,
    patience: float = 1.0,
) -> Any:
    """Run a choreography to its end with whoever is there, from the leader's round on, or, where
    nobody leads, from that of the neighbours.

    `resume_at`: the round at which this party would go on by itself. `unlabelled`: so many rounds
    go on without the leader; one that returns takes them up where the others are. `gather`: seconds
    that a leader, or an equal, waits for everybody before it begins without them. The post must be
    listening.
    """
    if post.leader is None:
        return await _side_by_side(post, program, resume_at, gather, patience)
    if not post.leads:
        return await _follow(post, program, patience)
    await _gather(post, gather)
    fronts = [front for peer in post.peers.values() for front in peer.fronts.values()]
    others = [round_of(front, ()) for front in fronts if front != (0, 0)]
    resume_at = max(resume_at, min([unlabelled, *others]) if others else 0)
    post.begin_era(max(post.newest_era + 1, post.born), (resume_at, DONE))
    post.reach(post.start)
    for party in post.present():
        post.greet(party)
    net = Live(post, patience=patience)
    net.resume_at = resume_at
    result = await program(net)
    finish(post)
    return result


def finish(post: Post) -> None:
    """Tell everybody that it is over here."""
    post.reach((END, 0))
    for party in post.present():
        post.beat(party)


async def _side_by_side(
    post: Post,
    program: Callable[[Live], Coroutine[Any, Any, Any]],
    resume_at: int,
    gather: float,
    patience: float,
) -> Any:
    if resume_at < END - 1:  # else there is nothing to do together
        limit = post.clock.now + int(gather * SECOND)
        await _gather(post, gather)
        await _hear_of_all(post, limit)
    net = Live(post, patience=patience)
    net.resume_at = max(resume_at, ahead_of(post, ()) - WINDOW)
    result = await program(net)
    finish(post)
    return result


async def _hear_of_all(post: Post, limit: int) -> None:
    """Word that all neighbours are there goes from neighbour to neighbour: who has all of its own
    does not begin while others, further away, still wait for somebody."""
    world = post.world
    for step in range(1, world.topology.diameter(len(world.columns)) + 1):
        place = (0, step)  # before the first round
        post.reach(place)
        for party in post.present():
            post.beat(party)
        while any(k.there and not k.reached(place) for k in post.peers.values()):
            if _begun(post) or post.clock.now >= limit:
                return
            await post.clock.wait(post.news, min(limit, post.clock.now + AGAIN))


async def _follow(
    post: Post, program: Callable[[Live], Coroutine[Any, Any, Any]], patience: float
) -> Any:
    leader = post.peers[post.leader or ""]
    joined = 0  # the era this party has taken part in
    while True:
        await _summons(post, leader)
        net = Live(post, patience=patience)
        ahead = max(round_of(front, ()) for front in leader.fronts.values())
        early = 0 if joined == post.era else WINDOW  # so much it may be ahead of us
        net.resume_at = max(round_of(post.start, ()), ahead - early)
        joined = post.era
        post.passed.clear()
        try:
            return await program(net)
        except Rejoin:
            log.info("going on from the round of %s", post.leader)


async def _summons(post: Post, leader: Peer) -> None:
    """Until the leader has begun and told where it is."""
    ask_at = post.clock.now + AGAIN
    while not (post.era and leader.fronts):
        if post.clock.now >= ask_at:
            ask_at = post.clock.now + AGAIN
            if leader.there:
                post.tell(post.leader or "", ASK, (0, 0))
        await post.clock.wait(post.news, ask_at)


async def _gather(post: Post, seconds: float) -> None:
    begin, ask_at = post.clock.now, post.clock.now + AGAIN
    while True:
        known = [peer.there and bool(peer.fronts) for peer in post.peers.values()]
        passed = post.clock.now - begin
        if all(known):
            return
        if any(known) and passed >= (LOOK_ROUND if _begun(post) else seconds * SECOND):
            return
        if post.leader is None and post.clock.now >= ask_at:  # its greeting came before it was seen
            ask_at = post.clock.now + AGAIN
            for party in [p for p, peer in post.peers.items() if peer.there and not peer.fronts]:
                post.tell(party, ASK, (0, 0))
        await post.clock.wait(post.news, post.clock.now + AGAIN)


def _begun(post: Post) -> bool:
    """Whether the others are in the middle of it."""
    if post.leader is not None:
        return post.newest_era > 0
    return any(peer.reached((1, 0)) for peer in post.peers.values())
