"""VAFL: vertical asynchronous federated learning (Chen, Jin, Sun and Yin, 2020).

The server keeps the newest embedding of every client and row. Whenever a client is ready it sends
the embeddings of a mini-batch of its own; the server computes the loss with these and with the
stored embeddings of the others, steps its head, and returns the gradient to that client alone. No
client waits for another one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from colonnade.algorithms.vafl_settings import VAFLSettings
from colonnade.learning import (
    Algorithm,
    Columns,
    Epoch,
    Exchange,
    LabelHolder,
    Part,
    Rows,
    combine,
    pace_of,
)
from colonnade.learning.side_by_side import Turn
from colonnade.network import Inbox, Network, Program, Register


class VAFL(Algorithm):
    name = "vafl"
    takes_partial_rows = True
    settings = VAFLSettings
    set: VAFLSettings
    side_by_side = True
    clients = Columns()
    server = LabelHolder("aggregator")
    embedding = Exchange(
        clients, server, "an encoding of the client's columns, row by row", width="embedding_widths"
    )
    gradient = embedding.back("how the loss changes with the client's embedding")
    pace = pace_of(server)

    def build(self, net: Network) -> None:
        self.newest = self.keeps(net, "newest", self.server, Register(self.task.rows["train"]))
        self.encoders = self.encoder_stack(net, self.clients)
        widths = self.embedding_widths
        joined = sum(widths) if self.set.combine == "concat" else max(widths)
        self.head = self.head_stack(net, self.server, joined)

    async def train(self, net: Network) -> None:
        rows, own = torch.arange(self.task.rows["train"]), self.set.order == "own"
        clients = self.clients.parties
        programs = [Rows(rows, client if own else "clients", client) for client in clients]
        async for epoch in self.training.epochs(net, programs):
            visits = [
                Program(partial(self.visit, epoch, i), client, (client, *self.server.parties))
                for i, client in enumerate(self.clients.parties)
            ]
            await net.concurrently(*visits, counter=self.server)

    async def visit(self, epoch: Epoch, i: int, net: Network) -> None:
        """Client i at its own pace."""
        encoder = self.encoders.only(i)
        to_server, to_client = self.embedding.only(src=i), self.gradient.only(dst=i)
        async for batch in epoch.rounds(net, i, self.server, column=i):
            h = encoder(batch.x)  # [client i, rows, width]
            inbox = await net.send(h, to_server, len(batch))
            able = net.alive(self.server) & inbox.any
            loss, mine = self.answer(inbox, batch, i, able & batch.once("head"))
            back = await net.send(mine, to_client, len(batch), where=able[:, None])
            await batch.close([(i, loss, self.server)])
            encoder.backward(h, back, back.any & batch.once("encoder"))

    def answer(self, inbox: Inbox, batch: Turn, i: int, new: Tensor) -> tuple[Any, Any]:
        """A step of the server on a batch of client i: the loss, and the gradient for that client.
        Apart, because every client's program keeps its variables until its next round: the joined
        embeddings of all clients in each of them were 400 MB with 256 clients."""
        stored = inbox.at(i, self.embedding_widths).latest(self.newest, batch.rows)
        # Of others: the newest; zeros where there is none yet.
        joined = combine(stored, self.set.combine)
        loss, gradient = self.head.learn(joined.value, batch.y, self.loss, new)
        mine = joined.share(gradient)[:, i : i + 1, :, : self.embedding_widths[i]]
        return loss, mine.clone()

    async def predict(self, net: Network, part: Part) -> Tensor:
        """All clients are asked; what does not come counts as zeros."""
        logits = []
        async for batch in net.rounds(part.in_order(self.predict_rows(net))):
            h = self.encoders.predict(batch.x)
            inbox = await net.send(h, self.embedding, len(batch))
            logits.append(self.head.predict(combine(inbox, self.set.combine).value)[0])
        return torch.cat(logits)
