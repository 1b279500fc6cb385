"""DVFL: decoupled training (Amalanshu, Sirvi, Inouye, "Decoupled Vertical Federated Learning for
Practical Training on Vertically Partitioned Data").

Clients learn encoders of their own columns without labels; redundant aggregators learn, without
labels, to compress what the clients' encoders give; the owner learns a head on what the
aggregators give. No gradient ever crosses a link, and nobody ever waits: an aggregator keeps a
register per client, with that client's newest encoding, and a replay of what it has read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor, nn

from colonnade.algorithms.algorithm import DECISION, Algorithm, Exchange, Settings
from colonnade.algorithms.models import default_encoder, encoder_widths, make_head
from colonnade.algorithms.task import Batches, InOrder, Part, Task
from colonnade.errors import InputError
from colonnade.models.layers import cross_entropy, mlp, squared_error
from colonnade.network import ABSENT, LATEST, Group, Network, Register, locally
from colonnade.seeds import seed_of, torch_stream

UNSUPERVISED: dict[str, Any] = {"kind": "adam", "momentum": 0.0, "weight_decay": 1e-5}
RATES = {"clients": 2e-3, "aggregators": 2e-3, "owner": 8e-2}


class DVFLSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults: the paper's for MNIST, appendix D. `epochs`, `optimizer`, `momentum` and `patience`
    are the owner's; clients and aggregators learn by Adam with weight decay 1e-5."""

    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: float | dict[str, float] = msgspec.field(default_factory=lambda: dict(RATES))
    aggregators: int = 4
    client_epochs: int = 20
    aggregator_epochs: int = 40
    period: int = 1  # encodings are sent in every so many-th client epoch
    replay: int | None = None  # batches an aggregator keeps to train on again; none: all

    def check(self, task: Task) -> None:
        super().check(task)
        for key in ("aggregators", "client_epochs", "aggregator_epochs", "period"):
            if getattr(self, key) < 1:
                raise InputError(f"{key} = {getattr(self, key)}: expected 1 or more")
        if self.replay is not None and self.replay < 0:
            raise InputError(f"replay = {self.replay}: expected 0 or more batches")
        if self.period > self.client_epochs:
            raise InputError(
                f"period = {self.period}: {self.client_epochs} client epochs would send nothing"
            )
        if self.encoder is not None and not isinstance(self.encoder, list):
            raise InputError("encoder: dvfl mirrors it to decode, it takes a list of widths")


