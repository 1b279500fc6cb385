"""VFB²: secure bilevel asynchronous VFL with backward updating (Zhang, Gu, Deng and Huang, 2021).

In the form of the comparisons in DVFL and FedVS: one label holder and one thread. The label holder
dominates: it draws a batch and aggregates the clients' embeddings to their sum. The derivative of
the loss with respect to that sum, one value for all, is the signal by which every client that it
reaches updates its own model. The masks of the paper's secure sum are not built: the label holder
sees each embedding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.algorithms.vfb2_settings import VFB2Settings
from colonnade.learning import (
    Algorithm,
    Columns,
    Exchange,
    LabelHolder,
    Part,
    combine,
)
from colonnade.network import Network


class VFB2(Algorithm):
    name = "vfb2"
    takes_partial_rows = True
    settings = VFB2Settings
    clients = Columns()
    server = LabelHolder("aggregator")
    embedding = Exchange(
        clients, server, "an encoding of the client's columns, row by row", width="embedding_width"
    )
    signal = embedding.back("how the loss changes with the sum of all embeddings", each=False)

    @property
    def embedding_width(self) -> int:
        return max(self.embedding_widths)

    def build(self, net: Network) -> None:
        unequal = len(set(self.embedding_widths)) > 1  # then a linear layer follows
        width = self.embedding_width if unequal else None
        self.encoders = self.encoder_stack(net, self.clients, width=width, how="sum")
        self.head = self.head_stack(net, self.server, self.embedding_width)

    async def train(self, net: Network) -> None:
        async for batch in self.training.rounds(net):
            h = self.encoders(batch.x)  # [clients, rows, width]
            inbox = await net.send(h, self.embedding, len(batch))
            able = net.alive(self.server) & inbox.any  # [server]
            total = combine(inbox, "sum").value
            batch.loss, gradient = self.head.learn(total, batch.y, self.loss, able)
            back = await net.send(gradient, self.signal, len(batch), where=able)
            self.encoders.backward(h, back)

    async def predict(self, net: Network, part: Part) -> Tensor:
        """An embedding that does not come is missing from the sum."""
        logits = []
        async for batch in net.rounds(part.in_order(self.predict_rows(net))):
            h = self.encoders.predict(batch.x)
            inbox = await net.send(h, self.embedding, len(batch))
            logits.append(self.head.predict(combine(inbox, "sum").value)[0])
        return torch.cat(logits)
