"""The projected engine: this process runs one party.

The same choreography as in the stacked engine, with real messages. What belongs to other parties is
absent; what did not arrive is False in the same mask.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor

from colonnade.network.absent import ABSENT, Absent, is_absent
from colonnade.network.clock import SECOND, Clock, Signal
from colonnade.network.faults import Phase
from colonnade.network.inbox import Inbox
from colonnade.network.network import (
    DECISION,
    DECISION_BYTES,
    Network,
    Place,
    World,
    seconds,
)
from colonnade.network.parcel import Parcel, Wait
from colonnade.network.samplers import Passage
from colonnade.network.topology import Group, Links
from colonnade.network.transport.transport import Transport
from colonnade.network.wire import Header, decode, encode

Key = tuple[Place, str, int, str, int]  # place, source, sender, destination, receiver
Box = tuple[str, str, int, str, int, str]  # program, source, sender, destination, receiver, kind


@dataclass
class Mailbox:
    """What has arrived for this party and was not read yet. Shared by its programs."""

    letters: dict[Key, Tensor | None] = field(default_factory=dict)  # None: "nothing to say"
    registers: dict[Box, Tensor] = field(default_factory=dict)
    written: dict[Box, Place] = field(default_factory=dict)  # place of the newest
    passed: dict[str, Place] = field(default_factory=dict)  # by program
    news: Signal = field(default_factory=Signal)

    def put(self, header: Header, value: Tensor | None) -> None:
        h = header
        if h.register and value is not None:
            box = (h.program, h.src, h.sender, h.dst, h.receiver, h.kind)
            if h.place > self.written.get(box, ()):  # an older one came later
                self.registers[box], self.written[box] = value, h.place
        elif not h.register and h.place > self.passed.get(h.program, ()):
            self.letters[(h.place, h.src, h.sender, h.dst, h.receiver)] = value
        self.news.notify()


class ProjectedNetwork(Network):
    def __init__(
        self,
        world: World,
        transport: Transport,
        program: str = "main",
        mailbox: Mailbox | None = None,
    ) -> None:
        super().__init__(world, program)
        self.party = transport.party
        self.transport = transport
        self.clock: Clock = transport.clock
        self.mailbox = mailbox or Mailbox()
        if mailbox is None:
            transport.listen(
                lambda sender, data: self.mailbox.put(*decode(data)),
                lambda party, there, life: None,
            )

    def here(self, group: Group) -> Sequence[int]:
        return [i for i, party in enumerate(group.parties) if party == self.party]

    @property
    def now(self) -> float:
        return seconds(self.clock.now)

    def within(self, phase: Phase) -> Self:
        return self._within(self._beside(f"{self.program}.{self.round}.{phase}"), phase)

    async def agree(self, value: Tensor | Absent, src: Group, count: int) -> list[float]:
        self.step += 1
        links = self.links(src, self.everyone)
        key = self._key(links, 0, self.everyone.parties.index(self.party))
        if is_absent(value):
            await self._until(lambda: key in self.mailbox.letters, None)
            return cast(Tensor, self.mailbox.letters.pop(key)).tolist()
        decision = value.reshape(count).float()
        for receiver, party in enumerate(self.everyone.parties):
            if party != self.party:
                header = self._header(links, 0, receiver, DECISION)
                self.transport.publish(party, encode(header, decision))
        self.ledger.add(self.phase, DECISION, links, None, count * DECISION_BYTES)
        return decision.tolist()

    async def concurrently(self, *programs: Callable[[Self], Coroutine[Any, Any, None]]) -> None:
        self.step += 1
        tasks = []
        for k, program in enumerate(programs):
            child = self._child(self._beside(self._child_name()), (*self.at, ~k))
            tasks.append(self.clock.spawn(program(child), f"{self.party}: {child.program}"))
        await self.clock.join(tasks)

    def _beside(self, program: str) -> Self:
        """Another program of this party."""
        return type(self)(self.world, self.transport, program, self.mailbox)

    async def _exchange(self, parcel: Parcel, passage: Passage) -> Inbox:
        links = parcel.links
        transfer = np.zeros(links.shape, dtype=np.int64)
        computing = np.zeros(len(links.src), dtype=np.int64)
        if self._delays is not None:
            computing = self._delays.compute(links.src)
            sizes = np.broadcast_to(np.asarray(parcel.bytes), links.shape)
            transfer = self._delays.transfer(links, sizes)
        transfer = transfer + parcel.late(passage)
        if senders := self.here(links.src):
            if work := max(int(computing[s]) for s in senders):
                await self.clock.sleep_until(self.clock.now + work)
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

    # -- sending ----------------------------------------------------------------------------------

    def _post(self, parcel: Parcel, passage: Passage, transfer: np.ndarray) -> None:
        links = parcel.links
        members = list(self.here(links.src))
        counted = np.zeros(links.shape, dtype=bool)
        for r, j in links.of_senders(tuple(members)):
            sender, receiver, slot = int(links.senders[r, j]), r, int(links.outgoing[r, j])
            if passage.sent is not None and not passage.sent[r, j]:
                continue
            value = _message(parcel, members.index(sender), sender, receiver, slot)
            counted[r, j] = value is not None
            lost = passage.arrived is not None and not passage.arrived[r, j]
            if not lost:
                self._deliver(parcel, sender, receiver, value, int(transfer[r, j]))
        self.ledger.add(self.phase, parcel.channel.kind, links, counted, parcel.bytes)

    def _deliver(
        self, parcel: Parcel, sender: int, receiver: int, value: Tensor | None, delay: int
    ) -> None:
        register = parcel.wait.kind == "latest"
        if register and value is None:
            return
        kind, nothing = parcel.channel.kind, value is None
        header = self._header(parcel.links, sender, receiver, kind, register, nothing)
        self._hand_over(header, value, parcel.links.dst.parties[receiver], delay)

    def _hand_over(self, header: Header, value: Tensor | None, to: str, delay: int) -> None:
        if to == self.party:
            self.mailbox.put(header, value)
        else:
            self.transport.publish(to, encode(header, value), delay)

    def _header(
        self,
        links: Links,
        sender: int,
        receiver: int,
        kind: str,
        register: bool = False,
        nothing: bool = False,
    ) -> Header:
        ends = (links.src.name, sender, links.dst.name, receiver)
        return self._signed(Header(self.program, self.at, *ends, kind, register, nothing))

    def _signed(self, header: Header) -> Header:
        """With what the engine adds."""
        return header

    # -- receiving --------------------------------------------------------------------------------

    async def _collect(self, parcel: Parcel, passage: Passage) -> Inbox:
        links, members = parcel.links, list(self.here(parcel.links.dst))
        expected = links.real if passage.arrived is None else links.real & passage.arrived
        if parcel.wait.kind == "latest":
            read = self._read_register
        else:
            await self._wait(parcel.wait, links, members, expected)
            read = self._read_letter
        self._pass()
        dtype = parcel.channel.dtype
        value = torch.zeros(len(members), links.shape[1], *parcel.shape, dtype=dtype)
        arrived = torch.zeros(len(members), links.shape[1], dtype=torch.bool)
        for i, r in enumerate(members):
            for j in np.nonzero(links.real[r])[0]:
                letter = read(parcel, int(links.senders[r, j]), r)
                if letter is not None and self._fits(letter, parcel, int(links.senders[r, j]), r):
                    value[i, j, ..., : letter.shape[-1]] = letter
                    arrived[i, j] = True
        return Inbox(value, arrived, bool(arrived.all()), parcel.slot_widths)

    async def _wait(
        self, wait: Wait, links: Links, members: list[int], expected: np.ndarray
    ) -> None:
        keys = [
            self._key(links, int(links.senders[r, j]), r)
            for r in members
            for j in np.nonzero(expected[r])[0]
        ]
        letters = self.mailbox.letters
        if wait.kind == "deadline":
            if int(links.real[members].sum()) > len(
                keys
            ):  # something will not come: we cannot know
                await self.clock.sleep_until(self.clock.now + int(wait.seconds * SECOND))
            else:
                limit = self.clock.now + int(wait.seconds * SECOND)
                await self._until(lambda: all(key in letters for key in keys), limit)
        elif wait.kind == "first":
            await self._until(lambda: _heard(letters, keys, wait.count), None)
        else:
            await self._until(lambda: all(key in letters for key in keys), None)

    async def _until(self, ready: Callable[[], bool], limit: int | None) -> None:
        while not ready():
            if limit is not None and self.clock.now >= limit:
                return
            await self.clock.wait(self.mailbox.news, limit)

    def _key(self, links: Links, sender: int, receiver: int) -> Key:
        return (self.at, links.src.name, sender, links.dst.name, receiver)

    def _pass(self) -> None:
        """What comes now for this exchange is too late."""
        self.mailbox.passed[self.program] = self.at

    def _fits(self, letter: Tensor, parcel: Parcel, sender: int, receiver: int) -> bool:
        """A register may hold a batch of another size."""
        assert letter.dtype == parcel.channel.dtype
        return letter.shape[:-1] == parcel.shape[:-1]

    def _read_letter(self, parcel: Parcel, sender: int, receiver: int) -> Tensor | None:
        return self.mailbox.letters.pop(self._key(parcel.links, sender, receiver), None)

    def _read_register(self, parcel: Parcel, sender: int, receiver: int) -> Tensor | None:
        src, dst = parcel.links.src.name, parcel.links.dst.name
        box = (self.program, src, sender, dst, receiver, parcel.channel.kind)
        return self.mailbox.registers.pop(box, None)


def _heard(letters: dict[Key, Tensor | None], keys: list[Key], count: int) -> bool:
    there = [key for key in keys if key in letters]
    return sum(letters[key] is not None for key in there) >= count or len(there) == len(keys)


def _message(parcel: Parcel, member: int, sender: int, receiver: int, slot: int) -> Tensor | None:
    """What this sender tells this receiver; None if it has nothing to say."""
    value, where = cast(Tensor, parcel.value), cast("Tensor | None", parcel.where)
    if where is not None and not (where[member, slot] if where.dim() == 2 else where[member]):
        return None
    part = value[member, slot] if parcel.channel.each else value[member]
    return part.detach()[..., : parcel.width(sender, receiver)]
