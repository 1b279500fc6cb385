"""Split learning over columns (Ceballos et al., "SplitNN-driven vertical partitioning", 2020).

Each client encodes its columns; the server joins the embeddings and computes the loss with its
labels; the gradient of each embedding goes back to its client. What the server does about an
embedding that did not come is the policy `missing`; the faults are those of DVFL (Amalanshu et
al.), appendix D.2.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from colonnade.algorithms.splitnn_settings import SplitNNSettings
from colonnade.common.devices import to_device
from colonnade.common.seeds import torch_stream
from colonnade.learning import (
    Algorithm,
    Columns,
    Exchange,
    LabelHolder,
    Part,
    combine,
    make_head,
)
from colonnade.learning.combining import How
from colonnade.models.layers import WeightedSum
from colonnade.models.stack import Stack
from colonnade.network import ALL, EVERYONE, Inbox, Network, Register, deadline


class SplitNN(Algorithm):
    name = "splitnn"
    takes_partial_rows = True
    settings = SplitNNSettings
    set: SplitNNSettings
    clients = Columns()
    server = LabelHolder("aggregator")
    embedding = Exchange(
        clients, server, "an encoding of the client's columns, row by row", width="embedding_widths"
    )
    gradient = embedding.back("how the loss changes with the client's embedding")

    def build(self, net: Network) -> None:
        widths, rows = self.embedding_widths, self.task.rows["train"]
        by_row = self.set.missing == "stale"
        self.wait = EVERYONE if self.set.missing == "wait" else ALL
        late = self.set.deadline
        self.training_wait = self.wait if late is None else deadline(late)
        self.newest = self.keeps(net, "newest", self.server, Register(rows if by_row else None))
        self.encoders = self.encoder_stack(net, self.clients)
        self.how: How = "concat"
        if self.set.combine == "weighted":
            self.head = self.weighted_head(net)
            return
        self.how = self.set.combine
        joined = sum(widths) if self.how == "concat" else max(widths)
        self.head = self.head_stack(net, self.server, joined)

    def weighted_head(self, net: Network) -> Stack:
        """The learnt weights of the sum are the first layer of the head."""
        widths, clients = self.embedding_widths, len(self.clients)
        begin = 1.0 if self.set.weighted_start == "sum" else 1 / clients

        def make(_: int) -> nn.Module:
            head = make_head(self.set.head, max(widths), self.task.outputs)
            return nn.Sequential(WeightedSum(clients, begin), head)

        return self.stack(net, "head", self.server, make, input_widths=[sum(widths)])

    async def train(self, net: Network) -> None:
        async for batch in self.training.rounds(net):
            h = self.encoders(batch.x)  # [clients, rows, width]
            inbox = await net.send(h, self.embedding, len(batch), wait=self.training_wait)
            kept = self.kept(net)
            joined = combine(self.filled(inbox, batch.rows).only(kept), self.how)
            able = net.alive(self.server) & self.usable(inbox)  # [server]
            batch.loss, gradient = self.head.learn(joined.value, batch.y, self.loss, able)
            back = await net.send(
                joined.share(gradient),  # [server, clients, rows, width]
                self.gradient,
                len(batch),
                wait=self.wait,
                where=inbox.arrived & kept & able[:, None],  # to those whose embedding was used
            )
            self.encoders.backward(h, back)

    async def predict(self, net: Network, part: Part) -> Tensor:
        """With `wait` the server waits; otherwise what does not come counts as zeros."""
        logits = []
        async for batch in net.rounds(part.in_order(self.predict_rows(net))):
            h = self.encoders.predict(batch.x)
            inbox = await net.send(h, self.embedding, len(batch), wait=self.wait)
            logits.append(self.head.predict(combine(inbox, self.how).value)[0])
        return torch.cat(logits)

    def kept(self, net: Network) -> Tensor:
        """Party-wise dropout: who takes part in this batch. [server, clients]"""
        if not self.set.dropout:
            return torch.ones(1, len(self.clients), dtype=torch.bool)
        stream = torch_stream(self.task.seed, "server", "dropout", net.round)
        drawn = torch.rand(1, len(self.clients), generator=stream, device="cpu")
        return to_device(drawn) >= self.set.dropout

    def filled(self, inbox: Inbox, rows: Tensor) -> Inbox:
        """`buffer`: a client's newest message, whatever rows it was for; `stale`: its newest for
        these rows."""
        remembers = self.set.missing in ("buffer", "stale")
        return inbox.latest(self.newest, rows) if remembers else inbox

    def usable(self, inbox: Inbox) -> Tensor:
        """`skip`: only a batch that every client answered. [server]"""
        return inbox.complete if self.set.missing == "skip" else torch.ones(1, dtype=torch.bool)
