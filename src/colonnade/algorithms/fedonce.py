"""FedOnce: one round of communication (Wu, Li, He, "Practical Vertical Federated Learning with
Unsupervised Representation Learning", 2022).

Clients learn encoders of their own columns without labels, to the end; then they send the encodings
of the aligned rows once, and the server, which has the labels, learns a head on them. In the
original the clients learn by noise as targets; the comparison in DVFL (Amalanshu et al.) has its
autoencoder instead, and faults while the encodings are collected.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import msgspec
import torch
from torch import Tensor

from colonnade.errors import InputError
from colonnade.learning import (
    Algorithm,
    Columns,
    Exchange,
    LabelHolder,
    LocalBatches,
    Part,
    Settings,
    Task,
    Value,
    check_widths,
    encoder_widths,
    make_head,
)
from colonnade.learning.objectives import OBJECTIVES, UNSUPERVISED, Pupils
from colonnade.network import ALL, EVERYONE, Network

RATES = {"clients": 2e-3, "server": 8e-2}


class FedOnceSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults: those of DVFL's clients and owner (its appendix D.3). `epochs`, `optimizer`,
    `momentum` and `patience` are the server's; clients learn by Adam with weight decay 1e-5."""

    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: float | dict[str, float] = msgspec.field(default_factory=lambda: dict(RATES))
    objective: Literal["autoencoder", "noise"] = "autoencoder"
    decoder: list[int] | None = None  # hidden widths; the encoder's layers mirrored
    client_epochs: int = 20
    missing: Literal["zeros", "retry"] = "zeros"  # retry: until every encoding came

    def check(self, task: Task) -> None:
        super().check(task)
        if self.client_epochs < 1:
            raise InputError(f"client_epochs = {self.client_epochs}: expected 1 or more")
        check_widths("decoder", self.decoder)


class FedOnce(Algorithm):
    name = "fedonce"
    settings = FedOnceSettings
    clients = Columns()
    server = LabelHolder("aggregator")
    encoding = Exchange(
        clients, server, "an encoding of the columns, row by row, once", width="widths"
    )

    def __init__(self, settings: FedOnceSettings, task: Task) -> None:
        super().__init__(settings, task)
        self.set: FedOnceSettings = settings
        self.widths = encoder_widths(settings.encoder, task)
        self.wait = EVERYONE if settings.missing == "retry" else ALL

    def build(self, net: Network) -> None:
        s, joined = self.set, sum(self.widths)
        columns = Pupils.of_columns(self.clients, self.task, s.encoder, s.decoder)
        self.encoders = OBJECTIVES[s.objective](self, net, columns, **UNSUPERVISED)
        self.collected = self.keeps(net, "collected", self.server, Value(large=True))
        self.validation = self.keeps(net, "validation", self.server, Value(large=True))
        self.head = self.stack(
            net, "head", self.server, lambda _: make_head(s.head, joined, self.task.outputs)
        )

    @cached_property
    def local_batches(self) -> LocalBatches:
        return LocalBatches.of(self.task, self.set.batch, self.set.client_epochs)

    @property
    def unlabelled_rounds(self) -> int:
        return len(self.local_batches)

    async def train(self, net: Network) -> None:
        await self.encoders.learn_alone(net, self.data, self.local_batches)
        await self.training.freeze(net, "encoder", "decoder")
        await self.supervise(net)

    async def supervise(self, net: Network) -> None:
        """The encodings go to the server once, while things may fail; then it learns alone."""
        self.collected.set_once(await self.collect(net, self.data.train))
        apart = net.within("validation")
        self.validation.set_once(await self.collect(apart, self.data.validation))
        async for batch in self.training.rounds(net):
            x = self.collected.read(batch.rows)
            batch.loss = self.head.fit(x, batch.y, self.loss, net.alive(self.server))

    async def validate(self, net: Network) -> Tensor:
        return self.head.predict(self.validation.value)[0]  # nobody needs to be asked again

    async def collect(self, net: Network, part: Part) -> Tensor:
        """[server, rows, all encodings], zeros where none came"""
        collected = [torch.zeros(1, 0, sum(self.widths))]
        batches = part.in_order(self.predict_rows(net))
        async for batch in net.rounds(batches, unhurried=True):
            h = self.encoders.predict(batch.x)
            inbox = await net.send(h, self.encoding, len(batch), wait=self.wait)
            collected.append(inbox.concat())
        return torch.cat(collected, 1)

    async def predict(self, net: Network, part: Part) -> Tensor:
        return self.head.predict(await self.collect(net, part))[0]
