"""The projected engine on a real network, where parties crash, return and lag.

The stacked engine draws which parties are down; this engine is told by the transport. How parties
go on together:

- *Rounds.* No party begins a round more than two ahead of a neighbour that is there. A party that
falls further behind for longer than `patience` is not waited for; it jumps to the leader's round,
which is how a party that was away joins, too.
- *Waits.* `ALL` waits for every party that is there, and for the leader in any case. `EVERYONE`
also waits for parties that are away. Neither waits for ever for a party that is there and owes its
message. `LATEST` waits for no party longer than `patience`; as long as all are quick enough, every
party reads what was written in the same round.
- *Generations.* The leader begins a new generation whenever it starts; all other parties go back
(or ahead) to its round, with the models that they have.
- *Equals.* Where nobody leads, a party that is behind half of its neighbours jumps to their round;
a party that sees no neighbour waits for one.
- *Programs side by side.* Each program may have a leader of its own. A leader that crashes stops
its own program only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor

from colonnade.common.randomness import Randomness, SystemRandomness
from colonnade.network.absent import ABSENT, Absent, is_absent
from colonnade.network.clock import SECOND
from colonnade.network.inbox import Inbox
from colonnade.network.live.commits import WINDOW, CommittingNetwork
from colonnade.network.live.following import Siblings, follow, lead
from colonnade.network.live.loudness import magnitude
from colonnade.network.live.messages import HEARTBEAT
from colonnade.network.live.waiting import ASK_EVERY
from colonnade.network.network import DECISION, DECISION_BYTES
from colonnade.network.parcel import Parcel, Wait
from colonnade.network.samplers import Passage
from colonnade.network.topology import Group, Links
from colonnade.network.wire import Header
from colonnade.network.world import Program, Run


class Live(CommittingNetwork):
    own_rounds = range(0)  # rounds that this party does by itself and never skips

    async def agree(
        self, value: Tensor | Absent, src: Group, count: int, kind: str = DECISION
    ) -> list[float]:
        self.step += 1
        links = self.links(src, self.everyone)
        if not is_absent(value):
            return self._decide(value.reshape(count).float(), links, kind)
        me, decider = self.everyone.parties.index(self.party), src.parties[0]
        key, letters = self._key(links, 0, me), self.mail.letters
        self.post.reach(self.at)
        while True:
            await self.wait_until(lambda: key in letters or self._lacks(decider), lambda: [decider])
            if key not in letters:
                self.check_over()
                raise self.rejoin()
            decision = letters.pop(key)
            if (
                decision is not None
                and decision.shape == (count,)
                and bool(decision.isfinite().all())
            ):
                break
            self.post.refuse(decider, "a decision that is none; it runs other software")
            await self.clock.sleep_until(self.clock.now + ASK_EVERY)
        self.mail.passes(self.at)
        return decision.tolist()

    def secrets(self, party: str, *purpose: str | int) -> Randomness:
        """The operating system's generator."""
        return SystemRandomness()

    def _decide(self, decision: Tensor, links: Links, kind: str) -> list[float]:
        told = np.array([[self.led.is_for(party)] for party in self.everyone.parties])
        for receiver, party in enumerate(self.everyone.parties):
            if party in self.post.peers and told[receiver]:
                self._hand_over(self._header(links, 0, receiver, kind), decision, party, 0)
        self.post.reach(self.at)
        counted = None if told.all() else told
        self.ledger.add(self.phase, kind, links, counted, decision.numel() * DECISION_BYTES)
        return decision.tolist()

    # -- programs side by side --------------------------------------------------------------------

    async def concurrently(self, *programs: Run | Program, counter: Group | None = None) -> None:
        children = self._children_of(len(programs))
        self.post.reach(self.at)
        self.post.beat_all()
        mine = {k: program for k, program in enumerate(programs) if self._has_part(program)}
        leaders = {k: self._leader_of(program) for k, program in mine.items()}
        siblings = Siblings(self, leaders, None if counter is None else counter.parties[0])
        self.has_children = True
        try:
            tasks = [
                self.clock.spawn(
                    self._side_by_side(k, programs[k], children[k], siblings),
                    f"{self.party}: {children[k].program}",
                )
                for k in siblings.running
            ]
            await self.clock.join(tasks)
            self.check_generation()
        finally:
            self.has_children = False
            for child in children:
                if child.led.origin == child.origin:
                    self.post.close(child.origin)
        self._joined(children)
        self.post.reach(self.at)
        self.post.beat_all()

    def _has_part(self, program: Run | Program) -> bool:
        parties = program.parties if isinstance(program, Program) else None
        return parties is None or self.party in parties

    def _leader_of(self, program: Run | Program) -> str | None:
        leader = self.leader
        if isinstance(program, Program):
            leader = program.leading_party(self.world)
        if leader not in (None, self.party) and leader not in self.post.peers:
            raise ValueError(f"{leader} leads a program, but is not a neighbour of {self.party}")
        return leader

    def _side_by_side(
        self, number: int, program: Run | Program, child: Self, siblings: Siblings
    ) -> Coroutine[Any, Any, None]:
        """One of the programs, to its end, with its own leader or that of this program."""
        run: Callable[[Live], Coroutine[Any, Any, None]] = self._run_of(program)
        leader = siblings.leaders[number]
        if leader is None:  # it has the generation of this program
            child.leader = None
            return siblings.run(number, child.origin, run(child))
        parties = program.parties if isinstance(program, Program) else None
        led = child.led = self.post.open(child.origin, leader, parties)

        def new_network() -> Live:
            net = self._child(self._beside(child.program), child.origin)
            net.led, net.leader, net.mail, net.began_in = led, leader, led.mail, led.generation
            net.is_over = lambda: siblings.is_over(number)
            net.check_over()
            return net

        if leader == self.party:
            whole = lead(self.post, led, new_network, run, child.resume_at)
        else:
            whole = follow(
                self.post, led, new_network, run, around=self, siblings=siblings, number=number
            )
        return siblings.run(number, child.origin, whole)

    def _beside(self, program: str) -> Self:
        child = type(self)(self.post, program, patience=self.patience)
        child.surrounding, child.began_in, child.impatient = self, None, self.impatient
        child.led, child.leader, child.mail = self.led, self.leader, self.mail
        return child

    # -- rounds -----------------------------------------------------------------------------------

    @property
    def _inner(self) -> bool:
        """Whether this is a part of a round of another program, such as a validation."""
        return bool(self.origin) and self.origin[-1] >= 0

    def _begin_loop(self) -> None:
        """What is sent once is waited for, even if its sender was late before."""
        if self.sent_once and not self.impatient:
            self.post.missed.pop(self.origin, None)  # the loop is done again: nobody is missing yet
            for peer in self.post.peers.values():
                peer.late.pop(self.branch, None)

    async def _catch_up(self, left: int) -> None:
        await self.clock.sleep_until(self.clock.now)  # let received messages be handled first
        self.check_generation()
        self.check_over()
        if self._inner and self.leader is None:
            return  # a validation or an answer on some of the rows is worse than a late one
        ahead = self.rounds_to_follow()
        if not self.origin and self.rounds_begun < self.own_rounds.stop:
            ahead = min(ahead, self.own_rounds.start)
        if ahead - self.rounds_begun > WINDOW:
            last = self.rounds_begun + left - (1 if self._inner else 0)  # do one round at least
            self.resume_at = max(self.resume_at, min(ahead, last) if self._inner else ahead)

    async def _keep_in_step(self) -> None:
        begun = self.origin.at(self.rounds_begun + 1, 0)
        before = self.origin.at(self.rounds_begun, 0)
        self.post.reach(begun)
        there = list(filter(self.led.is_for, self.post.present()))
        for party in there:
            if not self.post.peers[party].told.reached(before):
                self.post.peers[party].told = begun
                self.post.tell(party, HEARTBEAT, begun)
        await self.wait_for_a_peer()
        if self.rounds_begun < WINDOW:
            return
        wanted = self.origin.at(self.rounds_begun + 1 - WINDOW, 0)
        if self.sent_once and not self.impatient:
            await self.wait_for_all(lambda party: self.post.peers[party].reached(wanted))
            return
        await self.wait_within_patience(there, wanted, begun, alone=self.impatient)

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
            await self.wait_within_patience(senders, self.at, self.at, alone=True)
        inbox = await self._collect(parcel, passage)
        wait = parcel.wait
        enough = wait.kind == "first" and int(inbox.arrived.sum(1).min()) >= wait.count
        if not inbox.everything and not enough:
            self._note_silence(inbox, links)
        return inbox

    def _note_silence(self, inbox: Inbox, links: Links) -> None:
        for i, r in enumerate(self.here(links.dst)):
            missing = links.real[r] & ~inbox.arrived[i].cpu().numpy()
            self.silent |= {links.src.parties[s] for s in links.senders[r][missing]}
        if self.sent_once and not self.impatient:
            self._announce_missed(self.silent & self.post.peers.keys())

    def _announce_missed(self, parties: set[str]) -> None:
        """Tell everybody from which parties a message that is sent once did not come here."""
        missed = self.post.missed.setdefault(self.origin, set())
        if parties - missed:
            missed |= parties
            self.announce(self.post.parts)

    def _hand_over(self, header: Header, value: Tensor | None, to: str, delay: int) -> None:
        self.post.post(header, value, to)

    def _signature(self) -> dict[str, Any]:
        return self.post.signature(self.at) | {"generation": self.generation}

    async def _wait(
        self, wait: Wait, links: Links, members: list[int], expected: np.ndarray
    ) -> None:
        letters = self.mail.letters
        wanted = [
            (self._key(links, int(links.senders[r, j]), r), links.src.parties[links.senders[r, j]])
            for r in members
            for j in np.nonzero(expected[r])[0]
        ]

        def outstanding() -> list[str]:
            return [
                party
                for key, party in wanted
                if key not in letters and not self._will_not_come(party, wait)
            ]

        def ready() -> bool:
            if wait.kind == "first":
                heard = sum(letters.get(key) is not None for key, _ in wanted)
                return heard >= wait.count or not outstanding()
            return not outstanding()

        self._update_late(party for _, party in wanted)
        limit = None
        if wait.kind == "deadline":
            limit = self.clock.now + int(wait.seconds * SECOND)
        elif self.impatient:
            limit = self.clock.now + int(self.patience * SECOND)
        await self.wait_until(ready, outstanding, limit)

    def _update_late(self, parties: Iterable[str]) -> None:
        """Parties that have caught up are not late any more."""
        lately = self.origin.at(self.rounds_begun - 1, 0)
        for peer in (self.post.peers[p] for p in set(parties) if p in self.post.peers):
            peer.update_late(self.branch, bool(peer.late) and peer.reached(lately))

    def _will_not_come(self, party: str, wait: Wait) -> bool:
        peer = self.post.peers.get(party)
        if peer is None:
            return party != self.party  # not a neighbour of this party
        if party == self.leader and not self.impatient:
            return self._lacks(party)
        if wait.insists and not self.impatient:  # who is away is waited for, however long it takes
            return self._lacks(party) or peer.late.get(self.branch, False)
        late = self.branch in peer.late
        if self.sent_once and not self.impatient:
            return self._lacks(party) or not (peer.there or self.may_return(peer)) or late
        given_up = self.impatient and party in self.silent
        return not peer.there or late or given_up or peer.reached(self.at)

    def _lacks(self, party: str) -> bool:
        """Whether the party said that it no longer has its message of this exchange."""
        return (party, self.at) in self.led.gone

    # -- reading ----------------------------------------------------------------------------------

    def checked(
        self,
        inbox: Inbox,
        src: Group,
        dst: Group,
        fits: Callable[[str, Tensor], bool],
        kind: str,
    ) -> Inbox:
        links, where = self.links(src, dst), inbox.arrived.clone()
        for i, r in enumerate(self.here(dst)):
            for j in np.nonzero(inbox.arrived[i].cpu().numpy())[0]:
                sender = src.parties[links.senders[r, j]]
                if not fits(sender, inbox.raw[i, j]):
                    self.post.refuse(sender, kind)
                    where[i, j] = False
        return inbox.only(where)

    def _opened(self, letter: Tensor, parcel: Parcel, sender: int, receiver: int) -> Tensor | None:
        """Check a received tensor: declared dtype, declared shape, all values finite and within the
        limit of loudness.py. None: it does not fit."""
        channel, width = parcel.channel, parcel.width(sender, receiver)
        shape, kind = (*parcel.shape[:-1], channel.carried_width(width)), channel.carried
        if letter.shape == shape and letter.dtype == kind:
            message = channel.unpack(letter, width)
            size = magnitude(message)
            bounded = channel.bounded and channel.dtype.is_floating_point
            limit = self.post.loudness.limit(channel.kind) if bounded else math.inf
            if size <= limit and size < math.inf:
                self.post.loudness.heard(channel.kind, parcel.links.src.parties[sender], size)
                return message
            found = "numbers that are not finite"
            if size < math.inf:
                found = f"numbers up to {size:.2g}, expected at most {limit:.2g}"
        else:
            found = f"{letter.dtype} {tuple(letter.shape)}"
        # A register may hold a batch of another size, which is not the sender's fault.
        if parcel.wait.kind != "latest" or letter.shape[1:] != shape[1:]:
            party = parcel.links.src.parties[sender]
            detail = f"{found}, expected {kind} {shape}"
            self.post.refuse(party, f"{channel.kind} that does not fit", detail)
        return None
