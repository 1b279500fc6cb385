"""The yardstick: one party holds all columns and all labels, and nothing is sent.

Its network is the unsplit counterpart of split learning: the clients' layers side by side and fully
connected, then the server's head.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor, nn

from colonnade.errors import InputError
from colonnade.learning import Algorithm, LabelHolder, Part, Settings, Task
from colonnade.learning.models import default_head, encoder_layers
from colonnade.models.layers import mlp
from colonnade.network import Group, Network


class CentralisedSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`encoder`: widths per client; the layers here are the sums over clients."""

    def check(self, task: Task) -> None:
        super().check(task)
        for key in ("encoder", "head"):
            value = getattr(self, key)
            if value is not None and not isinstance(value, list):
                raise InputError(f"{key}: the centralised yardstick takes a list of widths only")


class Centralised(Algorithm):
    name = "centralised"
    settings = CentralisedSettings
    pooled = True
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
