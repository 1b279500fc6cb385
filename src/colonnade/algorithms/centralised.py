"""The yardstick: one party holds all columns and all labels, and nothing is sent.

Its network is the unsplit counterpart of split learning: the clients' layers side by side and fully
connected, then the server's head.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from colonnade.algorithms.algorithm import Algorithm, Settings
from colonnade.algorithms.models import default_head, encoder_layers
from colonnade.algorithms.task import InOrder, Part, Task
from colonnade.errors import InputError
from colonnade.models.layers import cross_entropy, mlp
from colonnade.network import Network


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
    exchanges = ()
    pooled = True

    def __init__(self, settings: CentralisedSettings, task: Task) -> None:
        super().__init__(settings, task)
        self.centre = self.label_holder("centre", "owner")
        self.groups = (self.centre,)
        self.columns = self.labels = self.centre

    def build(self, net: Network) -> None:
        self.model = self.stack(net, "model", self.centre, lambda _: self.network())

    def network(self) -> nn.Module:
        s, task = self.set, self.task
        layers = [encoder_layers(s.encoder, w) for w in task.widths]
        widths = [sum(sizes) for sizes in zip(*layers, strict=True)]
        head = default_head(widths[-1]) if s.head is None else s.head
        return mlp([sum(task.widths), *widths, *head, task.classes])

    async def train(self, net: Network) -> None:
        async for batch in net.rounds(self.batches):
            x, y = self.data.train.batch(batch.rows)
            if await self.end_of_round(net, batch, self.model.fit(x, y, cross_entropy)):
                break
        self.keep_best()

    async def predict(self, net: Network, part: Part) -> Tensor:
        logits = []
        async for rows in net.rounds(InOrder(part.rows, self.predict_rows(net))):
            logits.append(self.model.predict(part.x.index_select(1, rows))[0])
        return torch.cat(logits)
