"""Averaged embeddings: split learning in its smallest form.

Every client maps its columns to `width` numbers per row; the server averages those that came and
learns a head on the average; the gradient goes back to the clients that are in it. A client that
is away is simply not in the average.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from colonnade.errors import InputError
from colonnade.learning import (
    Algorithm,
    Columns,
    Exchange,
    LabelHolder,
    Part,
    Settings,
    Task,
    encoder_widths,
    make_encoder,
    make_head,
)
from colonnade.network import Network


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
    clients = Columns()
    server = LabelHolder("aggregator")
    embedding = Exchange(
        clients, server, "an encoding of the columns, row by row", width="set.width"
    )
    gradient = Exchange(server, clients, "how the loss changes with the average", width="set.width")

    def build(self, net: Network) -> None:
        s, task = self.set, self.task
        self.encoders = self.stack(
            net, "encoder", self.clients, self.encoder, input_widths=task.widths
        )
        self.head = self.stack(
            net, "head", self.server, lambda _: make_head(s.head, s.width, task.outputs)
        )

    def encoder(self, client: int) -> nn.Module:
        s, task = self.set, self.task
        inner = make_encoder(s.encoder, task.widths[client], task.shapes[client])
        return nn.Sequential(inner, nn.Linear(encoder_widths(s.encoder, task)[client], s.width))

    async def train(self, net: Network) -> None:
        async for batch in self.training.rounds(net):
            h = self.encoders(batch.x)  # [clients, rows, width]
            inbox = await net.send(h, self.embedding, len(batch))
            batch.loss, gradient = self.head.learn(inbox.mean(), batch.y, self.loss, inbox.any)
            count = inbox.arrived.sum(1).clamp(min=1)  # [server]
            share = gradient / count[:, None, None]  # [server, rows, width]
            # To those who are in the average.
            back = await net.send(share, self.gradient, len(batch), where=inbox.arrived)
            self.encoders.backward(h, back.total(), back.any)

    async def predict(self, net: Network, part: Part) -> Tensor:
        logits = []
        async for batch in net.rounds(part.in_order(self.predict_rows(net))):
            inbox = await net.send(self.encoders.predict(batch.x), self.embedding, len(batch))
            logits.append(self.head.predict(inbox.mean())[0])
        return torch.cat(logits)
