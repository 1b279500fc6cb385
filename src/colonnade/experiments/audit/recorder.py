"""What each party received in a training, row by row.

The recorder is the hook `Network.recorder`: it is called after every exchange, with what arrived.
It keeps messages about rows of the training data, by receiver, sender and kind: of epochs 1, 2, 4,
8 and so on, and of the newest one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from colonnade.learning.task import Batch
from colonnade.network import Inbox, Network
from colonnade.network.channel import Channel
from colonnade.privacy import attacks

Floats = NDArray[np.float64]
LEARNING = ("training", "supervision")


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


@dataclass
class Seen:
    """What came of each row. [rows, numbers]"""

    values: Floats
    there: NDArray[np.bool_]  # which rows

    @property
    def rows(self) -> NDArray[np.int64]:
        return np.nonzero(self.there)[0]


@dataclass
class Recorder:
    rows: int  # of the training data
    streams: dict[Stream, Seen] = field(default_factory=dict)
    # By receiver, sender and kind: the sides of each row along the direction in which rows differ
    # most, added up over all epochs. For attackers with a memory.
    sides: dict[tuple[str, str, str], Floats] = field(default_factory=dict)
    _folded: set[Stream] = field(default_factory=set)

    def __call__(self, net: Network, channel: Channel, inbox: Inbox) -> None:
        batch = net.item
        if net.phase not in LEARNING or not isinstance(batch, Batch):
            return
        value, rows = inbox.value, batch.rows.numpy()  # [receivers, slots, rows, width]
        if value.dim() != 4 or not len(rows) or value.shape[2] < len(rows):
            return  # not about single rows, such as a model
        if rows.max() >= self.rows:
            return  # about rows without a label
        if value.shape[2] > len(rows):  # several numbers about each row, one block after the other
            blocks = value.shape[2] // len(rows)
            cut = value[:, :, : blocks * len(rows)].unflatten(2, (blocks, len(rows)))
            value = cut.movedim(2, 3).flatten(3)
        links = net.links(channel.src, channel.dst)
        arrived = inbox.arrived.numpy() & links.real
        for r, receiver in enumerate(channel.dst.parties):
            for j in np.nonzero(arrived[r])[0]:
                sender = channel.src.parties[links.senders[r, j]]
                if sender != receiver:
                    stream = Stream(batch.epoch, receiver, sender, channel.kind)
                    self._keep(stream, rows, value[r, j].double().numpy())

    def _keep(self, stream: Stream, rows: NDArray[np.int64], value: Floats) -> None:
        seen = self.streams.get(stream)
        if seen is None:
            self._forget_before(stream)
            empty = np.zeros((self.rows, value.shape[1]))
            seen = self.streams[stream] = Seen(empty, np.zeros(self.rows, dtype=bool))
        # Behind the blocks about rows there may be something else, such as a head: as many numbers
        # as the first batch had.
        width = seen.values.shape[1]
        if value.shape[1] >= width:
            seen.values[rows], seen.there[rows] = value[:, :width], True

    def _forget_before(self, new: Stream) -> None:
        """Of earlier epochs, only the first, second, fourth, eighth and so on are kept."""
        for old in [s for s in self.streams if s.link == new.link and s.epoch < new.epoch]:
            self._fold(old)
            if not _power_of_two(old.epoch + 1):
                del self.streams[old]

    def _fold(self, stream: Stream) -> None:
        """Add an epoch to `sides`. Which side is which is not known: the one that agrees more with
        the epochs before."""
        if stream in self._folded:
            return
        self._folded.add(stream)
        seen = self.streams[stream]
        side = np.where(seen.there, attacks.sides(seen.values), 0.0)
        before = self.sides.setdefault(stream.link, np.zeros(self.rows))
        before += side if before @ side >= 0 else -side

    def remembered(self, receiver: str) -> list[tuple[int, Seen]]:
        """What a party has of each row from all epochs together, from each sender; and how many
        epochs that are."""
        for stream in list(self.streams):
            self._fold(stream)
        found = []
        for link, side in self.sides.items():
            epochs = sum(stream.link == link for stream in self._folded)
            if link[0] == receiver and epochs > 1:
                found.append((epochs, Seen(side[:, None], side != 0)))
        return found

    def streams_to(self, receiver: str) -> list[tuple[Stream, Seen]]:
        return [(s, seen) for s, seen in sorted(self.streams.items()) if s.receiver == receiver]

    def together(self, receiver: str) -> list[tuple[int, Seen]]:
        """By epoch: all that a party got about the rows of which it got everything, side by side.
        Nothing for epochs in which only one party sent something."""
        found = []
        for epoch in self.epochs(receiver):
            mine = [seen for s, seen in self.streams_to(receiver) if s.epoch == epoch]
            if len(mine) > 1:
                there = np.logical_and.reduce([seen.there for seen in mine])
                found.append((epoch, Seen(np.concatenate([m.values for m in mine], 1), there)))
        return found

    def pairs(self) -> list[tuple[str, str]]:
        """Who got anything from whom."""
        return sorted({(stream.receiver, stream.sender) for stream in self.streams})

    def epochs(self, receiver: str) -> list[int]:
        """In which it got anything."""
        return sorted({stream.epoch for stream in self.streams if stream.receiver == receiver})


def _power_of_two(number: int) -> bool:
    return number & (number - 1) == 0
