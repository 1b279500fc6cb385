"""What the engines have in common in which a process runs one party: messages out, messages in.

What belongs to other parties is absent; what did not arrive is False in the inbox's mask.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor

from colonnade.network.clock import Clock
from colonnade.network.faults import Phase
from colonnade.network.inbox import Inbox
from colonnade.network.mail_room import LetterKey, MailRoom
from colonnade.network.network import Network, seconds
from colonnade.network.parcel import Parcel, Wait
from colonnade.network.samplers import Passage
from colonnade.network.topology import Group, Links
from colonnade.network.wire import Header
from colonnade.network.world import World


class OnePartyNetwork(Network):
    """The programs of a party share its mail, its clock and its way to the others."""

    def __init__(
        self, world: World, party: str, clock: Clock, mail: MailRoom, program: str
    ) -> None:
        super().__init__(world, program)
        self.party, self.clock, self.mail = party, clock, mail

    def here(self, group: Group) -> Sequence[int]:
        return [i for i, party in enumerate(group.parties) if party == self.party]

    @property
    def now(self) -> float:
        return seconds(self.clock.now)

    def within(self, phase: Phase) -> Self:
        return self._within(self._beside(f"{self.program}.{self.round}.{phase}"), phase)

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

    @abstractmethod
    def _hand_over(self, header: Header, value: Tensor | None, to: str, delay: int) -> None:
        """Send a message, which may be one to this party itself."""

    def _header(
        self,
        links: Links,
        sender: int,
        receiver: int,
        kind: str,
        register: bool = False,
        nothing: bool = False,
    ) -> Header:
        return Header(
            self.at, *_ends(links, sender, receiver), kind, register, nothing, **self._signature()
        )

    def _signature(self) -> dict[str, Any]:
        """What the engine adds to every header."""
        return {}

    # -- receiving --------------------------------------------------------------------------------

    @abstractmethod
    async def _wait(
        self, wait: Wait, links: Links, members: list[int], expected: np.ndarray
    ) -> None:
        """Until what is expected is there, or will not come, or is not waited for."""

    async def _collect(self, parcel: Parcel, passage: Passage) -> Inbox:
        links, members = parcel.links, list(self.here(parcel.links.dst))
        expected = links.real if passage.arrived is None else links.real & passage.arrived
        if parcel.wait.kind == "latest":
            read = self._read_register
        else:
            await self._wait(parcel.wait, links, members, expected)
            read = self._read_letter
        self.mail.passes(self.at)
        dtype = parcel.channel.dtype
        value = torch.zeros(len(members), links.shape[1], *parcel.shape, dtype=dtype)
        arrived = torch.zeros(len(members), links.shape[1], dtype=torch.bool)
        for i, r in enumerate(members):
            for j in np.nonzero(links.real[r])[0]:
                sender = int(links.senders[r, j])
                letter = read(parcel, sender, r)
                message = None if letter is None else self._opened(letter, parcel, sender, r)
                if message is not None:
                    value[i, j, ..., : message.shape[-1]] = message
                    arrived[i, j] = True
        return Inbox(value, arrived, bool(arrived.all()), parcel.slot_widths)

    def _key(self, links: Links, sender: int, receiver: int) -> LetterKey:
        return (self.at, *_ends(links, sender, receiver))

    def _opened(self, letter: Tensor, parcel: Parcel, sender: int, receiver: int) -> Tensor | None:
        """A message as it was sent; None if it does not fit: a register may hold a batch of another
        size."""
        assert letter.dtype == parcel.channel.carried
        if letter.shape[:-1] != parcel.shape[:-1]:
            return None
        return parcel.channel.unpack(letter, parcel.width(sender, receiver))

    def _read_letter(self, parcel: Parcel, sender: int, receiver: int) -> Tensor | None:
        return self.mail.letters.pop(self._key(parcel.links, sender, receiver))

    def _read_register(self, parcel: Parcel, sender: int, receiver: int) -> Tensor | None:
        ends = _ends(parcel.links, sender, receiver)
        return self.mail.read_register((self.at.branch, *ends, parcel.channel.kind), self.at)


def _ends(links: Links, sender: int, receiver: int) -> tuple[str, int, str, int]:
    """Sender and receiver by declared group and place in it, as messages name them."""
    src, dst = links.src, links.dst
    return src.declared, src.place + sender, dst.declared, dst.place + receiver


def _message(parcel: Parcel, member: int, sender: int, receiver: int, slot: int) -> Tensor | None:
    """What this sender tells this receiver; None if it has nothing to say."""
    value, where = cast(Tensor, parcel.value), cast("Tensor | None", parcel.where)
    if where is not None and not (where[member, slot] if where.dim() == 2 else where[member]):
        return None
    part = value[member, slot] if parcel.channel.each else value[member]
    return parcel.channel.pack(part.detach()[..., : parcel.width(sender, receiver)])
