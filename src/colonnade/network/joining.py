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
MAJORITY = 60.0  # seconds after which half of its neighbours are enough for an equal
SAY = 10 * SECOND  # until the first message about who is missing; then twice as long, and so on


async def take_part(
    post: Post,
    program: Callable[[Live], Coroutine[Any, Any, Any]],
    *,
    resume_at: int = 0,
    unlabelled: int = 0,
    own_rounds: range = range(0),
    gather: float | None = 60.0,
    patience: float = 1.0,
) -> Any:
    """Run a choreography to its end with whoever is there, from the leader's round on, or, where
    nobody leads, from that of the neighbours.

    `resume_at`: the round at which this party would go on by itself. `unlabelled`: so many rounds
    go on without the leader; a leader that returns takes them up where the others are.
    `own_rounds`: those that this party does by itself; it misses none of them. `gather`: seconds
    that a leader, or an equal, waits for everybody before it begins without them; None: a leader
    waits for as long as it takes, an equal 60 s and then for half of its neighbours. The post must
    be listening.
    """
    if post.leader is None:
        return await _side_by_side(post, program, resume_at, own_rounds, gather, patience)
    if not post.leads:
        return await _follow(post, program, resume_at, own_rounds, patience)
    if resume_at < END - 1:  # else those who are not there may have left for good
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
    own_rounds: range,
    gather: float | None,
    patience: float,
) -> Any:
    if resume_at < END - 1:  # else there is nothing to do together
        limit = post.clock.now + int((MAJORITY if gather is None else gather) * SECOND)
        await _gather(post, gather)
        await _hear_of_all(post, limit)
    net = Live(post, patience=patience)
    net.resume_at = _entry(resume_at, ahead_of(post, ()) - WINDOW, own_rounds)
    net.own_rounds = own_rounds
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
    post: Post,
    program: Callable[[Live], Coroutine[Any, Any, Any]],
    resume_at: int,
    own_rounds: range,
    patience: float,
) -> Any:
    leader = post.peers[post.leader or ""]
    joined = 0  # the era this party has taken part in
    mine = resume_at  # the round that this party would do next by itself
    while True:
        await _summons(post, leader)
        net = Live(post, patience=patience)
        ahead = max(round_of(front, ()) for front in leader.fronts.values())
        early = 0 if joined == post.era else WINDOW  # so much it may be ahead of us
        theirs = max(round_of(post.start, ()), ahead - early)
        net.resume_at = _entry(mine, theirs, own_rounds) if mine < own_rounds.stop else theirs
        net.own_rounds = own_rounds
        joined = post.era
        post.passed.clear()
        try:
            return await program(net)
        except Rejoin:
            log.info("%s: going on from the round of %s", post.party, post.leader)
        mine = max(mine, net.rounds_begun)


async def _summons(post: Post, leader: Peer) -> None:
    """Until the leader has begun and told where it is."""
    ask_at, missing = post.clock.now + AGAIN, Missing(post)
    while not (post.era and leader.fronts):
        missing.say([post.leader or ""])
        if post.clock.now >= ask_at:
            ask_at = post.clock.now + AGAIN
            if leader.there:
                post.tell(post.leader or "", ASK, (0, 0))
        await post.clock.wait(post.news, ask_at)


async def _gather(post: Post, seconds: float | None) -> None:
    """Until everybody is there. `seconds`: see `take_part`."""
    begin, ask_at, missing = post.clock.now, post.clock.now + AGAIN, Missing(post)
    while True:
        known = {party: peer.there and bool(peer.fronts) for party, peer in post.peers.items()}
        passed = post.clock.now - begin
        if all(known.values()):
            return
        if any(known.values()) and passed >= LOOK_ROUND and _begun(post):
            return
        if seconds is None:
            majority = post.leader is None and 2 * sum(known.values()) >= len(known)
            if majority and passed >= MAJORITY * SECOND:
                return
        elif any(known.values()) and passed >= seconds * SECOND:
            return
        missing.say([party for party, there in known.items() if not there])
        if post.leader is None and post.clock.now >= ask_at:  # its greeting came before it was seen
            ask_at = post.clock.now + AGAIN
            for party in [p for p, peer in post.peers.items() if peer.there and not peer.fronts]:
                post.tell(party, ASK, (0, 0))
        await post.clock.wait(post.news, post.clock.now + AGAIN)


def _entry(mine: int, theirs: int, own_rounds: range) -> int:
    """Where to go on: with the others, but not past rounds that this party does by itself."""
    return max(mine, min(theirs, own_rounds.start) if mine < own_rounds.stop else theirs)


class Missing:
    """Says now and then for whom a party waits, and since when."""

    def __init__(self, post: Post) -> None:
        self.post, self.begin, self.pause = post, post.clock.now, SAY

    def say(self, parties: list[str]) -> None:
        passed = self.post.clock.now - self.begin
        if passed >= self.pause:
            self.pause = 2 * passed
            seconds = passed // SECOND
            log.info("%s: waiting for %s since %d s", self.post.party, ", ".join(parties), seconds)


def _begun(post: Post) -> bool:
    """Whether the others are in the middle of it."""
    if post.leader is not None:
        return post.newest_era > 0
    return any(peer.reached((1, 0)) for peer in post.peers.values())
