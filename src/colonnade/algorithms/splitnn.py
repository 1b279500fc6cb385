"""Split learning over columns (Ceballos et al., "SplitNN-driven vertical partitioning", 2020).

Each client encodes its columns; the server joins the embeddings and computes the loss with its
labels; the gradient of each embedding goes back to its client. What the server does about an
embedding that did not come is the policy `missing`; the faults are those of DVFL (Amalanshu et
al.), appendix D.2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from colonnade.common.seeds import torch_stream
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
    make_head,
)
from colonnade.network import ALL, EVERYONE, Inbox, Network, Register, locally


class SplitNNSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults: DVFL, appendix D.3: batch 64, 60 epochs, early stopping, and Adam 1e-3 as for its
    tables. (For MNIST it has SGD, lr 1e-2, momentum 0.5.)"""

    missing: Literal["wait", "skip", "zeros", "buffer", "stale"] = "zeros"
    combine: Literal["concat", "mean", "sum", "max"] = "concat"
    dropout: float = 0.0  # each client is left out of a batch with this probability

    def check(self, task: Task) -> None:
        super().check(task)
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout = {self.dropout:g}: expected 0 or more, below 1")
        widths = encoder_widths(self.encoder, task)
        if self.combine != "concat" and len(set(widths)) > 1:
            raise InputError(
                f"combine = {self.combine!r}: needs embeddings of one width, but the encoders give "
                f"{', '.join(map(str, widths))}; set encoder, e.g. encoder = [64, 32]"
            )


class SplitNN(Algorithm):
    name = "splitnn"
    settings = SplitNNSettings
    clients = Columns()
    server = LabelHolder("aggregator")
    embedding = Exchange(
        clients, server, "an encoding of the client's columns, row by row", width="widths"
    )
    gradient = Exchange(
        server,
        clients,
        "how the loss changes with the client's embedding",
        width="widths",
        each=True,
    )

    def __init__(self, settings: SplitNNSettings, task: Task) -> None:
        super().__init__(settings, task)
        self.set: SplitNNSettings = settings
        self.widths = encoder_widths(settings.encoder, task)
        self.wait = EVERYONE if settings.missing == "wait" else ALL

    def build(self, net: Network) -> None:
        task, s = self.task, self.set
        joined = sum(self.widths) if s.combine == "concat" else self.embedding.widest
        rows = task.rows["train"] if s.missing == "stale" else None
        self.newest = self.keeps(net, "newest", self.server, Register(rows))
        self.encoders = self.encoder_stack(net, self.clients)
        self.head = self.stack(
            net,
            "head",
            self.server,
            lambda _: make_head(s.head, joined, task.outputs),
            input_widths=[joined],
        )

    async def train(self, net: Network) -> None:
        async for batch in self.training.rounds(net):
            h = self.encoders(batch.x)  # [clients, rows, width]
            inbox = await net.send(h, self.embedding, len(batch), wait=self.wait)
            kept = self.kept(net)
            joined = locally(combine, self.filled(inbox, batch.rows).only(kept), self.set.combine)
            able = net.alive(self.server) & self.usable(inbox)  # [server]
            batch.loss, gradient = self.head.learn(joined.value, batch.y, self.loss, able)
            back = await net.send(
                joined.share(gradient),  # [server, clients, rows, width]
                self.gradient,
                len(batch),
                wait=self.wait,
                where=inbox.arrived & kept & able[:, None],  # to those whose embedding was used
            )
            self.encoders.backward(h, back.total(), back.any)

    async def predict(self, net: Network, part: Part) -> Tensor:
        """With `wait` the server waits; otherwise what does not come counts as zeros."""
        logits = []
        async for batch in net.rounds(part.in_order(self.predict_rows(net))):
            h = self.encoders.predict(batch.x)
            inbox = await net.send(h, self.embedding, len(batch), wait=self.wait)
            joined = locally(combine, inbox, self.set.combine)
            logits.append(self.head.predict(joined.value)[0])
        return torch.cat(logits)

    def kept(self, net: Network) -> Tensor:
        """Party-wise dropout: who takes part in this batch. [server, clients]"""
        if not self.set.dropout:
            return torch.ones(1, len(self.clients), dtype=torch.bool)
        stream = torch_stream(self.task.seed, "server", "dropout", net.round)
        return torch.rand(1, len(self.clients), generator=stream) >= self.set.dropout

    def filled(self, inbox: Inbox, rows: Tensor) -> Inbox:
        """`buffer`: a client's newest message, whatever rows it was for; `stale`: its newest for
        these rows."""
        remembers = self.set.missing in ("buffer", "stale")
        return inbox.latest(self.newest, rows) if remembers else inbox

    def usable(self, inbox: Inbox) -> Tensor:
        """`skip`: only a batch that every client answered. [server]"""
        return inbox.complete if self.set.missing == "skip" else torch.ones(1, dtype=torch.bool)


@dataclass(frozen=True)
class Joined:
    """The joined embeddings, and how a gradient of them is shared out to the slots."""

    value: Tensor  # [receivers, rows, width]
    share: Callable[[Tensor], Tensor]  # → [receivers, in-degree, rows, width]


def combine(inbox: Inbox, how: str) -> Joined:
    match how:
        case "concat":
            return Joined(inbox.concat(), inbox.split)
        case "sum":
            return Joined(inbox.total(), lambda g: _to_all(g, inbox))
        case "mean":
            count = inbox.arrived.sum(1).clamp(min=1)
            return Joined(inbox.mean(), lambda g: _to_all(g / count[:, None, None], inbox))
        case _:
            largest, winner = inbox.maximum()
            slots = torch.arange(inbox.arrived.shape[1])[None, :, None, None]
            return Joined(largest, lambda g: _to_all(g, inbox) * (winner[:, None] == slots))


def _to_all(gradient: Tensor, inbox: Inbox) -> Tensor:
    return gradient[:, None].expand(-1, inbox.arrived.shape[1], -1, -1)
