"""What each party received in a training, row by row.

The recorder is the hook `Network.recorder`: it is called after every exchange, with what arrived.
It keeps messages about a sample of the training rows to a few receivers of each group, by sender
and kind: of every epoch, or of epochs 1 to 4, of two epochs in each doubling after that, and of the
newest one. With the latter a long training needs little more memory and time than a short one. For
attackers with a memory it keeps one number of each row and epoch (memory.py).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.experiments.audit.memory import Memory, Sides
from colonnade.learning.task import Batch, LocalBatch
from colonnade.network import Inbox, Network
from colonnade.network.channel import Channel
from colonnade.network.topology import Group, Links
from colonnade.privacy import attacks

Floats = NDArray[np.float64]
LEARNING = ("training", "supervision")
EVERY = 4  # epochs of which every one is kept, and twice as many as of each doubling after that
DIGEST = 64  # rows by which it is seen whether two receivers were sent the same


@dataclass(frozen=True, order=True)
class Stream:
    """Messages of one kind from one party to another, in one epoch."""

    epoch: int
    receiver: str
    sender: str
    kind: str

    @property
    def link(self) -> tuple[str, str, str]:
        return self.receiver, self.sender, self.kind

    @property
    def own(self) -> bool:
        """Of a party to itself: what it computed with labels of its own."""
        return self.receiver == self.sender


@dataclass
class Seen:
    """What came of each row of the sample."""

    values: NDArray[np.float32]  # [sample, numbers]
    there: NDArray[np.bool_]  # which rows

    def of(self, rows: NDArray[np.int64]) -> Floats:
        return self.values[rows].astype(np.float64)

    @cached_property
    def digest(self) -> int:
        """Equal for receivers that were sent the same."""
        step = max(1, len(self.values) // DIGEST)
        return zlib.crc32(self.there.tobytes(), zlib.crc32(self.values[::step].tobytes()))


@dataclass
class Part:
    """What came over the links of one lane about rows of one batch."""

    places: NDArray[np.int64]  # of the rows in the sample
    came: NDArray[np.bool_]  # over which links, [receivers, slots]
    told: Tensor  # [receivers, slots, places, numbers]; of one receiver: all were sent the same


class Page:
    """What came over the links of one lane in one epoch. It is put together when somebody reads it:
    that is much faster than batch by batch."""

    def __init__(self, sample: int) -> None:
        self.sample, self._parts = sample, list[Part]()

    def add(self, part: Part) -> None:
        self._parts.append(part)

    @cached_property
    def there(self) -> NDArray[np.bool_]:
        """[receivers, slots, sample]"""
        there = np.zeros((*self._parts[0].came.shape, self.sample), dtype=bool)
        for part in self._told:
            there[:, :, part.places] |= part.came[:, :, None]
        return there

    @cached_property
    def values(self) -> NDArray[np.float32]:
        """[receivers, slots, sample, numbers]; of one receiver: all were sent the same."""
        parts, (_, slots, _, width) = self._told, self._parts[0].told.shape
        receivers = max(len(part.told) for part in parts)
        whole = [part.told[..., :width].expand(receivers, -1, -1, -1) for part in parts]
        values = np.zeros((receivers, slots, self.sample, width), dtype=np.float32)
        places = np.concatenate([part.places for part in parts])
        values[:, :, places] = torch.cat(whole, 2).float().numpy()
        _ = self.there
        self._parts = self._parts[:1]
        return values

    @property
    def _told(self) -> list[Part]:
        """Behind the blocks about rows there may be something else, such as a head: as many numbers
        as the first batch had."""
        return [one for one in self._parts if one.told.shape[3] >= self._parts[0].told.shape[3]]

    def seen(self, receiver: int, slot: int) -> Seen:
        values = self.values[min(receiver, len(self.values) - 1), slot]
        there = self.there[receiver, slot]
        return Seen(values if there.all() else np.where(there[:, None], values, 0), there)


class Lane:
    """Messages of one kind from one group to another: to which of its members they are recorded,
    and the pages by epoch."""

    def __init__(self, links: Links, kind: str, chosen: Callable[[str], bool]) -> None:
        self.links, self.kind = links, kind
        mine = np.nonzero(links.real.any(1))[0]
        self.receivers = [int(r) for r in mine if chosen(links.dst.parties[r])]
        self.whole = len(self.receivers) == len(links.dst.parties)
        self.pages: dict[int, Page] = {}
        self.memory: Memory | None = None  # None: no receiver has one

    def mine(self, value: Tensor) -> Tensor:
        """What the recorded receivers got; where all got the same, what one of them got."""
        if value.stride(0) == 0:
            return value[:1]
        return value if self.whole else value[self.receivers]

    def streams(self, epoch: int) -> Iterator[tuple[Stream, Seen]]:
        page = self.pages[epoch]
        for k, r in enumerate(self.receivers):
            for j in np.nonzero(page.there[k].any(1))[0]:
                sender = self.links.src.parties[self.links.senders[r, j]]
                stream = Stream(epoch, self.links.dst.parties[r], sender, self.kind)
                yield stream, page.seen(k, int(j))


class Recorder:
    def __init__(
        self,
        rows: int,
        seed: int,
        chosen: Callable[[str], bool],
        *,
        alone: int = 0,
        remembers: Callable[[str], bool],
        every_epoch: bool = False,
    ) -> None:
        """`rows`: of the training data. `chosen`: whether what a receiver gets is kept. `alone`:
        epochs at first in which column holders learn without labels. `remembers`: whether a
        receiver is played as an attacker with a memory."""
        self.rows, self.chosen, self.alone, self.remembers = rows, chosen, alone, remembers
        self.every_epoch = every_epoch
        self._order = np.random.default_rng(seed).permutation(rows)
        self.sample = self._order[: attacks.MOST]
        self._place = np.full(rows, -1)  # in the sample, by row
        self._place[self.sample] = np.arange(len(self.sample))
        self.lanes: dict[tuple[Group, Group, str], Lane] = {}

    def __call__(self, net: Network, channel: Channel, inbox: Inbox) -> None:
        batch, epoch = net.item, self._epoch(net.item)
        if net.phase not in LEARNING or epoch is None or inbox.raw.dim() != 4:
            return
        rows, value = batch.rows.numpy(), inbox.raw  # [receivers, slots, rows, width]
        lane = self._lane(net, channel, len(rows), value)
        if not lane.receivers or value.shape[2] < len(rows) or rows.max(initial=0) >= self.rows:
            return  # the latter: about rows without a label
        places = self._place[rows]
        known = np.nonzero(places >= 0)[0]
        came = inbox.arrived.numpy()
        if not lane.whole:
            came = came[lane.receivers]
        if lane.memory is not None:
            every = about_rows(lane.mine(value), len(rows), np.arange(len(rows)))
            lane.memory.add(epoch, rows, every, came)
        if len(known):
            told = about_rows(lane.mine(value), len(rows), known)
            page = lane.pages.get(epoch) or self._turn(lane, epoch)
            page.add(Part(places[known], came, told))

    def _lane(self, net: Network, channel: Channel, rows: int, first: Tensor) -> Lane:
        """A message with fewer lines than its batch has rows, such as a model, is not about single
        rows; and neither are those after it, whose batch may be shorter."""
        key = channel.src, channel.dst, channel.kind
        if key not in self.lanes:
            chosen = self.chosen if first.shape[2] >= rows > 0 else lambda receiver: False
            lane = Lane(net.links(channel.src, channel.dst), channel.kind, chosen)
            if any(self.remembers(lane.links.dst.parties[r]) for r in lane.receivers):
                lane.memory = Memory(self._order)
            self.lanes[key] = lane
        return self.lanes[key]

    def _epoch(self, batch: Any) -> int | None:
        """None: not about rows that all parties have."""
        if isinstance(batch, LocalBatch):
            return batch.epoch if batch.aligned else None
        return self.alone + batch.epoch if isinstance(batch, Batch) else None

    def _turn(self, lane: Lane, epoch: int) -> Page:
        """A new page; of the pages before, those that are not kept are thrown away."""
        for old in [one for one in lane.pages if one < epoch]:
            if not (self.every_epoch or kept(old + 1)):
                del lane.pages[old]
        lane.pages[epoch] = Page(len(self.sample))
        return lane.pages[epoch]

    @cached_property
    def streams(self) -> dict[Stream, Seen]:
        """All that is kept, in order; when the training is over."""
        found: dict[Stream, Seen] = {}
        for lane in self.lanes.values():
            for epoch in lane.pages:
                for stream, seen in lane.streams(epoch):
                    found[stream] = _both(found[stream], seen) if stream in found else seen
        return dict(sorted(found.items(), key=lambda one: one[0]))

    def remembered(self, receiver: str) -> Iterator[Sides]:
        """What a party has of each row from all epochs, from each sender."""
        for lane in self.lanes.values():
            parties = [lane.links.dst.parties[r] for r in lane.receivers]
            if lane.memory is not None and receiver in parties and self.remembers(receiver):
                yield from lane.memory.of(parties.index(receiver))

    @cached_property
    def _by_receiver(self) -> dict[str, list[tuple[Stream, Seen]]]:
        found: dict[str, list[tuple[Stream, Seen]]] = {}
        for stream, seen in self.streams.items():
            if not stream.own:
                found.setdefault(stream.receiver, []).append((stream, seen))
        return found

    def streams_to(self, receiver: str) -> list[tuple[Stream, Seen]]:
        """From others."""
        return self._by_receiver.get(receiver, [])

    def together(self, receiver: str) -> Iterator[tuple[int, Seen]]:
        """By epoch: all that a party got about the rows of which it got everything, side by side.
        Nothing for epochs in which only one party sent something."""
        for epoch in self.epochs(receiver):
            mine = [seen for s, seen in self.streams_to(receiver) if s.epoch == epoch]
            if len(mine) > 1:
                there = np.logical_and.reduce([seen.there for seen in mine])
                yield epoch, Seen(np.concatenate([m.values for m in mine], 1), there)

    def pairs(self) -> list[tuple[str, str]]:
        """Who got anything from whom else."""
        return sorted({(s.receiver, s.sender) for s in self.streams if not s.own})

    def epochs(self, receiver: str) -> list[int]:
        """In which it got anything."""
        return sorted({stream.epoch for stream, _ in self.streams_to(receiver)})


def about_rows(value: Tensor, rows: int, known: NDArray[np.int64]) -> Tensor:
    """The numbers about some rows of a batch of `rows`. There may be several about each row, one
    block of rows after the other. [receivers, slots, known, numbers]"""
    at, blocks = torch.from_numpy(known), value.shape[2] // rows
    if blocks == 1:
        return value.index_select(2, at)
    cut = value[:, :, : blocks * rows].unflatten(2, (blocks, rows)).index_select(3, at)
    return cut.movedim(2, 3).flatten(3)


def _both(one: Seen, other: Seen) -> Seen:
    """Of one link that belongs to two lanes: the groups of an exchange, and a part of them."""
    return Seen(np.where(other.there[:, None], other.values, one.values), one.there | other.there)


def kept(epoch: int) -> bool:
    """Whether an epoch is kept when a later one begins; 1 is the first."""
    doublings = max(0, (epoch // EVERY).bit_length())
    return epoch % 2**doublings == 0