class DVFL(Algorithm):
    name = "dvfl"
    settings = DVFLSettings
    exchanges = (
        Exchange("encoding", "clients", "aggregators", "an encoding of the columns, row by row"),
        Exchange("encoding", "aggregators", "owner", "an encoding of all clients' encodings"),
        Exchange("decision", "owner", "everyone", DECISION),
    )

    def __init__(self, settings: DVFLSettings, task: Task) -> None:
        super().__init__(settings, task)
        self.set: DVFLSettings = settings
        names = tuple(f"aggregator{i}" for i in range(settings.aggregators))
        self.clients = Group("clients", task.clients, "client")
        self.aggregators = Group("aggregators", names, "aggregator")
        self.owner = self.label_holder("owner", "owner")
        self.groups = (self.clients, self.aggregators, self.owner)
        self.columns, self.labels = self.clients, self.owner
        chosen = settings.encoder if isinstance(settings.encoder, list) else None
        self.layers = [chosen or default_encoder(width) for width in task.widths]
        self.widths = encoder_widths(settings.encoder, task)
        self.width, self.joined = max(self.widths), sum(self.widths)  # W_g is the sum
        self.code = max(1, self.joined // 2)  # W_h
        self.registers = Register()

    def build(self, net: Network) -> None:
        task, s, W_g, W_h = self.task, self.set, self.joined, self.code
        hidden = (W_g + 3 * W_h) // 4
        self.replay = Replay(len(net.here(self.aggregators)), s.replay, W_g)
        self.mine = torch.tensor([task.widths[i] for i in net.here(self.clients)])
        self.encoders = self.encoder_stack(net, self.clients, **UNSUPERVISED)
        self.decoders = self.stack(
            net,
            "decoder",
            self.clients,
            lambda i: mlp([*reversed([task.widths[i], *self.layers[i]])], last=self.output(i)),
            input_widths=self.widths,
            **UNSUPERVISED,
        )
        self.compressors = self.stack(
            net,
            "compressor",
            self.aggregators,
            lambda _: mlp([W_g, hidden, W_h], last=nn.LeakyReLU),
            **UNSUPERVISED,
        )
        self.expanders = self.stack(
            net,
            "expander",
            self.aggregators,
            lambda _: mlp([W_h, hidden, W_g], last=nn.ReLU),
            **UNSUPERVISED,
        )
        inputs = s.aggregators * W_h
        head = s.head if s.head is not None else [W_h, 40]
        self.head = self.stack(
            net, "head", self.owner, lambda _: make_head(head, inputs, task.classes)
        )

    @cached_property
    def local_batches(self) -> LocalBatches:
        rows, seed = self.task.rows, self.task.seed
        size, epochs = self.set.batch, self.set.client_epochs
        aligned = Batches(rows["train"], min(size, rows["train"]), epochs, seed_of(seed, "local"))
        own = Batches(rows["extra"], size, epochs, seed_of(seed, "own")) if rows["extra"] else None
        return LocalBatches(aligned, own, seed)

    @property
    def rounds_of_replay(self) -> int:
        heard = self.set.client_epochs // self.set.period
        return max(0, self.set.aggregator_epochs - heard) * self.local_batches.aligned.per_epoch

    @property
    def total_rounds(self) -> int:
        return len(self.local_batches) + self.rounds_of_replay + len(self.batches)

    def output(self, client: int) -> type[nn.Module]:
        """Pixels lie between 0 and 1; standardised columns anywhere."""
        return nn.Sigmoid if len(self.task.shapes[client]) == 3 else nn.Identity

    async def train(self, net: Network) -> None:
        await self.encode(net)
        await self.compress(net)
        await self.supervise(net)
        self.keep_best()

    # -- clients and aggregators, without labels --------------------------------------------------

    async def encode(self, net: Network) -> None:
        """The clients' rounds (algorithm 1); in communication rounds the aggregators' as well."""
        async for batch in net.rounds(self.local_batches):
            held = self.data.train if batch.aligned else self.data.extra
            x = held.x.index_select(1, batch.rows)
            h = self.encoders(x)  # [clients, rows, width]
            if batch.aligned and (batch.epoch + 1) % self.set.period == 0:
                await self.communicate(net, h, len(batch.rows))
                up = net.alive(self.clients)
            else:
                up = net.call(self.clients)
            _, gradient = self.decoders.learn(h, x, self.reconstruction, up)
            self.encoders.backward(h, gradient, up)

    def reconstruction(self, output: Tensor, x: Tensor) -> Tensor:
        """Mean squared error over each client's own columns, without padding. [clients]"""
        error = output - x[..., : output.shape[-1]]
        return error.square().sum(2).mean(1) / self.mine

    async def communicate(self, net: Network, h: Tensor, rows: int) -> None:
        """Clients write their registers; aggregators read them, remember and learn."""
        inbox = await net.send(
            h,
            self.clients,
            self.aggregators,
            kind="encoding",
            shape=(rows, self.width),
            wait=LATEST,
            widths=self.widths,
        )
        b = inbox.latest(self.registers).concat()  # [aggregators, rows, W_g]
        up = net.alive(self.aggregators)
        locally(self.replay.append, b, up)
        self.learn_to_compress(b, up)

    async def compress(self, net: Network) -> None:
        """Aggregators go on with what they remember, until they had all their epochs."""
        async for t in net.rounds(range(self.rounds_of_replay)):
            up = net.alive(self.aggregators) & self.replay.filled
            self.learn_to_compress(self.replay.read(t), up)

    def learn_to_compress(self, b: Tensor, up: Tensor) -> None:
        code = self.compressors(b)  # [aggregators, rows, W_h]
        _, gradient = self.expanders.learn(code, b, squared_error, up)
        self.compressors.backward(code, gradient, up)

    # -- the owner, with labels -------------------------------------------------------------------

    async def supervise(self, net: Network) -> None:
        """The owner collects the final encodings once and learns on its own."""
        apart = net.within("supervision")
        train = await self.collect(apart, self.data.train)  # [owner, rows, W_h · aggregators]
        self.collected = await self.collect(apart, self.data.validation)
        async for batch in net.rounds(self.batches):
            y = self.data.train.y.index_select(0, batch.rows)
            x = train.index_select(1, batch.rows)
            if await self.end_of_round(net, batch, self.head.fit(x, y, cross_entropy)):
                break

    async def validate(self, net: Network) -> Tensor:
        return self.head.predict(self.collected)[0]  # nobody needs to be asked again

    async def collect(self, net: Network, part: Part) -> Tensor:
        """Columns → clients → aggregators → owner; what does not come counts as zeros."""
        collected = [torch.zeros(1, 0, len(self.aggregators) * self.code)]
        async for rows in net.rounds(InOrder(part.rows, self.predict_rows(net))):
            h = self.encoders.predict(part.x.index_select(1, rows))
            inbox = await net.send(
                h,
                self.clients,
                self.aggregators,
                kind="encoding",
                shape=(len(rows), self.width),
                widths=self.widths,
            )
            code = self.compressors.predict(inbox.concat())
            inbox = await net.send(
                code, self.aggregators, self.owner, kind="encoding", shape=(len(rows), self.code)
            )
            collected.append(inbox.concat())
        return torch.cat(collected, 1)

    async def predict(self, net: Network, part: Part) -> Tensor:
        return self.head.predict(await self.collect(net, part))[0]


@dataclass(frozen=True)
class LocalBatch:
    rows: Tensor
    epoch: int
    aligned: bool  # rows that every client has; else rows that are each client's own


@dataclass(frozen=True)
class LocalBatches:
    """A client epoch: the batches of aligned rows and those of own rows, in a shuffled order."""

    aligned: Batches
    own: Batches | None
    seed: int

    @property
    def per_epoch(self) -> int:
        return self.aligned.per_epoch + (self.own.per_epoch if self.own else 0)

    def __len__(self) -> int:
        return self.aligned.epochs * self.per_epoch

    def __getitem__(self, round: int) -> LocalBatch:
        epoch, i = divmod(round, self.per_epoch)
        if self.own is None:
            return LocalBatch(self.aligned[round].rows, epoch, True)
        order = torch.randperm(self.per_epoch, generator=torch_stream(self.seed, "order", epoch))
        k = int(order[i])
        if k < self.aligned.per_epoch:
            return LocalBatch(self.aligned[epoch * self.aligned.per_epoch + k].rows, epoch, True)
        k += epoch * self.own.per_epoch - self.aligned.per_epoch
        return LocalBatch(self.own[k].rows, epoch, False)


class Replay:
    """What each aggregator here has read and may train on again. A short last batch is not kept."""

    def __init__(self, members: int, keep: int | None, width: int) -> None:
        self.keep, self.width = keep, width
        self.rows = 0
        self.kept: list[list[Tensor]] = [[] for _ in range(members)]

    def append(self, b: Tensor, up: Tensor) -> None:
        """b is [aggregators here, rows, width]; one that is down drops it."""
        self.rows = max(self.rows, b.shape[1])
        if self.keep == 0 or b.shape[1] < self.rows:
            return
        for kept, batch, alive in zip(self.kept, b, up.tolist(), strict=True):
            if alive:
                kept.append(batch)
                if self.keep is not None:
                    del kept[: -self.keep]

    @property
    def filled(self) -> Tensor:
        """[aggregators here] bool"""
        return torch.tensor([bool(kept) for kept in self.kept], dtype=torch.bool)

    def read(self, t: int) -> Tensor:
        """Each aggregator's t-th batch, from the beginning again after the last one."""
        if not self.kept:
            return ABSENT  # pyright: ignore[reportReturnType]
        empty = torch.zeros(self.rows or 1, self.width)
        return torch.stack([kept[t % len(kept)] if kept else empty for kept in self.kept])
