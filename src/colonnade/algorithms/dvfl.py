"""DVFL: decoupled training (Amalanshu, Sirvi, Inouye, "Decoupled Vertical Federated Learning for
Practical Training on Vertically Partitioned Data").

Clients learn encoders of their own columns without labels; redundant aggregators learn, without
labels, to compress what the clients' encoders give; the owner learns a head on what the
aggregators give. No gradient ever crosses a link, and nobody ever waits: an aggregator keeps a
register per client, with that client's newest encoding, and a replay of what it has read.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from colonnade.algorithms.dvfl_models import DVFLModels, OwnerModels
from colonnade.algorithms.dvfl_settings import DVFLSettings
from colonnade.learning import (
    Algorithm,
    Batch,
    Collection,
    Columns,
    Exchange,
    LabelHolder,
    Numbered,
    Numbers,
    Part,
    Replay,
    Value,
)
from colonnade.network import ALL, EVERYONE, LATEST, Inbox, Network, Register, local, locally

MAKE_UP = 3  # steps more in a round, for an aggregator that missed some


class DVFL(Algorithm):
    name = "dvfl"
    settings = DVFLSettings
    set: DVFLSettings
    optional = ("aggregators",)
    clients = Columns()
    aggregators = Numbered("aggregator", "aggregators")
    owner = LabelHolder("owner")
    encoding = Exchange(
        clients, aggregators, "an encoding of the columns, row by row", width="embedding_widths"
    )
    compressed = Exchange(
        aggregators,
        owner,
        "an encoding of all clients' encodings",
        width="models.offered",
        kind="encoding",
    )
    direct = Exchange(
        clients,
        owner,
        "an encoding of the columns, where there are no aggregators",
        width="models.offered",
        kind="encoding",
    )

    models = cached_property(DVFLModels)
    heard_all = True  # clients, in the last round of communication

    def build(self, net: Network) -> None:
        s, aggregators = self.set, self.aggregators
        self.encoders = self.models.encoders(net)
        if s.aggregators:
            self.compressors = self.models.compressors(net)
        replay = Replay(s.replay, self.local_batches.aligned.size, self.models.joined)
        self.replay = self.keeps(net, "replay", aggregators, replay)
        self.registers = self.keeps(net, "registers", aggregators, Register())
        self.newest = self.keeps(net, "newest", aggregators, Value())
        self.steps = self.keeps(net, "steps", aggregators, Numbers(done=0))
        self.supervised = OwnerModels(self.models, net)
        centred, received = self.supervised.centre.predict, self.supervised.received
        self.collection = Collection(self, net, self.owner, received, self.receive, centred)

    @property
    def rectified(self) -> bool:
        return self.set.aggregators > 0

    @property
    def epochs_alone(self) -> int:
        return self.set.client_epochs

    @property
    def epochs_heard(self) -> int:
        """Epochs in which aggregators hear of the clients, and learn from that."""
        return self.set.client_epochs // self.set.period if self.set.aggregators else 0

    @property
    def rounds_of_replay(self) -> int:
        if not self.set.aggregators or self.set.replay == 0:
            return 0
        left = max(0, self.set.aggregator_epochs - self.epochs_heard)
        return left * self.local_batches.per_epoch

    @property
    def epochs(self) -> int | None:
        return self.set.owner_epochs or self.set.epochs

    @property
    def unlabelled_rounds(self) -> int:
        return len(self.local_batches) + self.rounds_of_replay

    def own_rounds(self, party: str) -> range:
        if party in self.aggregators.parties:
            return range(len(self.local_batches), self.unlabelled_rounds)
        return super().own_rounds(party)

    def planned_releases(self, epochs: int) -> dict[str, int]:
        return {"train": self.epochs_heard + 1, "validation": 1, "test": 1}

    async def train(self, net: Network) -> None:
        await self.encode(net)
        await self.compress(net)
        await self.training.freeze(net, "encoder", "decoder", "compressor", "expander")
        await self.supervise(net)

    # -- clients and aggregators, without labels --------------------------------------------------

    async def encode(self, net: Network) -> None:
        """The clients' rounds (algorithm 1); in epochs of communication the aggregators' as
        well."""
        before = -1  # the epoch of the batch before
        async for batch in net.rounds(self.local_batches):
            if before < batch.epoch == self.epochs_heard * self.set.period - 1:
                await net.wait_for_absent()  # no aggregator should miss what final encoders give
            before = batch.epoch
            x, rows = self.data.alone(batch)
            talking = self.epochs_heard > 0 and (batch.epoch + 1) % self.set.period == 0
            if talking and batch.aligned:
                await self.communicate(net, self.encoders.encode(x), len(batch.rows))
            if talking and self.newest.value is not None:
                locally(net.check_loss, self.compressors.learn(self.newest.value, net.round))
            self.steps["done"] += talking and self.heard_all
            locally(net.check_loss, self.encoders.learn(x, net.round, rows))

    async def communicate(self, net: Network, h: Tensor, rows: int) -> None:
        """Clients write their registers; aggregators read them and remember."""
        inbox = await net.send(h, self.encoding, rows, wait=LATEST)
        self.newest.set(inbox.latest(self.registers).concat())  # [aggregators, rows, W_g]
        self.remember(net, inbox)

    @local
    def remember(self, net: Network, inbox: Inbox) -> None:
        """Keep the newest batch. A real aggregator does not if a client is missing that will come,
        and makes up for it later."""
        self.heard_all = inbox.everything or not net.owing()
        if self.heard_all:
            self.replay.append(self.newest.value, net.alive(self.aggregators))

    async def compress(self, net: Network) -> None:
        """Aggregators go on with what they remember, until they had all their epochs. One that
        missed rounds learns more in a round, from the newest epoch, until it has caught up."""
        async for t in net.rounds(range(self.rounds_of_replay)):
            up = net.alive(self.aggregators) & self.replay.filled
            per_epoch = self.local_batches.per_epoch
            missed = self.epochs_heard * per_epoch + t - self.steps["done"]
            again = self.replay.read(t - self.rounds_of_replay)
            locally(net.check_loss, self.compressors.learn(again, net.round, where=up))
            for i in range(min(missed, MAKE_UP)):
                newest = -1 - (MAKE_UP * t + i) % per_epoch
                self.compressors.learn(self.replay.read(newest), net.round, where=up)
            self.steps["done"] += min(missed, MAKE_UP) + 1
        self.replay.forget()

    # -- the owner, with labels -------------------------------------------------------------------

    async def supervise(self, net: Network) -> None:
        """The owner collects the final encodings once, keeps them and learns on its own."""
        await self.collection.fill(net, "supervision", at_first=self.supervised.find_centre)
        async for batch in self.training.rounds(net):
            x = self.supervised.left_out(self.collection.read(batch.rows), net.round)
            batch.loss = self.supervised.head.fit(x, batch.y, self.loss)

    async def receive(self, net: Network, batch: Batch) -> Tensor:
        """Columns → clients → aggregators → owner: encodings side by side, then by sender whether
        one came, as 0 or 1. [owner, rows, widths + senders]"""
        retry = self.set.missing == "retry" and net.phase != "inference"
        wait = EVERYONE if retry else ALL
        h = self.encoders.predict(batch.x)
        if self.set.aggregators:
            inbox = await net.send(h, self.encoding, len(batch), wait=wait)
            code = self.compressors.predict(inbox.concat())
            inbox = await net.send(code, self.compressed, len(batch), wait=wait)
        else:
            inbox = await net.send(h, self.direct, len(batch), wait=wait)
        return torch.cat([inbox.concat(), inbox.flags], 2)

    async def validate(self, net: Network) -> Tensor:
        """From what the owner has collected: nobody is asked again."""
        return self.supervised.head.predict(self.collection.validation.value)[0]

    async def predict(self, net: Network, part: Part) -> Tensor:
        """What does not come counts as zeros (after centring: as their mean), or is replaced by
        what the owner learnt."""
        return self.supervised.predict(await self.collection.collect(net, part))[0]
