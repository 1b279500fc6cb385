"""Averaged embeddings: split learning in its smallest form.

Every client maps its columns to `width` numbers per row; the server averages those that came and
learns a head on the average; the gradient goes back to the clients that are in it. A client that
is away is simply not in the average.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from colonnade.learning import (
    Algorithm,
    Columns,
    Exchange,
    LabelHolder,
    Part,
    Settings,
    at_least,
    combine,
)
from colonnade.network import Network


class AverageSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of this algorithm's `[[methods]]` table, beside those that all of them take."""

    width: Annotated[int, at_least(1)] = 32  # of every client's embedding


class Average(Algorithm):
    name = "average"
    settings = AverageSettings
    clients = Columns()
    server = LabelHolder("aggregator")
    embedding = Exchange(
        clients, server, "an encoding of the columns, row by row", width="set.width"
    )
    gradient = embedding.back("how the loss changes with the client's embedding")

    def build(self, net: Network) -> None:
        self.encoders = self.encoder_stack(net, self.clients, width=self.set.width)
        self.head = self.head_stack(net, self.server, self.set.width)

    async def train(self, net: Network) -> None:
        async for batch in self.training.rounds(net):
            h = self.encoders(batch.x)  # [clients, rows, width]
            inbox = await net.send(h, self.embedding, len(batch))
            mean = combine(inbox, "mean")
            batch.loss, gradient = self.head.learn(mean.value, batch.y, self.loss, inbox.any)
            shares = mean.share(gradient)  # [server, clients, rows, width]
            # To those who are in the average.
            back = await net.send(shares, self.gradient, len(batch), where=inbox.arrived)
            self.encoders.backward(h, back)

    async def predict(self, net: Network, part: Part) -> Tensor:
        logits = []
        async for batch in net.rounds(part.in_order(self.predict_rows(net))):
            inbox = await net.send(self.encoders.predict(batch.x), self.embedding, len(batch))
            logits.append(self.head.predict(inbox.mean())[0])
        return torch.cat(logits)
