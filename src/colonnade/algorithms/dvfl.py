"""DVFL: decoupled training (Amalanshu, Sirvi, Inouye, "Decoupled Vertical Federated Learning for
Practical Training on Vertically Partitioned Data").

Clients learn encoders of their own columns without labels; redundant aggregators learn, without
labels, to compress what the clients' encoders give; the owner learns a head on what the
aggregators give. No gradient ever crosses a link, and nobody ever waits: an aggregator keeps a
register per client, with that client's newest encoding, and a replay of what it has read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import msgspec
import torch
from torch import Tensor, nn

from colonnade.common.seeds import torch_stream
from colonnade.errors import InputError
from colonnade.learning import (
    Algorithm,
    Columns,
    Exchange,
    LabelHolder,
    LocalBatches,
    Members,
    Numbers,
    Part,
    Settings,
    Task,
    Value,
    check_widths,
    encoder_widths,
    make_head,
)
from colonnade.learning.objectives import OBJECTIVES, UNSUPERVISED, Pupils
from colonnade.models.layers import Centre, Placeholders, mlp
from colonnade.network import (
    ABSENT,
    ALL,
    EVERYONE,
    LATEST,
    Inbox,
    Network,
    Register,
    Wait,
    locally,
)

RATES = {"clients": 2e-3, "aggregators": 2e-3, "owner": 8e-2}
MAKE_UP = 3  # steps more in a round, for an aggregator that missed some


class DVFLSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults: the paper's for MNIST, appendix D. `optimizer`, `momentum` and `patience` are the
    owner's; clients and aggregators learn by Adam with weight decay 1e-5."""

    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: float | dict[str, float] = msgspec.field(default_factory=lambda: dict(RATES))
    aggregators: int = 4  # 0: the owner has their layers
    aggregator_width: int | None = None  # of an aggregator's encoding; half of what it joins
    objective: Literal["autoencoder", "simclr", "barlow"] = "autoencoder"
    decoder: list[int] | None = None  # hidden widths; the encoder's layers mirrored
    client_epochs: int = 20
    aggregator_epochs: int = 40
    owner_epochs: int | None = None  # another name of `epochs`
    period: int = 1  # encodings are sent in every so many-th client epoch
    replay: int | Literal["all"] = 2000  # batches an aggregator keeps to train on again; 0: none
    centre: bool = True  # the owner brings encodings to mean 0 and a common scale
    dropout: float = 0.0  # the owner learns to do without each encoding, with this probability
    imputation: Literal["zeros", "learnt"] = "zeros"  # for an encoding that did not come
    missing: Literal["zeros", "retry"] = "zeros"  # retry: the owner's collection waits for everyone

    def check(self, task: Task) -> None:
        super().check(task)
        counts = ("client_epochs", "aggregator_epochs", "owner_epochs", "period")
        for key in (*counts, "aggregator_width"):
            value = getattr(self, key)
            if value is not None and value < 1:
                raise InputError(f"{key} = {value}: expected 1 or more")
        for key, what in (("aggregators", "aggregators"), ("replay", "batches")):
            value = getattr(self, key)
            if value != "all" and value < 0:
                raise InputError(f"{key} = {value}: expected 0 or more {what}")
        check_widths("decoder", self.decoder)
        if self.aggregators and self.period > self.client_epochs:
            raise InputError(
                f"period = {self.period}: {self.client_epochs} client epochs would send nothing"
            )
        if self.owner_epochs is not None and self.epochs not in (None, self.owner_epochs):
            raise InputError(f"owner_epochs = {self.owner_epochs}: but epochs = {self.epochs}")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout = {self.dropout:g}: expected 0 or more, below 1")
        if self.imputation == "learnt" and not self.dropout:
            raise InputError(
                'imputation = "learnt": is learnt from encodings left out, so it needs dropout '
                "above 0, e.g. dropout = 0.25"
            )


