"""One exchange as an order: what is sent over which links, and when its receivers go on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
from torch import Tensor

from colonnade.network.absent import Absent
from colonnade.network.channel import Channel
from colonnade.network.clock import SECOND
from colonnade.network.samplers import Passage
from colonnade.network.topology import Links

RETRY = 1.0  # seconds until a party that must be heard sends again


@dataclass(frozen=True)
class Wait:
    """When a receiver goes on."""

    kind: Literal["all", "everyone", "deadline", "first", "latest"]
    seconds: float = 0.0
    count: int = 0
    insists: bool = False  # until it is fulfilled, however many attempts that takes


ALL = Wait("all")  # everything that can still come: not for parties and links known to be down
# Every sender, however many attempts it takes; PartyLost if it never comes.
EVERYONE = Wait("everyone", insists=True)
LATEST = Wait("latest")  # never: take what is there


def deadline(seconds: float) -> Wait:
    """So long; what comes later is missing."""
    return Wait("deadline", seconds=seconds)


def first(count: int, *, insist: bool = False) -> Wait:
    """Until so many messages are there; the others are missing. `insist`: failed attempts are
    repeated, and real parties that are away are waited for, until there are so many."""
    return Wait("first", count=count, insists=insist)


@dataclass(frozen=True)
class Parcel:
    """The arguments of one `send`."""

    value: Tensor | Absent
    channel: Channel
    links: Links
    shape: tuple[int, ...]  # of one message
    wait: Wait
    where: Tensor | Absent | None
    work: float = 1.0  # what the senders compute for it, in plain steps

    @property
    def slot_widths(self) -> tuple[int, ...] | None:
        """The widths by slot of a receiver. Unequal widths mean that all receivers hear the same
        senders."""
        widths = self.channel.widths
        if widths is None or self.channel.by_receiver:
            return None
        if (self.links.senders != self.links.senders[0]).any():
            raise ValueError("unequal widths need receivers that all hear the same senders")
        return tuple(widths[s] for s in self.links.senders[0])

    def late(self, passage: Passage) -> np.ndarray | int:
        """Nanoseconds that failed attempts cost, by receiver and slot."""
        if passage.attempts is None:
            return 0
        return (passage.attempts - 1) * int(RETRY * SECOND)

    def width(self, sender: int, receiver: int) -> int:
        """The true size of the last axis of one message."""
        if self.channel.widths is None:
            return self.shape[-1]
        return self.channel.widths[receiver if self.channel.by_receiver else sender]

    @property
    def bytes(self) -> int | np.ndarray:
        """The size of one message, or of each where widths differ. [receivers, slots]"""
        channel, links = self.channel, self.links
        rows, size = math.prod(self.shape[:-1]), channel.carried.itemsize
        if channel.widths is None:
            return rows * channel.carried_width(self.shape[-1]) * size
        receivers = np.arange(len(links.dst))[:, None]
        by = np.broadcast_to(receivers, links.shape) if channel.by_receiver else links.senders
        return rows * np.array([channel.carried_width(w) for w in channel.widths])[by] * size

    def chosen(self) -> np.ndarray | None:
        """What there is to say, by receiver and slot; None: everything. Needs all senders here."""
        if self.where is None:
            return None
        where = cast(Tensor, self.where).cpu().numpy()
        if where.ndim == 1:
            return where[self.links.senders]
        return where.reshape(-1)[self.links.gather_addressed.numpy()].reshape(self.links.shape)
