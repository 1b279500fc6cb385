"""Encodings that a label holder collects once, keeps, and then learns from by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from colonnade.learning.state import Value
from colonnade.learning.task import Batch, Part
from colonnade.network import Group, Network
from colonnade.network.faults import Phase

if TYPE_CHECKING:
    from colonnade.learning.algorithm import Algorithm

Receive = Callable[[Network, Batch], Awaitable[Tensor]]


class Collection:
    """The final encodings of the training and validation rows. `receive` does the exchange by which
    the holder gets the encodings of a batch: [holder, rows, width]; `prepare` is applied to all of
    them before they are kept."""

    def __init__(
        self,
        algorithm: Algorithm,
        net: Network,
        holder: Group,
        width: int,
        receive: Receive,
        prepare: Callable[[Tensor], Tensor] = lambda encodings: encodings,
    ) -> None:
        self.algorithm, self.width, self.receive, self.prepare = algorithm, width, receive, prepare
        self.train = algorithm.keeps(net, "collected", holder, Value(large=True))
        self.validation = algorithm.keeps(net, "validation", holder, Value(large=True))

    async def collect(self, net: Network, part: Part) -> Tensor:
        """Receive the encodings of all rows of a part of the data. [holder, rows, width]"""
        collected = [torch.zeros(1, 0, self.width)]  # torch.cat takes no empty list
        batches = part.in_order(self.algorithm.predict_rows(net))
        async for batch in net.rounds(batches, sent_once=True):
            collected.append(await self.receive(net, batch))
        return torch.cat(collected, 1)

    async def fill(
        self,
        net: Network,
        phase: Phase | None = None,
        at_first: Callable[[Tensor], Any] = lambda encodings: None,
    ) -> None:
        """Collect all encodings; what was kept before a restart stays. `phase`: the phase in
        which the training rows are sent, if not that of `net`. `at_first` is called with the
        encodings of the training rows as received, when they are collected for the first time."""
        data = self.algorithm.data
        train = await self.collect(net if phase is None else net.within(phase), data.train)
        if self.train.value is None:
            at_first(train)
        self.train.set_once(self.prepare(train))
        validation = await self.collect(net.within("validation"), data.validation)
        self.validation.set_once(self.prepare(validation))

    def read(self, rows: Tensor) -> Tensor:
        """The kept encodings of some training rows. [holder, these rows, width]"""
        return self.train.read(rows)
