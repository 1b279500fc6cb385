"""The projected engine in virtual time: this process runs one party.

The same choreography as in the stacked engine, with real messages over a transport in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self, cast

import numpy as np
from torch import Tensor

from colonnade.network.absent import ABSENT, Absent, is_absent
from colonnade.network.clock import SECOND, Clock, Signal
from colonnade.network.inbox import Inbox
from colonnade.network.mail_room import LetterKey, MailRoom
from colonnade.network.network import DECISION, DECISION_BYTES
from colonnade.network.one_party import OnePartyNetwork
from colonnade.network.parcel import Parcel, Wait
from colonnade.network.quota import Store
from colonnade.network.samplers import Passage
from colonnade.network.topology import Group, Links
from colonnade.network.transport.transport import Transport
from colonnade.network.wire import Header, decode, encode
from colonnade.network.world import Program, Run, World

HERE = "here"  # says that a party has come so far; see `Network.meet`


@dataclass
class _Party:
    """What the programs of one party share."""

    transport: Transport
    mail: MailRoom = field(default_factory=MailRoom)
    news: Signal = field(default_factory=Signal)
    free: int = 0  # nanoseconds: when it has computed what it was asked to

    def put(self, sender: str, header: Header, value: Tensor | None) -> None:
        self.mail.put(sender, header, value)
        self.news.notify()

    async def compute(self, clock: Clock, work: int) -> None:
        """For so many nanoseconds, once this party is done with what was asked before."""
        self.free = max(clock.now, self.free) + work
        await clock.sleep_until(self.free)


class ProjectedNetwork(OnePartyNetwork):
    def __init__(
        self, world: World, transport: Transport, program: str = "main", own: _Party | None = None
    ) -> None:
        self.own = own or _Party(transport)
        super().__init__(world, transport.party, transport.clock, self.own.mail, program)
        if own is None:
            transport.listen(
                lambda sender, data: self.own.put(sender, *decode(data)),
                lambda party, there, life: None,
            )

    async def agree(
        self, value: Tensor | Absent, src: Group, count: int, kind: str = DECISION
    ) -> list[float]:
        self.step += 1
        links = self.links(src, self.everyone)
        key = self._key(links, 0, self.everyone.parties.index(self.party))
        if is_absent(value):
            await self._until(lambda: key in self.mail.letters, None)
            return cast(Tensor, self.mail.letters.pop(key)).tolist()
        decision = value.reshape(count).float()
        for receiver, party in enumerate(self.everyone.parties):
            if party != self.party:
                self._hand_over(self._header(links, 0, receiver, kind), decision, party, 0)
        self.ledger.add(self.phase, kind, links, None, count * DECISION_BYTES)
        return decision.tolist()

    async def meet(self) -> None:
        self.step += 1
        links = self.links(self.everyone, self.everyone)
        me, others = self.everyone.parties.index(self.party), self.everyone.parties
        for receiver, party in enumerate(others):
            if receiver != me:
                self._hand_over(
                    self._header(links, me, receiver, HERE, nothing=True), None, party, 0
                )
        keys = [self._key(links, sender, me) for sender in range(len(others)) if sender != me]
        await self._until(lambda: all(key in self.mail.letters for key in keys), None)
        for key in keys:
            self.mail.letters.pop(key)
        await self.clock.turn(*self.turn)

    async def concurrently(self, *programs: Run | Program, counter: Group | None = None) -> None:
        runs = [self._run_of(program) for program in programs]
        children = self._children_of(len(programs))
        tasks = [
            self.clock.spawn(run(child), f"{self.party}: {child.program}")
            for run, child in zip(runs, children, strict=True)
        ]
        await self.clock.join(tasks)
        self._joined(children)

    def _beside(self, program: str) -> Self:
        return type(self)(self.world, self.own.transport, program, self.own)

    async def _exchange(self, parcel: Parcel, passage: Passage) -> Inbox:
        links = parcel.links
        transfer = np.zeros(links.shape, dtype=np.int64)
        computing = np.zeros(len(links.src), dtype=np.int64)
        if self._delays is not None:
            computing = self._delays.compute(links.src, parcel.work)
            transfer = self._delays.transfer(links, parcel.bytes, parcel.channel.kind)
        transfer = transfer + parcel.late(passage)
        if senders := self.here(links.src):
            if work := max(int(computing[s]) for s in senders):
                await self.own.compute(self.clock, work)
            self._post(parcel, passage, transfer)
        if parcel.wait.kind == "latest":
            # Turns: everybody posts, then everybody reads. So parties that never wait for a message
            # stay in step as long as nothing takes time.
            await self.clock.sleep_until(self.clock.now)
        inbox = cast(Inbox, ABSENT)
        if self.here(links.dst):
            inbox = await self._collect(parcel, passage)
        if parcel.wait.kind == "latest":
            await self.clock.sleep_until(self.clock.now)
        return inbox

    def _hand_over(self, header: Header, value: Tensor | None, to: str, delay: int) -> None:
        if to == self.party:
            self.own.put(to, header, value)
        else:
            self.own.transport.publish(to, encode(header, value), delay)

    async def _wait(
        self, wait: Wait, links: Links, members: list[int], expected: np.ndarray
    ) -> None:
        keys = [
            self._key(links, int(links.senders[r, j]), r)
            for r in members
            for j in np.nonzero(expected[r])[0]
        ]
        letters = self.mail.letters
        if wait.kind == "deadline":
            limit = self.clock.now + int(wait.seconds * SECOND)
            if int(links.real[members].sum()) > len(keys):
                await self.clock.sleep_until(limit)  # something will not come: we cannot know
            else:
                await self._until(lambda: all(key in letters for key in keys), limit)
        elif wait.kind == "first":
            await self._until(lambda: _heard(letters, keys, wait.count), None)
        else:
            await self._until(lambda: all(key in letters for key in keys), None)

    async def _until(self, ready: Callable[[], bool], limit: int | None) -> None:
        while not ready():
            if limit is not None and self.clock.now >= limit:
                return
            await self.clock.wait(self.own.news, limit)


def _heard(letters: Store[LetterKey, Tensor | None], keys: list[LetterKey], count: int) -> bool:
    there = [key for key in keys if key in letters]
    return sum(letters.get(key) is not None for key in there) >= count or len(there) == len(keys)
