"""Averaged embeddings through an aggregator, so that the label holder sees no single one of them.

Every client maps its columns to `width` numbers per row. The aggregator, which has neither a model
nor labels, averages what came and passes the average on, unless it is that of one client; the
owner, which has the labels, learns a head on it. The gradient goes back the same way.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from colonnade.learning import (
    Algorithm,
    Batch,
    Columns,
    Exchange,
    LabelHolder,
    Members,
    Part,
    Settings,
    at_least,
)
from colonnade.network import Inbox, Network, local


class VeiledSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    width: Annotated[int, at_least(1)] = 32  # of every client's embedding


class Veiled(Algorithm):
    name = "veiled"
    settings = VeiledSettings
    clients = Columns()
    aggregator = Members("aggregator", lambda self: ("aggregator",))
    owner = LabelHolder("owner")
    embedding = Exchange(
        clients, aggregator, "an encoding of the columns, row by row", width="set.width"
    )
    average = Exchange(aggregator, owner, "the mean of the embeddings", width="set.width")
    of_average = average.back("how the loss changes with the average", each=False, kind="gradient")
    of_embedding = embedding.back("how the loss changes with an embedding", kind="gradient")

    def build(self, net: Network) -> None:
        self.encoders = self.encoder_stack(net, self.clients, width=self.set.width)
        self.head = self.head_stack(net, self.owner, self.set.width)

    async def train(self, net: Network) -> None:
        async for batch in self.training.rounds(net):
            h = self.encoders(batch.x)  # [clients, rows, width]
            inbox = await net.send(h, self.embedding, len(batch))
            mean, weights = averaged(inbox)  # at the aggregator, which has no model
            several = inbox.arrived.sum(1) > 1  # [aggregator]
            told = await net.send(mean, self.average, len(batch), where=several)
            x = told.total()  # [owner, rows, width]
            batch.loss, gradient = self.head.learn(x, batch.y, self.loss, told.any)
            back = await net.send(gradient, self.of_average, len(batch), where=told.any)
            shares = weights * back.value  # [aggregator, clients, rows, width]
            used = inbox.arrived & back.any[:, None]  # [aggregator, clients]
            back = await net.send(shares, self.of_embedding, len(batch), where=used)
            self.encoders.backward(h, back)

    async def predict(self, net: Network, part: Part) -> Tensor:
        logits = []
        async for batch in net.rounds(part.in_order(self.predict_rows(net))):
            told = await self.tell_owner(net, batch)
            logits.append(self.head.predict(told.total())[0])
        return torch.cat(logits)

    async def tell_owner(self, net: Network, batch: Batch) -> Inbox:
        inbox = await net.send(self.encoders.predict(batch.x), self.embedding, len(batch))
        mean, _ = averaged(inbox)
        return await net.send(mean, self.average, len(batch), where=inbox.arrived.sum(1) > 1)


@local(results=2)
def averaged(inbox: Inbox) -> tuple[Tensor, Tensor]:
    """The mean of the messages that came, and the weight of each of them in it. [aggregator, rows,
    width], [aggregator, clients, 1, 1]"""
    count = inbox.arrived.sum(1, keepdim=True).clamp(min=1)  # [aggregator, 1]
    weights = inbox.arrived / count  # [aggregator, clients]
    return inbox.mean(), weights[:, :, None, None]
