"""Averaged embeddings: split learning in its smallest form.

Every client maps its columns to `width` numbers per row; the server averages those that came and
learns a head on the average; the gradient goes back to the clients that are in it. A client that
is away is simply not in the average.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from colonnade.algorithms.algorithm import DECISION, Algorithm, Exchange, Settings
from colonnade.algorithms.models import encoder_widths, make_encoder, make_head
from colonnade.algorithms.task import InOrder, Part, Task
from colonnade.errors import InputError
from colonnade.models.layers import cross_entropy
from colonnade.network import Group, Inbox, Network


class AverageSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of this algorithm's `[[methods]]` table, beside those that all of them take."""

    width: int = 32  # of every client's embedding

    def check(self, task: Task) -> None:
        super().check(task)
        if self.width < 1:
            raise InputError(f"width = {self.width}: expected 1 or more")


class Average(Algorithm):
    name = "average"
    settings = AverageSettings
    exchanges = (
        Exchange("embedding", "clients", "server", "an encoding of the columns, row by row"),
        Exchange("gradient", "server", "clients", "how the loss changes with the average"),
        Exchange("decision", "server", "everyone", DECISION),
    )

    def __init__(self, settings: AverageSettings, task: Task) -> None:
        super().__init__(settings, task)
        self.set: AverageSettings = settings
        self.clients = Group("clients", task.clients, "client")
        self.server = self.label_holder("server", "aggregator")
        self.groups = (self.clients, self.server)
        self.columns, self.labels = self.clients, self.server

    def build(self, net: Network) -> None:
        s, task = self.set, self.task
        self.encoders = self.stack(
            net, "encoder", self.clients, self.encoder, input_widths=task.widths
        )
        self.head = self.stack(
            net, "head", self.server, lambda _: make_head(s.head, s.width, task.classes)
        )

    def encoder(self, client: int) -> nn.Module:
        s, task = self.set, self.task
        inner = make_encoder(s.encoder, task.widths[client], task.shapes[client])
        return nn.Sequential(inner, nn.Linear(encoder_widths(s.encoder, task)[client], s.width))

    async def train(self, net: Network) -> None:
        async for batch in net.rounds(self.batches):
            x, y = self.data.train.batch(batch.rows)
            h = self.encoders(x)  # [clients, rows, width]
            inbox = await self.embed(net, h, len(batch))
            loss, gradient = self.head.learn(inbox.mean(), y, cross_entropy, inbox.any)
            count = inbox.arrived.sum(1).clamp(min=1)  # [server]
            back = await net.send(
                gradient / count[:, None, None],  # [server, rows, width]
                self.server,
                self.clients,
                kind="gradient",
                shape=(len(batch), self.set.width),
                where=inbox.arrived,  # to those who are in the average
            )
            self.encoders.backward(h, back.total(), back.any)
            if await self.end_of_round(net, batch, loss):
                break
        self.keep_best()

    async def predict(self, net: Network, part: Part) -> Tensor:
        logits = []
        async for rows in net.rounds(InOrder(part.rows, self.predict_rows(net))):
            h = self.encoders.predict(part.x.index_select(1, rows))
            inbox = await self.embed(net, h, len(rows))
            logits.append(self.head.predict(inbox.mean())[0])
        return torch.cat(logits)

    async def embed(self, net: Network, h: Tensor, rows: int) -> Inbox:
        shape = (rows, self.set.width)
        return await net.send(h, self.clients, self.server, kind="embedding", shape=shape)
