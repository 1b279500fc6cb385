"""An algorithm whose exchanges have every number type, through the test kit: so on every engine.

Each message says something that a smaller type would lose, and that the weights depend on.
"""

from __future__ import annotations

from typing import ClassVar, get_args

import torch
from torch import Tensor

from colonnade.learning import Algorithm, Columns, Exchange, LabelHolder, Part
from colonnade.models.layers import cross_entropy
from colonnade.network import Inbox, Network, local
from colonnade.network.channel import Numbers
from colonnade.testing import AlgorithmKit

WIDTH = 8
FAR = 2**40  # a row number that an int32 cannot hold
FINE = 2.0**-30  # of a gradient: added to 1, a float32 loses it


class NumberTypes(Algorithm):
    name = "number-types"
    clients = Columns()
    server = LabelHolder("aggregator")
    embedding = Exchange(
        clients, server, "an encoding, in few bits", width=WIDTH, numbers="float16"
    )
    scale = Exchange(clients, server, "how large it is", width=1, numbers="float32")
    rows = Exchange(clients, server, "which rows these are", width=1, numbers="int64")
    heard = Exchange(server, clients, "how many embeddings came", width=1, numbers="int32")
    gradient = Exchange(
        server, clients, "how the loss changes, in many bits", width=WIDTH, numbers="float64"
    )

    def build(self, net: Network) -> None:
        self.encoders = self.encoder_stack(net, self.clients, width=WIDTH)
        self.head = self.head_stack(net, self.server, WIDTH)

    async def train(self, net: Network) -> None:
        async for batch in self.training.rounds(net):
            h, count = self.encoders(batch.x), len(batch)  # [clients, rows, width]
            inbox = await self.send_embeddings(net, h, count)
            everyone = torch.ones(len(self.clients), 1, 1, dtype=torch.int64)
            numbers = net.pick(self.clients, everyone * (batch.rows + FAR)[:, None])
            told = await net.send(numbers, self.rows, count)
            y = labels(told, batch.y, batch.rows)
            mean = rescaled(*inbox)
            batch.loss, gradient = self.head.learn(mean, y, cross_entropy, inbox[0].any)
            came = inbox[0].arrived.sum(1, dtype=torch.int32)[:, None, None]  # [server, 1, 1]
            heard = await net.send(came, self.heard, 1)
            fine = 1 + FINE * gradient.double()
            back = await net.send(fine, self.gradient, count, where=inbox[0].arrived)
            self.encoders.backward(h, unfolded(back, heard), back.any)

    async def send_embeddings(self, net: Network, h: Tensor, rows: int) -> tuple[Inbox, Inbox]:
        size = h.detach().abs().amax(2, keepdim=True).clamp(min=1e-3)  # [clients, rows, 1]
        inbox = await net.send((h.detach() / size).half(), self.embedding, rows)
        return inbox, await net.send(size.float(), self.scale, rows)

    async def predict(self, net: Network, part: Part) -> Tensor:
        logits = []
        async for batch in net.rounds(part.in_order(self.predict_rows(net))):
            h = self.encoders.predict(batch.x)
            mean = rescaled(*await self.send_embeddings(net, h, len(batch)))
            logits.append(self.head.predict(mean)[0])
        return torch.cat(logits)


@local
def rescaled(embeddings: Inbox, scales: Inbox) -> Tensor:
    """The mean of what came as both. [server, rows, width]"""
    default = torch.get_default_dtype()
    values = embeddings.value.to(default) * scales.value.to(default)
    both = (embeddings.arrived & scales.arrived).sum(1).clamp(min=1)
    return values.sum(1) / both[:, None, None]


@local
def labels(told: Inbox, y: Tensor, rows: Tensor) -> Tensor:
    """The labels of the rows that the clients named. [rows]"""
    named = (told.maximum()[0][0, :, 0] - FAR).to(torch.int64)  # zeros if nothing came
    place = {int(row): i for i, row in enumerate(rows)}
    return y[torch.tensor([place.get(int(row), 0) for row in named])]


@local
def unfolded(back: Inbox, heard: Inbox) -> Tensor:
    """The gradient of each embedding, from the sum over those that came. [clients, rows, width]"""
    gradient = (back.total() - 1) / FINE * back.any[:, None, None]
    return (gradient / heard.total().clamp(min=1)).to(torch.get_default_dtype())


class TestNumberTypes(AlgorithmKit):
    algorithm: ClassVar = NumberTypes


def test_the_algorithm_sends_every_number_type() -> None:
    declared = {exchange.facts["numbers"] for exchange in NumberTypes.exchanges}
    assert declared == set(get_args(Numbers))  # the decision of the training control is a "float"
