"""How a real party waits for others, and when it goes on without them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence

from colonnade.network.clock import SECOND
from colonnade.network.live.generations import LedProgram
from colonnade.network.live.messages import NACK
from colonnade.network.live.peers import Peer
from colonnade.network.live.post import Post
from colonnade.network.one_party import OnePartyNetwork
from colonnade.network.program_counter import ProgramCounter

log = logging.getLogger(__name__)

NEVER = 2**63 - 1
SILENT = 5.0  # seconds without any message, after which a party that is there counts as silent
ASK_EVERY = SECOND // 4  # between two negative acknowledgements to a party that is waited for
LOG_FIRST_AFTER = 10 * SECOND  # of waiting for parties to come; then whenever the wait has doubled
LOG_IN_TRAINING_AFTER = 5 * SECOND  # of waiting within a program; once


class WaitLog:
    """Logs for which parties this one waits, and for how long so far: after `first` nanoseconds,
    and whenever the wait has doubled. `once`: once in a wait, and once while a party is away,
    however many rounds and epochs wait for it."""

    def __init__(self, post: Post, first: int = LOG_FIRST_AFTER, once: bool = False) -> None:
        self.post, self.begin, self.pause, self.once = post, post.clock.now, first, once

    def log_if_due(self, parties: Sequence[str]) -> None:
        passed = self.post.clock.now - self.begin
        if parties and passed >= self.pause:
            self.pause = NEVER if self.once else 2 * passed
            if not self._is_news(parties) and self.once:
                return
            seconds = passed // SECOND
            log.info("%s: waiting for %s for %d s", self.post.party, ", ".join(parties), seconds)

    def _is_news(self, parties: Sequence[str]) -> bool:
        """Whether one of the parties is there, or away without the log having told of it."""
        peers = [self.post.peers[party] for party in parties]
        news = [peer for peer in peers if peer.there or peer.logged != peer.since]
        for peer in peers:
            peer.logged = -1 if peer.there else peer.since
        return bool(news)


class Rejoin(Exception):
    """The leader of the program on `net` has begun a new generation, or is past what this party
    waits for: run the program again from the leader's round on."""

    def __init__(self, net: WaitingNetwork) -> None:
        super().__init__(net.program)
        self.net = net


class Over(Exception):
    """The programs side by side were ended without this one, whose leader is away."""


