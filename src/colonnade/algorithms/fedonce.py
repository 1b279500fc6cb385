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

from colonnade.algorithms.algorithm import DECISION, Algorithm, Exchange, Settings, check_widths
from colonnade.algorithms.models import encoder_widths, make_head
from colonnade.algorithms.objectives import OBJECTIVES, UNSUPERVISED, Pupils
from colonnade.algorithms.task import InOrder, LocalBatches, Part, Task
from colonnade.errors import InputError
from colonnade.models.layers import cross_entropy
from colonnade.network import ALL, EVERYONE, Group, Network

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
    exchanges = (
        Exchange("encoding", "clients", "server", "an encoding of the columns, row by row, once"),
        Exchange("decision", "server", "everyone", DECISION),
    )

    def __init__(self, settings: FedOnceSettings, task: Task) -> None:
        super().__init__(settings, task)
        self.set: FedOnceSettings = settings
        self.clients = Group("clients", task.clients, "client")
        self.server = self.label_holder("server", "aggregator")
        self.groups = (self.clients, self.server)
        self.columns, self.labels = self.clients, self.server
        self.widths = encoder_widths(settings.encoder, task)
        self.wait = EVERYONE if settings.missing == "retry" else ALL

    def build(self, net: Network) -> None:
        s, joined = self.set, sum(self.widths)
        columns = Pupils.of_columns(self.clients, self.task, s.encoder, s.decoder)
        self.encoders = OBJECTIVES[s.objective](self, net, columns, **UNSUPERVISED)
        self.head = self.stack(
            net, "head", self.server, lambda _: make_head(s.head, joined, self.task.classes)
        )

    @cached_property
    def local_batches(self) -> LocalBatches:
        return LocalBatches.of(self.task, self.set.batch, self.set.client_epochs)

    @property
    def unlabelled_rounds(self) -> int:
        return len(self.local_batches)

    async def train(self, net: Network) -> None:
        await self.encode(net)
        await self.freeze(net, "encoder", "decoder")
        await self.supervise(net)
        self.keep_best()

    async def encode(self, net: Network) -> None:
        """Clients learn on their own; nothing is sent."""
        aligned = self.task.rows["train"]
        async for batch in net.rounds(self.local_batches):
            held = self.data.train if batch.aligned else self.data.extra
            up = net.call(self.clients)
            rows = batch.rows if batch.aligned else aligned + batch.rows
            self.encoders.learn(held.x.index_select(1, batch.rows), up, net.round, rows)

    async def supervise(self, net: Network) -> None:
        """The encodings go to the server once, while things may fail; then it learns alone."""
        self.remember(net, "train", await self.collect(net, self.data.train))
        apart = net.within("validation")
        self.remember(net, "validation", await self.collect(apart, self.data.validation))
        async for batch in net.rounds(self.batches):
            y = self.data.train.y.index_select(0, batch.rows)
            x = self.memory["train"].index_select(1, batch.rows)
            loss = self.head.fit(x, y, cross_entropy, net.alive(self.server))
            if await self.end_of_round(net, batch, loss):
                break

    def keep(self, net: Network, rounds: int | None = None) -> None:
        """A collection that was cut off is done again as a whole."""
        done = net.rounds_begun if rounds is None else rounds
        if "train" not in self.memory:
            done = min(done, len(self.local_batches))
        super().keep(net, done)

    async def validate(self, net: Network) -> Tensor:
        return self.head.predict(self.memory["validation"])[0]  # nobody needs to be asked again

    async def collect(self, net: Network, part: Part) -> Tensor:
        """[server, rows, all encodings], zeros where none came"""
        collected = [torch.zeros(1, 0, sum(self.widths))]
        size = self.predict_rows(net)
        async for rows in net.rounds(InOrder(part.rows, size), unhurried=True):
            inbox = await net.send(
                self.encoders.predict(part.x.index_select(1, rows)),
                self.clients,
                self.server,
                kind="encoding",
                shape=(len(rows), max(self.widths)),
                wait=self.wait,
                widths=self.widths,
            )
            collected.append(inbox.concat())
        return torch.cat(collected, 1)

    async def predict(self, net: Network, part: Part) -> Tensor:
        return self.head.predict(await self.collect(net, part))[0]
