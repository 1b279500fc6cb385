"""The yardstick: one party holds all columns and all labels, and nothing is sent.

Its network is the unsplit counterpart of split learning: the clients' layers side by side and fully
connected, then the server's head.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor, nn

from colonnade.algorithms.centralised_settings import CentralisedSettings
from colonnade.learning import Algorithm, LabelHolder, Part
from colonnade.learning.models import default_head, encoder_layers
from colonnade.models.layers import mlp
from colonnade.network import Group, Network


class Centralised(Algorithm):
    name = "centralised"
    settings = CentralisedSettings
    takes_partial_rows = True  # what nobody has are average columns
    centre = LabelHolder("owner")

    @cached_property
    def columns(self) -> Group:
        return self.centre

    def build(self, net: Network) -> None:
        self.model = self.stack(net, "model", self.centre, lambda _: self.network())

    def network(self) -> nn.Module:
        s, task = self.set, self.task
        layers = [encoder_layers(s.encoder, w) for w in task.widths]
        widths = [sum(sizes) for sizes in zip(*layers, strict=True)]
        head = default_head(widths[-1]) if s.head is None else s.head
        return mlp([sum(task.widths), *widths, *head, task.outputs])

    async def train(self, net: Network) -> None:
        async for batch in self.training.rounds(net):
            batch.loss = self.model.fit(batch.x, batch.y, self.loss)

    async def predict(self, net: Network, part: Part) -> Tensor:
        logits = []
        async for batch in net.rounds(part.in_order(self.predict_rows(net))):
            logits.append(self.model.predict(batch.x)[0])
        return torch.cat(logits)