class WaitingNetwork(OnePartyNetwork):
    def __init__(self, post: Post, program: str = "main", *, patience: float = 1.0) -> None:
        super().__init__(post.world, post.party, post.clock, post.main.mail, program)
        self.post, self.patience = post, patience
        self.surrounding: WaitingNetwork | None = None  # the network of the program that started it
        self.is_over: Callable[[], bool] = lambda: False  # without the leader of this program
        self.led: LedProgram = post.main
        self.leader = post.leader
        self.began_in: int | None = post.generation  # None: that of the surrounding program
        self.has_children = False  # while programs run side by side in this one
        self.impatient = False  # wait for no party longer than `patience`, even if it is there
        self.until: int | None = None  # nanoseconds: no wait of this network lasts beyond
        self.silent: set[str] = set()  # parties from which a message did not come

    @property
    def leads(self) -> bool:
        return self.party == self.leader

    @property
    def generation(self) -> int:
        """The generation of the leader in which this network takes part."""
        if self.began_in is None and self.surrounding is not None:
            return self.surrounding.generation
        return self.began_in or 0

    def check_generation(self) -> None:
        """Raise `Rejoin` if the leader of this program, or of one around it, has begun a new
        generation."""
        if self.surrounding is not None:
            self.surrounding.check_generation()
        if self.began_in is None or self.led.generation == self.began_in:
            return
        if not (self.has_children and self._leader_comes_here()):
            raise Rejoin(self)
        self.began_in = self.led.generation
        self.post.reach(self.at)

    def _leader_comes_here(self) -> bool:
        """Whether the leader, which has begun anew, will start the programs that run side by side
        in this one, with no exchange before. Then they go on, and those that it leads follow it."""
        next_step = not self.round_is_open or self.step == 1
        leader = self.post.peers.get(self.leader or "")
        done = leader.positions.rounds_done(self.origin) if leader is not None else -1
        return next_step and done == self.rounds_done

    def check_over(self) -> None:
        """Raise `Over` if this program, or one around it, has been ended without its leader."""
        if self.is_over():
            raise Over
        if self.surrounding is not None:
            self.surrounding.check_over()

    def rejoin(self) -> Rejoin:
        """The exception to raise in order to go on from the leader's round."""
        net = self
        while net.began_in is None and net.surrounding is not None:
            net = net.surrounding
        return Rejoin(net)

    async def wait_until(
        self,
        ready: Callable[[], bool],
        awaited: Callable[[], Sequence[str]],
        limit: int | None = None,
        counter: ProgramCounter | None = None,
    ) -> None:
        """Wait until `ready`, or the limit, or `until`. Each awaited party gets a negative
        acknowledgement: at once if it has told that it is past the exchange, and every quarter of a
        second."""
        counter = counter or self.at
        limit = min((t for t in (limit, self._until()) if t is not None), default=None)
        ask_at, asked = self.clock.now + ASK_EVERY, False
        begun, wait_log = self.clock.now, WaitLog(self.post, LOG_IN_TRAINING_AFTER, once=True)
        while True:
            self.check_generation()
            if ready() or (limit is not None and self.clock.now >= limit):
                return
            self.check_over()
            known = self.post.peers
            peers = [(p, known[p]) for p in dict.fromkeys(awaited()) if p in known]
            due = self.clock.now >= ask_at
            if due:
                wait_log.log_if_due([party for party, _ in peers])
                self._give_up(peers, begun)
            if due or (not asked and any(peer.reached(counter) for _, peer in peers)):
                for party, peer in peers:
                    if peer.there and (due or peer.reached(counter)):
                        self.post.tell(party, NACK, counter)
                ask_at, asked = self.clock.now + ASK_EVERY, True
            await self.clock.wait(self.post.news, ask_at if limit is None else min(ask_at, limit))

    def _until(self) -> int | None:
        """The limit of all waits: of this network, else of the one around it."""
        around = None if self.surrounding is None else self.surrounding._until()
        return self.until if self.until is not None else around

    def _give_up(self, peers: Sequence[tuple[str, Peer]], since: int) -> None:
        """Mark parties as late that are there and owe a message for `silence` seconds, or for twice
        as long while their heartbeats come (they may be waiting for a third party). Each time a
        party is late halves how long it is waited for the next time."""
        for party, peer in peers:
            if not peer.there or peer.late.get(self.branch) or party == self.leader:
                continue
            talks = peer.heard > self.clock.now - SECOND
            limit = max(self.patience, self.post.silence * (1 + talks) / 2**peer.times_late)
            owes = self.clock.now - max(since, peer.since)
            if owes >= limit * SECOND:
                what = "its heartbeats come, its message does not" if talks else "it says nothing"
                log.warning(
                    "%s: going on without %s, after %.0f s: it is there, but %s",
                    self.party,
                    party,
                    owes / SECOND,
                    what,
                )
                peer.late[self.branch] = True
                peer.times_late = min(peer.times_late + 1, 16)

    async def wait_for_all(
        self,
        ready: Callable[[str], bool],
        over: Callable[[], bool] = lambda: False,
        seconds: float = math.inf,
    ) -> None:
        """Wait until every neighbour is `ready`, except for neighbours that are away, or owe their
        message, for too long; or until `over`; or, for neighbours that are away, for so many
        seconds."""
        begun, limit = self.clock.now, self.clock.now + int(self.post.silence * SECOND)

        def awaited() -> list[str]:
            known = self.post.peers.items()
            there = [p for p, k in known if k.there and not ready(p) and self.clock.now < limit]
            if self.clock.now - begun >= seconds * SECOND:
                return there
            return [*there, *(p for p, k in known if not k.there and self.may_return(k))]

        if away := [party for party in awaited() if not self.post.peers[party].there]:
            most = min(seconds, self.post.returns)
            log.info("%s: waiting up to %.0f s for %s", self.party, most, ", ".join(away))
        await self.wait_until(lambda: over() or not awaited(), awaited)

    def may_return(self, peer: Peer) -> bool:
        """Whether a peer that is away has left so recently that it is waited for."""
        return self.clock.now - peer.since < self.post.returns * SECOND

    async def wait_within_patience(
        self,
        parties: Sequence[str],
        counter: ProgramCounter,
        mine: ProgramCounter,
        alone: bool = False,
    ) -> None:
        """Wait until the parties have reached a program counter, but not longer than `patience`; a
        party that has not reached it by then is late. If no party has reached it, this party is
        the one that is ahead, and waits on, unless `alone`. `mine`: the program counter of the
        negative acknowledgements."""
        peers, branch = {party: self.post.peers[party] for party in parties}, self.branch
        for peer in peers.values():
            peer.update_late(branch, peer.reached(counter))
        limit = self.clock.now + int(self.patience * SECOND)

        def behind() -> list[str]:
            there = [(p, k) for p, k in peers.items() if k.there and branch not in k.late]
            return [party for party, peer in there if not peer.reached(counter)]

        def ready() -> bool:
            due = self.clock.now >= limit
            if due and (alone or any(peer.reached(counter) for peer in peers.values())):
                return True
            return not behind() and (alone or _not_ahead_of_all(peers, counter))

        await self.wait_until(ready, behind, counter=mine)
        for party in behind():
            self._leave_behind(party)

    def _leave_behind(self, party: str) -> None:
        peer = self.post.peers[party]
        peer.late[self.branch] = False
        silent = peer.heard < peer.since or self.clock.now - peer.heard > SILENT * SECOND
        state = "says nothing" if silent else "is behind"
        self.post.left_behind.add(
            self.party,
            f"going on without {party} until it has caught up: it is there, but {state}",
            level=logging.WARNING if silent else logging.INFO,
        )

    async def wait_for_a_peer(self) -> None:
        """Wait until another party is there, if this party leads or nobody does. A follower waits
        for its leader anyway."""
        goes_alone = self.leads or self.leader is None
        if goes_alone and self.post.peers and not self.impatient:
            await self.wait_until(lambda: bool(self.post.present()), lambda: list(self.post.peers))

    def rounds_to_follow(self) -> int:
        """The round that this party should not be far behind: the leader's, or, where nobody leads,
        the round that half of the present neighbours have reached. So no single one of three or
        more neighbours can mislead a party."""
        if self.leader is not None:
            leader = self.post.peers.get(self.leader)
            return leader.positions.rounds_done(self.origin) if leader is not None else 0
        peers = [peer for peer in self.post.peers.values() if peer.there]
        rounds = sorted(peer.positions.rounds_done(self.origin) for peer in peers)
        return rounds[len(rounds) // 2] if rounds else 0


def _not_ahead_of_all(peers: Mapping[str, Peer], counter: ProgramCounter) -> bool:
    """Whether one of the peers that are there has reached the counter, or none is there."""
    there = [peer for peer in peers.values() if peer.there]
    return not there or any(peer.reached(counter) for peer in there)
