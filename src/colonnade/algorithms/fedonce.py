"""FedOnce: one round of communication (Wu, Li, He, "Practical Vertical Federated Learning with
Unsupervised Representation Learning", 2022).

Clients learn encoders of their own columns without labels, to the end; then they send the encodings
of the aligned rows once, and the server, which has the labels, learns a head on them. In the
original the clients learn by noise as targets; the comparison in DVFL (Amalanshu et al.) has its
autoencoder instead, and faults while the encodings are collected.
"""

from __future__ import annotations

from torch import Tensor

from colonnade.algorithms.fedonce_settings import FedOnceSettings
from colonnade.learning import (
    Algorithm,
    Batch,
    Collection,
    Columns,
    Exchange,
    LabelHolder,
    Part,
)
from colonnade.learning.objectives import OBJECTIVES, UNSUPERVISED, Pupils
from colonnade.network import ALL, EVERYONE, Network


class FedOnce(Algorithm):
    name = "fedonce"
    settings = FedOnceSettings
    set: FedOnceSettings
    clients = Columns()
    server = LabelHolder("aggregator")
    encoding = Exchange(
        clients, server, "an encoding of the columns, row by row, once", width="embedding_widths"
    )

    def build(self, net: Network) -> None:
        s, joined = self.set, sum(self.embedding_widths)
        columns = Pupils.of_columns(self.clients, self.task, s.encoder, s.decoder)
        self.encoders = OBJECTIVES[s.objective](self, net, columns, **UNSUPERVISED)
        self.collection = Collection(self, net, self.server, joined, self.receive)
        self.head = self.head_stack(net, self.server, joined)

    @property
    def epochs_alone(self) -> int:
        return self.set.client_epochs

    def planned_releases(self, epochs: int) -> dict[str, int]:
        return {"train": 1, "validation": 1, "test": 1}

    async def train(self, net: Network) -> None:
        await self.encoders.learn_alone(net, self.data, self.local_batches)
        await self.training.freeze(net, "encoder", "decoder")
        await self.collection.fill(net)  # the only communication, while things may fail
        async for batch in self.training.rounds(net):
            x = self.collection.read(batch.rows)
            batch.loss = self.head.fit(x, batch.y, self.loss)

    async def receive(self, net: Network, batch: Batch) -> Tensor:
        """[server, rows, all encodings], zeros where none came"""
        wait = EVERYONE if self.set.missing == "retry" else ALL
        h = self.encoders.predict(batch.x)
        return (await net.send(h, self.encoding, len(batch), wait=wait)).concat()

    async def validate(self, net: Network) -> Tensor:
        return self.head.predict(self.collection.validation.value)[0]  # nobody is asked again

    async def predict(self, net: Network, part: Part) -> Tensor:
        return self.head.predict(await self.collection.collect(net, part))[0]
