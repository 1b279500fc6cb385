"""The projected engine for real: parties crash, return, lag, and nobody knows beforehand.

What the stacked engine draws, this one finds out: a party is away when its transport says so. How
parties go on together:

- *Rounds.* Nobody begins a round more than two ahead of a neighbour that is there. One that falls
further behind for longer than `patience` is not waited for; it jumps to the leader's round, which
is how a party that was away joins, too.
- *Waits.* `ALL` is everybody who is there, and the leader in any case. `EVERYONE` waits for those
who are away. `LATEST` waits for nobody longer than `patience`; as long as all are quick enough,
everybody reads what was written in the same round.
- *Eras.* The leader begins a new era whenever it starts; everybody goes back (or ahead) to its
round, with the models they have.
- *Equals.* Where nobody leads, a party that is behind half of its neighbours jumps to where they
are; one that is alone waits for company.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Self, cast

import msgspec
import numpy as np
import torch
from torch import Tensor

from colonnade.common.randomness import Randomness, SystemRandomness
from colonnade.errors import Diverged
from colonnade.network.absent import ABSENT, Absent, is_absent
from colonnade.network.clock import SECOND
from colonnade.network.inbox import Inbox
from colonnade.network.loudness import magnitude
from colonnade.network.network import AFTER, DECISION, DECISION_BYTES, Network, Place
from colonnade.network.parcel import Parcel, Wait
from colonnade.network.parts import Parts, Version
from colonnade.network.post import ASK, BEAT, END, Peer, Post, reached
from colonnade.network.projected import ProjectedNetwork
from colonnade.network.samplers import Passage
from colonnade.network.topology import Group, Links
from colonnade.network.wire import Header

log = logging.getLogger(__name__)

WINDOW = 2  # rounds that a party may be ahead of another
AGAIN = SECOND // 4  # between two questions to somebody who is waited for
LIVES = 1 << 20  # lives of a process that are told apart
DONE = AFTER - 1  # the step after all steps of a round, and before what follows a loop


class Rejoin(Exception):
    """The leader is elsewhere: go on from its round."""


class Live(ProjectedNetwork):
    def __init__(self, post: Post, program: str = "main", *, patience: float = 1.0) -> None:
        Network.__init__(self, post.world, program)
        self.post, self.party = post, post.party
        self.transport, self.clock = post.transport, post.clock
        self.era = post.era
        self.patience = patience
        self.impatient = False  # not even who is there is waited for longer than that
        self.silent: set[str] = set()  # those whose part of an exchange did not come
        self.own_rounds = range(0)  # this party needs nobody in these: it misses none of them

    async def agree(self, value: Tensor | Absent, src: Group, count: int) -> list[float]:
        self.step += 1
        links = self.links(src, self.everyone)
        if not is_absent(value):
            return self._decide(value.reshape(count).float(), links)
        me, decider = self.everyone.parties.index(self.party), src.parties[0]
        key = self._key(links, 0, me)
        self.post.reach(self.at)
        while True:
            await self._attend(
                lambda: key in self.post.letters or self._lacks(decider), lambda: [decider]
            )
            if key not in self.post.letters:
                raise Rejoin
            decision = self.post.letters.pop(key)
            if (
                decision is not None
                and decision.shape == (count,)
                and bool(decision.isfinite().all())
            ):
                break
            self.post.refuse(decider, "a decision that is none; it runs other software")
            await self.clock.sleep_until(self.clock.now + AGAIN)
        self._pass()
        return decision.tolist()

    def _decide(self, decision: Tensor, links: Links) -> list[float]:
        for receiver, party in enumerate(self.everyone.parties):
            if party in self.post.peers:
                self.post.post(self._header(links, 0, receiver, DECISION), decision, party)
        self.post.reach(self.at)
        self.ledger.add(self.phase, DECISION, links, None, decision.numel() * DECISION_BYTES)
        return decision.tolist()

    def _beside(self, program: str) -> Self:
        child = type(self)(self.post, program, patience=self.patience)
        child.era, child.impatient = self.era, self.impatient
        return child

    # -- versions of the model --------------------------------------------------------------------

    @property
    def generation(self) -> int:
        return self.era

    @property
    def life(self) -> int:
        return self.post.born % LIVES

    def missing(self) -> set[str]:
        told = [party for parts in self.post.parts_of.values() for party in parts.missed]
        return self.silent.union(*self.post.missed.values(), told)

    def owing(self) -> list[str]:
        known = {party: self.post.peers[party] for party in self.silent & self.post.peers.keys()}
        there = [party for party, k in known.items() if k.there and not k.reached(self.at)]
        return there + [p for p, k in known.items() if not k.there and self._may_return(k)]

    def lacking(self, version: Version, parties: Sequence[str]) -> list[str]:
        return [party for party in parties if not self.post.keeps(party, version)]

    def away_since(self, moment: float, parties: Sequence[str]) -> list[str]:
        known = {party: self.post.peers[party] for party in parties if party in self.post.peers}
        return [p for p, k in known.items() if not k.there or k.since > moment * SECOND]

    def announce(self, parts: Parts) -> None:
        missed = tuple(sorted(set[str]().union(*self.post.missed.values())))
        self.post.announce(msgspec.structs.replace(parts, missed=missed))

    async def commit(self, keep: Callable[[bool], bool]) -> None:
        self.step += 1
        mark, leader = self.rounds_begun, self.post.leader
        if leader is not None and not self.post.leads:  # it says whether this is too late
            limit = self.clock.now + int(self.post.silence * SECOND)
            await self._attend(lambda: leader in self.post.parts_of, lambda: [leader], limit)
        late = mark < self.resume_at or self._committed(mark)
        self.post.muted = not keep(late)
        if self.post.muted:
            log.warning("%s: its part was not final when the others went on", self.party)
        self.post.reach(self.at)
        for party in self.post.present():
            self.post.beat(party)
        if late:
            return
        if self.post.leads:
            nothing = Parts()
            await self._everybody(lambda p: self.post.parts_of.get(p, nothing).final(mark))
        elif self.post.leader is None:
            await self._everybody(lambda p: self.post.peers[p].reached(self.at))
        else:
            await self._attend(lambda: self._committed(mark), lambda: [self.post.leader or ""])

    def _committed(self, mark: int) -> bool:
        """Whether the leader has said that parts which were final by then are in use."""
        told = (
            self.post.parts if self.post.leads else self.post.parts_of.get(self.post.leader or "")
        )
        return told is not None and told.committed is not None and told.committed >= mark

    def secrets(self, party: str, *purpose: str | int) -> Randomness:
        """The operating system's generator."""
        return SystemRandomness()

    def check_loss(self, loss: Tensor) -> None:
        if not bool(torch.as_tensor(loss).isfinite().all()):
            raise Diverged(
                f"the loss of round {self.round + 1} is not a number any more. The largest numbers "
                f"came from {self.post.loudness.loudest()}. Lower the learning rate, or "
                "network.loudness in the federation file, which bounds what is accepted"
            )

    async def reunite(self) -> None:
        lately = (*self.place, self.rounds_begun - WINDOW, 0)
        beyond = (*self.place, self.rounds_begun, self.step + 1)

        def ready(party: str) -> bool:
            return self.post.peers[party].reached(lately)

        def gone_on() -> bool:  # among equals: others waited no longer, and now wait for this party
            equals = self.post.leader is None
            return equals and any(k.there and k.reached(beyond) for k in self.post.peers.values())

        await self._everybody(ready, gone_on)

    async def _everybody(
        self, ready: Callable[[str], bool], over: Callable[[], bool] = lambda: False
    ) -> None:
        """Until every neighbour is ready, but for those who are away for long, or owe it for long;
        or until it is `over`."""
        limit = self.clock.now + int(self.post.silence * SECOND)

        def awaited() -> list[str]:
            known = self.post.peers.items()
            there = [p for p, k in known if k.there and not ready(p) and self.clock.now < limit]
            return [*there, *(p for p, k in known if not k.there and self._may_return(k))]

        if away := [party for party in awaited() if not self.post.peers[party].there]:
            seconds = self.post.returns
            log.info("%s: waiting up to %.0f s for %s", self.party, seconds, ", ".join(away))
        await self._attend(lambda: over() or not awaited(), awaited)

    def _may_return(self, peer: Peer) -> bool:
        return self.clock.now - peer.since < self.post.returns * SECOND

    # -- rounds -----------------------------------------------------------------------------------

    def _begin(self) -> None:
        """What is sent once is worth waiting for, also for those who were late before."""
        if self.unhurried and not self.impatient:
            self.post.missed.pop(self.place, None)  # of a collection that is done again
            for peer in self.post.peers.values():
                peer.late = False

    async def _breathe(self, left: int) -> None:
        await self.clock.sleep_until(self.clock.now)  # let in what has come meanwhile
        self._same_era()
        if self.place and self.post.leader is None:
            return  # a part of a validation or of an answer would be worse than a late one
        ahead = ahead_of(self.post, self.place)
        if not self.place and self.rounds_begun < self.own_rounds.stop:
            ahead = min(ahead, self.own_rounds.start)
        if ahead - self.rounds_begun > WINDOW:
            last = self.rounds_begun + left - (1 if self.place else 0)  # never all of a part
            self.resume_at = max(self.resume_at, ahead if not self.place else min(ahead, last))

    async def _meet(self) -> None:
        begun = (*self.place, self.rounds_begun + 1, 0)
        before = (*self.place, self.rounds_begun, 0)
        self.post.reach(begun)
        for party in self.post.present():
            if not reached(self.post.peers[party].told, before):
                self.post.peers[party].told = begun
                self.post.tell(party, BEAT, begun)
        await self._company()
        if self.rounds_begun < WINDOW:
            return
        wanted = (*self.place, self.rounds_begun + 1 - WINDOW, 0)
        if self.unhurried and not self.impatient:
            await self._everybody(lambda party: self.post.peers[party].reached(wanted))
            return
        await self._patiently(self.post.present(), wanted, begun, alone=self.impatient)

    async def _company(self) -> None:
        """Others wait for the leader anyway; a leader, or an equal, does not go on when all others
        are away."""
        goes_alone = self.post.leads or self.post.leader is None
        if goes_alone and self.post.peers and not self.impatient:
            await self._attend(lambda: bool(self.post.present()), list)

    async def _patiently(
        self, parties: Sequence[str], place: Place, mine: Place, alone: bool = False
    ) -> None:
        """Until they have reached the place, but not longer than `patience`: who has not is late.
        Unless nobody has, and this party is the one that is too quick; `alone`: even then."""
        peers = {party: self.post.peers[party] for party in parties}
        for peer in peers.values():
            peer.late = peer.late and not peer.reached(place)
        limit = self.clock.now + int(self.patience * SECOND)

        def behind() -> list[str]:
            return [p for p, k in peers.items() if k.there and not k.late and not k.reached(place)]

        def ready() -> bool:
            if self.clock.now >= limit and (alone or any(k.reached(place) for k in peers.values())):
                return True
            return not behind() and (alone or self._in_company(peers, place))

        await self._attend(ready, behind, place=mine)
        for party in behind():
            peers[party].late = True

    def _in_company(self, peers: Mapping[str, Peer], place: Place) -> bool:
        there = [peer for peer in peers.values() if peer.there]
        return not there or any(peer.reached(place) for peer in there)

    # -- exchanges --------------------------------------------------------------------------------

    async def _exchange(self, parcel: Parcel, passage: Passage) -> Inbox:
        links = parcel.links
        if self.post.muted and not self.impatient:
            parcel = replace(parcel, where=torch.zeros(len(self.here(links.src)), dtype=torch.bool))
        if self.here(links.src):
            self._post(parcel, passage, np.zeros(links.shape, dtype=np.int64))
        self.post.reach(self.at)
        if not self.here(links.dst):
            return cast(Inbox, ABSENT)
        if parcel.wait.kind == "latest":
            senders = [p for p in links.src.parties if p in self.post.peers]
            await self._patiently(senders, self.at, self.at, alone=True)
        inbox = await self._collect(parcel, passage)
        enough = (
            parcel.wait.kind == "first" and int(inbox.arrived.sum(1).min()) >= parcel.wait.count
        )
        if not inbox.everything and not enough:
            self._note_silence(inbox, links)
        return inbox

    def _note_silence(self, inbox: Inbox, links: Links) -> None:
        for i, r in enumerate(self.here(links.dst)):
            missing = links.real[r] & ~inbox.arrived[i].numpy()
            self.silent |= {links.src.parties[s] for s in links.senders[r][missing]}
        if self.unhurried and not self.impatient:
            self._miss(self.silent & self.post.peers.keys())

    def _miss(self, parties: set[str]) -> None:
        """Tell everybody whose part of what is sent once did not come here."""
        missed = self.post.missed.setdefault(self.place, set())
        if parties - missed:
            missed |= parties
            self.announce(self.post.parts)

    def _hand_over(self, header: Header, value: Tensor | None, to: str, delay: int) -> None:
        self.post.post(header, value, to)

    def _signed(self, header: Header) -> Header:
        signature = {"federation": self.post.federation, "era": self.era, "life": self.post.born}
        return msgspec.structs.replace(header, **signature)

    async def _wait(
        self, wait: Wait, links: Links, members: list[int], expected: np.ndarray
    ) -> None:
        letters = self.post.letters
        wanted = [
            (self._key(links, int(links.senders[r, j]), r), links.src.parties[links.senders[r, j]])
            for r in members
            for j in np.nonzero(expected[r])[0]
        ]

        def open_() -> list[str]:
            return [
                party
                for key, party in wanted
                if key not in letters and not self._will_not_come(party, wait)
            ]

        def ready() -> bool:
            if wait.kind == "first":
                heard = sum(letters.get(key) is not None for key, _ in wanted)
                return heard >= wait.count or not open_()
            return not open_()

        self._forgive(party for _, party in wanted)
        limit = None
        if wait.kind == "deadline":
            limit = self.clock.now + int(wait.seconds * SECOND)
        elif self.impatient:
            limit = self.clock.now + int(self.patience * SECOND)
        await self._attend(ready, open_, limit)

    def _forgive(self, parties: Iterable[str]) -> None:
        """Who has caught up is late no more."""
        lately = (*self.place, self.rounds_begun - 1, 0)
        for peer in (self.post.peers[p] for p in set(parties) if p in self.post.peers):
            peer.late = peer.late and not peer.reached(lately)

    def _will_not_come(self, party: str, wait: Wait) -> bool:
        peer = self.post.peers.get(party)
        if peer is None:
            return party != self.party  # no neighbour of ours
        must = (wait.insists or party == self.post.leader) and not self.impatient
        if must:
            return self._lacks(party)
        if self.unhurried and not self.impatient:
            return self._lacks(party) or not (peer.there or self._may_return(peer)) or peer.late
        given_up = self.impatient and party in self.silent
        return not peer.there or peer.late or given_up or peer.reached(self.at)

    def _lacks(self, party: str) -> bool:
        """It said that it has sent its part of this exchange and cannot do so again."""
        return (party, self.at) in self.post.lacking

    async def _attend(
        self,
        ready: Callable[[], bool],
        awaited: Callable[[], Sequence[str]],
        limit: int | None = None,
        place: Place | None = None,
    ) -> None:
        """Until `ready`, or the limit. Who is awaited at this place is asked: at once if it says to
        be past it, and now and then."""
        place = place or self.at
        ask_at, asked = self.clock.now + AGAIN, False
        begun = self.clock.now
        while True:
            self._same_era()
            if ready() or (limit is not None and self.clock.now >= limit):
                return
            known = self.post.peers
            peers = [(p, known[p]) for p in dict.fromkeys(awaited()) if p in known]
            due = self.clock.now >= ask_at
            if due:
                self._give_up(peers, begun)
            if due or (not asked and any(peer.reached(place) for _, peer in peers)):
                for party, peer in peers:
                    if peer.there and (due or peer.reached(place)):
                        self.post.tell(party, ASK, place)
                ask_at, asked = self.clock.now + AGAIN, True
            await self.clock.wait(self.post.news, ask_at if limit is None else min(ask_at, limit))

    def _give_up(self, peers: Sequence[tuple[str, Peer]], since: int) -> None:
        """Whoever is there and owes a message for `silence` seconds, or for twice as long while
        its heartbeats come (it may be waiting for somebody else), is late. Each time halves how
        long it is waited for the next time."""
        for party, peer in peers:
            if not peer.there or peer.late or party == self.post.leader:
                continue
            talks = peer.heard > self.clock.now - SECOND
            limit = max(self.patience, self.post.silence * (1 + talks) / 2**peer.strikes)
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
                peer.late, peer.strikes = True, min(peer.strikes + 1, 16)

    def _same_era(self) -> None:
        if self.post.era != self.era:
            raise Rejoin

    # -- reading ----------------------------------------------------------------------------------

    def _pass(self) -> None:
        self.post.passes(self.at)

    def _read_letter(self, parcel: Parcel, sender: int, receiver: int) -> Tensor | None:
        return self.post.letters.pop(self._key(parcel.links, sender, receiver))

    def _read_register(self, parcel: Parcel, sender: int, receiver: int) -> Tensor | None:
        src, dst = parcel.links.src.name, parcel.links.dst.name
        return self.post.read_register((src, sender, dst, receiver, parcel.channel.kind), self.at)

    def _fits(self, letter: Tensor, parcel: Parcel, sender: int, receiver: int) -> bool:
        """Checks a received tensor: declared dtype, declared shape, all values finite and none
        absurdly large."""
        shape = (*parcel.shape[:-1], parcel.width(sender, receiver))
        channel, kind = parcel.channel, parcel.channel.dtype
        if letter.shape == shape and letter.dtype == kind:
            size = magnitude(letter)
            bounded = channel.bounded and kind.is_floating_point
            limit = self.post.loudness.limit(channel.kind) if bounded else math.inf
            if size <= limit and size < math.inf:
                self.post.loudness.heard(channel.kind, parcel.links.src.parties[sender], size)
                return True
            found = "numbers that are not finite"
            if size < math.inf:
                found = f"numbers up to {size:.2g}, expected at most {limit:.2g}"
        else:
            found = f"{letter.dtype} {tuple(letter.shape)}"
        if parcel.wait.kind != "latest" or letter.shape[1:] != shape[1:]:  # not a shorter batch
            party = parcel.links.src.parties[sender]
            detail = f"{found}, expected {kind} {shape}"
            self.post.refuse(party, f"{channel.kind} that does not fit", detail)
        return False


def ahead_of(post: Post, place: Place) -> int:
    """The round, in the program at `place`, that a party should not be far behind: the leader's, or
    that which half of the neighbours who are there have reached. So of three neighbours or more one
    alone misleads nobody."""
    if post.leader is not None:
        leader = post.peers.get(post.leader)
        return _furthest(leader, place) if leader is not None else 0
    rounds = sorted(_furthest(peer, place) for peer in post.peers.values() if peer.there)
    return rounds[len(rounds) // 2] if rounds else 0


def _furthest(peer: Peer, place: Place) -> int:
    return max((round_of(front, place) for front in peer.fronts.values()), default=0)


def round_of(front: Place, place: Place) -> int:
    """The round, in the program at `place`, of somebody who is at `front`."""
    depth = len(place)
    if front[:depth] != place:
        return END if reached(front, place) else 0
    over = len(front) > depth + 1 and front[depth + 1] >= DONE
    return max(0, front[depth] - 1 + over) if len(front) > depth else 0