class DVFL(Algorithm):
    name = "dvfl"
    settings = DVFLSettings
    optional = ("aggregators",)
    clients = Columns()
    aggregators = Members("aggregator", lambda self: self.aggregator_names())
    owner = LabelHolder("owner")
    encoding = Exchange(
        clients, aggregators, "an encoding of the columns, row by row", width="widths"
    )
    compressed = Exchange(
        aggregators,
        owner,
        "an encoding of all clients' encodings",
        width="offered",
        kind="encoding",
    )
    direct = Exchange(
        clients,
        owner,
        "an encoding of the columns, where there are no aggregators",
        width="offered",
        kind="encoding",
    )

    def __init__(self, settings: DVFLSettings, task: Task) -> None:
        super().__init__(settings, task)
        self.set: DVFLSettings = settings
        self.widths = encoder_widths(settings.encoder, task)
        self.joined = sum(self.widths)  # W_g
        self.code = settings.aggregator_width or max(1, self.joined // 2)  # W_h
        # What the owner is sent, by sender.
        self.offered = (self.code,) * settings.aggregators or self.widths
        self.wait = EVERYONE if settings.missing == "retry" else ALL
        self.heard_all = True  # clients, in the last round of communication

    def aggregator_names(self) -> tuple[str, ...]:
        count, task = self.set.aggregators, self.task
        own = tuple(f"aggregator{i}" for i in range(count))
        names = task.players.get("aggregators", own)
        if len(names) != count:
            raise InputError(f"aggregators = {count}: but {len(names)} parties are aggregators")
        if names is own and (taken := [name for name in own if name in task.clients]):
            raise InputError(
                f"data.columns: {taken[0]!r} is an aggregator; name the client otherwise"
            )
        return names

    def build(self, net: Network) -> None:
        s, W_g, W_h = self.set, self.joined, self.code
        hidden = (W_g + 3 * W_h) // 4
        learner = OBJECTIVES[s.objective]
        columns = Pupils.of_columns(self.clients, self.task, s.encoder, s.decoder)
        self.encoders = learner(self, net, columns, **UNSUPERVISED)
        if s.aggregators:
            # Encodings end in a ReLU, unless by an encoder of the user's own.
            last = None if callable(s.encoder) else nn.ReLU
            aggregators = Pupils(
                self.aggregators,
                shapes=((W_g,),) * s.aggregators,
                codes=(W_h,) * s.aggregators,
                encoder=lambda _: mlp([W_g, hidden, W_h], last=nn.LeakyReLU),
                decoder=lambda _: mlp([W_h, hidden, W_g], last=last),
                names=("compressor", "expander"),
            )
            self.compressors = learner(self, net, aggregators, **UNSUPERVISED)
        rows = self.local_batches.aligned.size
        most = None if s.replay == "all" else s.replay
        replay = Replay(len(net.here(self.aggregators)), most, rows, W_g)
        self.replay = self.keeps(net, "replay", self.aggregators, replay)
        self.registers = self.keeps(net, "registers", self.aggregators, Register())
        self.newest = self.keeps(net, "newest", self.aggregators, Value())
        self.steps = self.keeps(net, "steps", self.aggregators, Numbers(done=0))
        self.collected = self.keeps(net, "collected", self.owner, Value(large=True))
        self.validation = self.keeps(net, "validation", self.owner, Value(large=True))
        layers = [W_h, 40] if s.aggregators else [hidden, W_h, W_h, 40]
        received = [sum(self.offered) + len(self.offered)]
        self.centre = self.stack(
            net, "centre", self.owner, lambda _: Centre(self.offered), input_widths=received
        )
        self.head = self.stack(
            net,
            "head",
            self.owner,
            lambda _: self.owner_model(layers),
            input_widths=received if self.learnt else [sum(self.offered)],
        )

    def owner_model(self, layers: list[int]) -> nn.Module:
        spec = layers if self.set.head is None else self.set.head
        head = make_head(spec, sum(self.offered), self.task.outputs)
        return nn.Sequential(Placeholders(self.offered), head) if self.learnt else head

    @property
    def rectified(self) -> bool:
        return self.set.aggregators > 0

    @property
    def learnt(self) -> bool:
        return self.set.imputation == "learnt"

    @cached_property
    def local_batches(self) -> LocalBatches:
        return LocalBatches.of(self.task, self.set.batch, self.set.client_epochs)

    @property
    def rounds_of_replay(self) -> int:
        if not self.set.aggregators or self.set.replay == 0:
            return 0
        heard = self.set.client_epochs // self.set.period
        return max(0, self.set.aggregator_epochs - heard) * self.local_batches.per_epoch

    @property
    def last_heard(self) -> int:
        """The last epoch in which aggregators hear of the clients; -1: none."""
        epochs, period = self.set.client_epochs, self.set.period
        return epochs // period * period - 1 if self.set.aggregators else -1

    @property
    def heard_rounds(self) -> int:
        """Rounds in which aggregators learn from what they hear."""
        heard = self.set.client_epochs // self.set.period
        return heard * self.local_batches.per_epoch if self.set.aggregators else 0

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
            if before < batch.epoch == self.last_heard:
                await net.reunite()  # no aggregator should miss what final encoders give
            before = batch.epoch
            x, rows = self.data.alone(batch)
            talking = self.set.aggregators > 0 and (batch.epoch + 1) % self.set.period == 0
            if talking and batch.aligned:
                await self.communicate(net, self.encoders.encode(x), len(batch.rows))
                up = net.alive(self.clients)
            else:
                up = net.call(self.clients)
            if talking and self.newest.value is not None:
                self.learn_to_compress(net, self.newest.value, net.alive(self.aggregators))
            self.steps["done"] += talking and self.heard_all
            self.encoders.learn(x, up, net.round, rows)

    async def communicate(self, net: Network, h: Tensor, rows: int) -> None:
        """Clients write their registers; aggregators read them and remember."""
        inbox = await net.send(h, self.encoding, rows, wait=LATEST)
        self.newest.set(inbox.latest(self.registers).concat())  # [aggregators, rows, W_g]
        locally(lambda inbox: self.hear(net, inbox.everything), inbox)

    def hear(self, net: Network, everything: bool) -> None:
        """Remember the newest batch. A real aggregator does not if a client is missing that will
        come, and makes up for it later."""
        self.heard_all = everything or not net.owing()
        if self.heard_all:
            self.replay.append(self.newest.value, net.alive(self.aggregators))

    async def compress(self, net: Network) -> None:
        """Aggregators go on with what they remember, until they had all their epochs. One that
        missed rounds learns more in a round, from the newest epoch, until it has caught up."""
        async for t in net.rounds(range(self.rounds_of_replay)):
            up = net.alive(self.aggregators) & self.replay.filled
            missed = self.heard_rounds + t - self.steps["done"]
            self.learn_to_compress(net, self.replay.read(t - self.rounds_of_replay), up)
            for i in range(min(missed, MAKE_UP)):
                newest = -1 - (MAKE_UP * t + i) % self.local_batches.per_epoch
                self.learn_to_compress(net, self.replay.read(newest), up)
            self.steps["done"] += min(missed, MAKE_UP) + 1
        self.replay.forget()

    def learn_to_compress(self, net: Network, b: Tensor, up: Tensor) -> None:
        self.compressors.learn(b, up, net.round, torch.arange(0))

    # -- the owner, with labels -------------------------------------------------------------------

    async def supervise(self, net: Network) -> None:
        """The owner collects the final encodings once, keeps them and learns on its own."""
        train = await self.collect(net.within("supervision"), self.data.train, self.wait)
        if self.set.centre and self.collected.value is None:  # else it was found before a restart
            locally(self.find_centre, train)
        self.collected.set_once(self.centre.predict(train))
        apart = net.within("validation")
        validation = await self.collect(apart, self.data.validation, self.wait)
        self.validation.set_once(self.centre.predict(validation))
        async for batch in self.training.rounds(net):
            x = self.left_out(self.collected.read(batch.rows), net.round)
            batch.loss = self.head.fit(x, batch.y, self.loss)

    async def validate(self, net: Network) -> Tensor:
        return self.head.predict(self.validation.value)[0]  # nobody needs to be asked again

    async def collect(self, net: Network, part: Part, wait: Wait = ALL) -> Tensor:
        """Columns → clients → aggregators → owner: encodings side by side, then by sender whether
        one came, as 0 or 1. [owner, rows, widths + senders]"""
        collected = [torch.zeros(1, 0, sum(self.offered) + len(self.offered))]
        batches = part.in_order(self.predict_rows(net))
        async for batch in net.rounds(batches, unhurried=True):
            h = self.encoders.predict(batch.x)
            if self.set.aggregators:
                inbox = await net.send(h, self.encoding, len(batch), wait=wait)
                code = self.compressors.predict(inbox.concat())
                inbox = await net.send(code, self.compressed, len(batch), wait=wait)
            else:
                inbox = await net.send(h, self.direct, len(batch), wait=wait)
            collected.append(locally(received, inbox))
        return torch.cat(collected, 1)

    async def predict(self, net: Network, part: Part) -> Tensor:
        """What does not come counts as zeros (after centring: as their mean), or is replaced by
        what the owner learnt."""
        return self.head.predict(self.centre.predict(await self.collect(net, part)))[0]

    # -- the owner's inputs -----------------------------------------------------------------------

    def find_centre(self, train: Tensor) -> None:
        """Mean by feature, and one scale: SGD finds its way from there whatever the encodings."""
        if not train.shape[1]:
            return  # they were collected before a restart
        x = train[0, :, : sum(self.offered)]
        found = {"mean": x.mean(0), "scale": (x - x.mean(0)).square().mean().sqrt()[None]}
        for name, value in self.centre.member_state(0).items():
            value.copy_(found[name].clamp(min=1e-6) if name == "scale" else found[name])

    def left_out(self, x: Tensor, round: int) -> Tensor:
        """Training rows as if encodings had been lost, each with probability `dropout`."""
        return locally(self._left_out, x, round)

    def _left_out(self, x: Tensor, round: int) -> Tensor:
        if not self.set.dropout:
            return x
        stream = torch_stream(self.task.seed, "owner", "dropout", round)
        kept = torch.rand(x.shape[1], len(self.offered), generator=stream) >= self.set.dropout
        wide = kept.repeat_interleave(torch.tensor(self.offered), 1)
        return x * torch.cat([wide, kept], 1)


def received(inbox: Inbox) -> Tensor:
    joined = inbox.concat()
    came = inbox.arrived[:, None].expand(-1, joined.shape[1], -1)
    return torch.cat([joined, came.to(joined.dtype)], 2)


class Replay:
    """What each aggregator here has read and may train on again. A short last batch is not kept."""

    large = True

    def __init__(self, members: int, most: int | None, rows: int, width: int) -> None:
        self.members, self.most, self.rows, self.width = members, most, rows, width
        self.kept: list[list[Tensor]] = [[] for _ in range(members)]
        self.new = [0] * members  # batches that came since `changes` was asked

    def append(self, b: Tensor, up: Tensor) -> None:
        """b is [aggregators here, rows, width]; one that is down drops it."""
        if self.most == 0 or b.shape[1] < self.rows:
            return
        for i, (kept, batch, alive) in enumerate(zip(self.kept, b, up.tolist(), strict=True)):
            if alive:
                self.new[i] += 1
                kept.append(batch)
                self._drop_the_oldest(kept)

    def _drop_the_oldest(self, kept: list[Tensor]) -> None:
        if self.most is not None:
            del kept[: -self.most]

    def forget(self) -> None:
        """Gigabytes that nobody will read again."""
        for kept in self.kept:
            kept.clear()
        self.new = [0] * len(self.kept)

    # -- as state ---------------------------------------------------------------------------------

    def whole(self) -> list[dict[str, Tensor]]:
        return self._of([len(kept) for kept in self.kept])

    def changes(self) -> list[dict[str, Tensor]]:
        new = [min(n, len(kept)) for n, kept in zip(self.new, self.kept, strict=True)]
        self.new = [0] * len(self.kept)
        return self._of(new) if any(new) else []

    def _of(self, newest: Sequence[int]) -> list[dict[str, Tensor]]:
        """The newest batches of each aggregator here."""
        empty = torch.zeros(0, self.rows, self.width)
        pairs = zip(self.kept, newest, strict=True)
        return [{"batches": torch.stack(kept[-n:]) if n else empty} for kept, n in pairs]

    def restore(self, found: Sequence[dict[str, Tensor]]) -> None:
        for kept, one in zip(self.kept, found, strict=True):
            kept.extend(one["batches"])
            self._drop_the_oldest(kept)

    @property
    def filled(self) -> Tensor:
        """[aggregators here] bool"""
        return torch.tensor([bool(kept) for kept in self.kept], dtype=torch.bool)

    def read(self, t: int) -> Tensor:
        """Each aggregator's t-th batch, round and round: -1 is the newest."""
        if not self.kept:
            return ABSENT  # pyright: ignore[reportReturnType]
        empty = torch.zeros(self.rows, self.width)
        return torch.stack([kept[t % len(kept)] if kept else empty for kept in self.kept])
