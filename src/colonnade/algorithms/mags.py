"""MAGS: multiple aggregation with gossip rounds and simulated faults ("Robust Decentralized VFL
over Dynamic Device Environment").

There is no server. Devices encode their columns and send the encodings along the graph; every
aggregator, which is a device as well, joins what reached it and predicts; rounds of gossip average
the aggregators' log-probabilities; whoever wants an answer asks one device. In training messages
are left out at random (dropout), so that predictions survive when messages are lost.

Where the label is a number, which the paper does not have, aggregators gossip their numbers.

Labels are known to all aggregators, and nobody decides for others: see `learning/gossip.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, cast

import msgspec
import torch
from torch import Tensor, nn

from colonnade.algorithms.answers import Answers, metrics
from colonnade.common.seeds import numpy_stream, torch_stream
from colonnade.errors import InputError
from colonnade.learning import (
    Algorithm,
    Columns,
    Exchange,
    LocalBatches,
    Members,
    Part,
    Settings,
    Task,
    encoder_widths,
    make_decoder,
    make_encoder,
    make_head,
)
from colonnade.learning.gossip import Gossip, spread
from colonnade.learning.objectives import OBJECTIVES, UNSUPERVISED, Pupils
from colonnade.models.layers import Committee, Slots, mlp
from colonnade.models.stack import Stack
from colonnade.network import ABSENT, ALL, Group, Inbox, Network, deadline, locally
from colonnade.network.channel import Channel
from colonnade.network.topology import Links

NAME = re.compile(
    r"(?:(?P<drop>CD|PD)-)?(?:(?P<few>[1-9]\d*)-)?(?P<kind>VFL|MVFL)(?:-G(?P<gossip>\d+))?"
)
DROPOUT = 0.3  # of the methods whose name begins with CD- or PD-
WIDEST_HEAD = 128
ROWS_OF_ALL = 65_536  # predicted at a time, summed over the aggregators
SLOWLY = 0.05  # how fast a mean follows what comes


class MAGSSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults: the paper's, appendix F.3: Adam 1e-3, batch 64, 100 epochs, the epoch with the
    lowest validation loss."""

    method: str | None = None  # the paper's name for some of what follows, e.g. "CD-MVFL-G4"
    aggregators: int | Literal["all"] = "all"  # or so many devices, drawn by the seed
    gossip: int = 0  # rounds, when predicting
    dropout: float = 0.0  # what is left out in training, with this probability:
    dropout_kind: Literal["communication", "party"] = "communication"  # messages or devices
    depth: int = 0  # further rounds of messages before the prediction (Deep MVFL)
    imputation: Literal["zeros", "mean", "learnt"] = "zeros"  # for an encoding that did not come
    deadline: float | None = None  # seconds; when predicting, what comes later is missing
    objective: Literal["autoencoder", "simclr", "barlow"] | None = None  # encoders learn alone
    encoder_epochs: int = 20  # if so

    at_inference: ClassVar[tuple[str, ...]] = ("method", "gossip", "deadline")

    def resolved(self) -> MAGSSettings:
        if self.method is None:
            return self
        found = NAME.fullmatch(self.method)
        if not found or (found["kind"] == "VFL" and found["few"]):
            raise InputError(
                f"method = {self.method!r}: expected a name such as VFL, PD-VFL, MVFL, 4-MVFL-G2 "
                "or CD-MVFL-G4"
            )
        few = 1 if found["kind"] == "VFL" else found["few"] and int(found["few"])
        meant = {"aggregators": few or "all", "gossip": int(found["gossip"] or 0)}
        if found["drop"]:
            meant["dropout"] = self.dropout or DROPOUT
            meant["dropout_kind"] = "party" if found["drop"] == "PD" else "communication"
        usual = {f.name: f.default for f in msgspec.structs.fields(self)}
        for key, value in {"dropout": 0.0, **meant}.items():
            if getattr(self, key) not in (usual[key], value):
                raise InputError(
                    f"{key} = {getattr(self, key)!r}: but method = {self.method!r} means {value!r}"
                )
        return msgspec.structs.replace(self, **meant)

    def check(self, task: Task) -> None:
        super().check(task)
        self.resolved()
        if self.aggregators != "all" and not 1 <= self.aggregators <= len(task.clients):
            raise InputError(
                f"aggregators = {self.aggregators}: expected 1 to {len(task.clients)}, the number "
                'of devices, or "all"'
            )
        for key in ("gossip", "depth"):
            if getattr(self, key) < 0:
                raise InputError(f"{key} = {getattr(self, key)}: expected 0 or more rounds")
        if not 0 <= self.dropout <= 1:
            raise InputError(f"dropout = {self.dropout:g}: expected a probability, 0 to 1")
        if self.deadline is not None and not 0 < self.deadline < math.inf:
            raise InputError(f"deadline = {self.deadline:g}: expected more than 0 seconds")
        if self.encoder_epochs < 1:
            raise InputError(f"encoder_epochs = {self.encoder_epochs}: expected 1 or more")
        if self.depth and self.objective:
            raise InputError(
                f'depth = {self.depth}: but objective = "{self.objective}", and encoders that '
                "learn alone are not passed any gradients; leave out one of the two"
            )
        if self.depth and self.head is not None:
            raise InputError(f"depth = {self.depth}: deals out the usual head; leave out head")


class MAGS(Algorithm):
    name = "mags"
    settings = MAGSSettings
    usual_epochs = 100
    stops_early = False  # the paper never does
    led, control = False, Gossip
    outside = ("entity",)
    devices = Columns()
    aggregators = Members("aggregator", lambda self: self.aggregator_names())
    entity = Members("owner", lambda self: self.task.players.get("entity", ("entity",)))
    encoding = Exchange(
        devices, aggregators, "an encoding of the columns, row by row", width="width"
    )
    deep_encoding = Exchange(
        aggregators,
        aggregators,
        "an encoding of encodings, with depth",
        width="width",
        kind="encoding",
    )
    gradient = Exchange(
        aggregators, devices, "how a loss changes with an encoding", width="width", each=True
    )
    deep_gradient = Exchange(
        aggregators,
        aggregators,
        "how a loss changes with an encoding of encodings",
        width="width",
        each=True,
        kind="gradient",
    )
    log_probability = Exchange(
        aggregators, aggregators, "what one predicts, row by row", width="task.outputs"
    )
    answer = Exchange(aggregators, entity, "the prediction, to whoever asks", width="task.outputs")
    validation = Exchange(
        devices,
        devices,
        "loss and deciding metric of every aggregator",
        width="witness_count",
        bounded=False,
    )
    validation_told = Exchange(
        devices,
        entity,
        "loss and deciding metric of every aggregator",
        width="witness_count",
        bounded=False,
        kind="validation",
    )

    def __init__(self, settings: MAGSSettings, task: Task) -> None:
        super().__init__(settings.resolved(), task)
        self.set: MAGSSettings = settings.resolved()
        self.chosen = self.choose()  # which devices aggregate
        self.encoder = settings.encoder or default_encoder(len(self.devices))
        self.width = max(self.embedding_widths)
        self.flagged = settings.imputation != "zeros"

    @property
    def embedding_widths(self) -> tuple[int, ...]:
        return encoder_widths(self.encoder, self.task)

    @cached_property
    def labels(self) -> Group:
        return Group("labels", (*self.aggregators.parties, *self.entity.parties), "owner")

    def aggregator_names(self) -> tuple[str, ...]:
        return tuple(self.task.clients[i] for i in self.chosen)

    @property
    def witnesses(self) -> range:
        return spread(len(self.chosen))

    @property
    def witness_count(self) -> int:
        return len(self.witnesses)

    def choose(self) -> tuple[int, ...]:
        devices, wanted = len(self.task.clients), self.set.aggregators
        if wanted == "all":
            return tuple(range(devices))
        drawn = numpy_stream(self.task.seed, "aggregators").permutation(devices)[:wanted]
        return tuple(sorted(drawn.tolist()))

    # -- models -----------------------------------------------------------------------------------

    def build(self, net: Network) -> None:
        s, to_all = self.set, net.links(self.devices, self.aggregators)
        between = net.links(self.aggregators, self.aggregators)
        if s.objective is None:
            facts: Any = {"input_widths": self.task.widths}
            self.encoders = self.stack(net, "encoder", self.devices, self.make_encoder, **facts)
        else:
            self.alone = OBJECTIVES[s.objective](self, net, self.pupils(), **UNSUPERVISED)
            self.encoders = self.alone.encoders
        self.deep = [
            self.aggregator_stack(net, f"deep{i}", to_all if i == 0 else between, self.make_deep)
            for i in range(s.depth)
        ]
        last = between if s.depth else to_all
        self.heads = self.aggregator_stack(net, "head", last, self.make_head)
        self.hops = net.world.topology.diameter(len(self.devices))
        self.prior = locally(self.task.goal.prior, self.data.train.y)

    def make_encoder(self, device: int) -> nn.Module:
        spec, width = self.encoder, self.task.widths[device]
        return make_encoder(spec, width, self.task.shapes[device], hidden=nn.ReLU)

    def pupils(self) -> Pupils:
        code = encoder_widths(self.encoder, self.task)
        return Pupils(
            self.devices,
            self.task.shapes,
            code,
            encoder=self.make_encoder,
            decoder=lambda i: make_decoder(None, self.encoder, code[i], self.task.shapes[i]),
        )

    def aggregator_stack(self, net: Network, name: str, links: Links, make: Any) -> Stack:
        """Models that take a slot per neighbour, and fill those that stayed empty."""
        senders = [row[real].tolist() for row, real in zip(links.senders, links.real, strict=True)]

        def module(k: int) -> nn.Module:
            body = make(senders[k], len(links.src))
            if not self.flagged:
                return body
            learnt = self.set.imputation == "learnt"
            return nn.Sequential(Slots(len(senders[k]), self.width, learnt=learnt), body)

        widths = [len(one) * (self.width + self.flagged) for one in senders]
        return self.stack(net, name, self.aggregators, module, input_widths=widths)

    def make_head(self, senders: Sequence[int], group: int) -> nn.Module:
        s, outputs = self.set, self.task.outputs
        if callable(s.head):
            return make_head(s.head, len(senders) * self.width, outputs)
        widths = [] if s.depth else [self.hidden] if s.head is None else s.head
        head = mlp([group * self.width, *widths, outputs], hidden=nn.ReLU)
        head[0] = narrowed(cast(nn.Linear, head[0]), senders, self.width)
        return head

    def make_deep(self, senders: Sequence[int], group: int) -> nn.Module:
        """The hidden layer of a head, dealt out over the rounds of messages."""
        perceptrons = max(1, round(self.hidden / (self.width * self.set.depth)))
        layer = Committee(group * self.width, self.width, perceptrons)
        layer.linear = narrowed(layer.linear, senders, self.width)
        return layer

    @property
    def hidden(self) -> int:
        return min(len(self.devices) * self.width, WIDEST_HEAD)

    # -- training ---------------------------------------------------------------------------------

    async def train(self, net: Network) -> None:
        if self.set.objective is not None:  # as in DVFL: nothing is sent, so nothing can be lost
            await self.alone.learn_alone(net, self.data, self.local_batches)
            await self.training.freeze(net, *self.alone.pupils.names)
        learn = self.learn_together if self.set.objective is None else self.learn_heads
        async for batch in self.training.rounds(net):
            batch.loss = await learn(net, batch.x, batch.y, len(batch))

    async def learn_together(self, net: Network, x: Tensor, y: Tensor, rows: int) -> Tensor:
        """One step of split learning at every aggregator at once, and of all encoders."""
        h = self.encoders(x)  # [devices, rows, width]
        inbox = await net.send(h, self.encoding, rows, wait=self.wait(net), where=self.kept(net))
        up = net.alive(self.aggregators)
        passed = []
        for layer in self.deep:
            self.follow_means(layer, inbox)
            joined = locally(self.joined, inbox).requires_grad_()
            deeper = layer(joined)  # [aggregators, rows, width]
            passed.append((layer, inbox, joined, deeper))
            inbox = await net.send(deeper, self.deep_encoding, rows, wait=self.wait(net))
        self.follow_means(self.heads, inbox)
        loss, gradient = self.heads.learn(locally(self.joined, inbox), y, self.loss, up)
        for layer, before, joined, deeper in reversed(passed):
            back = await self.send_back(net, gradient, inbox, up, self.deep_gradient, rows)
            gradient = layer.pass_back(joined, deeper, back.total(), up)
            inbox = before
        back = await self.send_back(net, gradient, inbox, up, self.gradient, rows)
        # A gradient that did not come counts as zeros (appendix C).
        self.encoders.backward(h, back.total(), net.alive(self.devices))
        return loss

    async def learn_heads(self, net: Network, x: Tensor, y: Tensor, rows: int) -> Tensor:
        """One step at every aggregator, on whatever encodings come; no gradient goes back."""
        h = self.encoders.predict(x)
        inbox = await net.send(h, self.encoding, rows, wait=self.wait(net), where=self.kept(net))
        self.follow_means(self.heads, inbox)
        joined = locally(self.joined, inbox)
        return self.heads.fit(joined, y, self.loss, net.alive(self.aggregators))

    @cached_property
    def local_batches(self) -> LocalBatches:
        return LocalBatches.of(self.task, self.set.batch, self.set.encoder_epochs)

    @property
    def unlabelled_rounds(self) -> int:
        return 0 if self.set.objective is None else len(self.local_batches)

    def predict_rows(self, net: Network) -> int:
        """Who is late is drawn for a batch, too. Many aggregators make large messages of few
        rows."""
        late = net.phase == "inference" and self.set.deadline is not None
        few = max(self.set.batch, ROWS_OF_ALL // len(self.aggregators))
        return self.set.batch if late else min(super().predict_rows(net), few)

    def kept(self, net: Network) -> Tensor | None:
        """Dropout: which messages are sent. A device always hears itself. [devices here,
        out-degree]"""
        if not self.set.dropout:
            return None
        links = net.links(self.aggregators, self.devices)  # by device: whom it sends to
        columns = 1 if self.set.dropout_kind == "party" else links.shape[1]
        stream = torch_stream(self.task.seed, "dropout", net.round)
        draw = torch.rand(len(self.devices), columns, generator=stream) >= self.set.dropout
        kept = draw | torch.from_numpy(links.own)
        here = net.here(self.devices)
        return kept if len(here) == len(kept) else kept[list(here)]

    async def validate(self, net: Network) -> Any:
        """Loss and deciding metric of every aggregator by itself. [aggregators here, 2]"""
        part, opinions = self.data.validation, []
        async for batch in net.rounds(part.in_order(self.predict_rows(net))):
            opinions.append(await self.opine(net, batch.x, len(batch)))
        return locally(self.scores, part.y, *opinions)

    def scores(self, y: Tensor, *opinions: Tensor) -> Tensor:
        """What `validate` tells, given the opinions of batches. [aggregators here, 2]"""
        goal, answers = self.task.goal, [self.unscaled(z) for z in opinions]
        truths, scale = y.split([z.shape[1] for z in answers]), self.label_scale[1]
        pairs = zip(answers, truths, strict=True)
        losses = [goal.row_loss(z, truth, scale).sum((1, 2)) for z, truth in pairs]
        values = [goal.deciding.of(one, y) for one in torch.cat(answers, 1)]
        loss = torch.stack(losses).sum(0) / len(y)
        return torch.stack([loss, torch.tensor(values, dtype=loss.dtype)], 1)

    # -- prediction: algorithm 1 ------------------------------------------------------------------

    async def predict(self, net: Network, part: Part) -> Tensor:
        """What somebody outside is told who asks one device after the other until one can answer;
        at a device, where nobody is outside, what it would tell."""
        answers = await self.ask(net, part)
        if not self.entity.parties:
            return torch.cat([one.opinions[0] for one in answers]) if answers else ABSENT  # pyright: ignore[reportReturnType]
        if not net.here(self.entity):
            return ABSENT  # pyright: ignore[reportReturnType]
        unsure = self.task.goal.unsure(self.prior)
        return torch.cat([one.first(unsure) for one in answers])

    async def test(self, net: Network) -> dict[str, float]:
        if not self.entity.parties:
            return await super().test(net)
        answers = await self.ask(net, self.data.test)
        if not answers:
            return {}
        told = [Answers(self.unscaled(one.opinions), one.active) for one in answers]
        prior, scale = self.unscaled(self.prior), self.label_scale[1]
        found, self.course = metrics(told, self.data.test.y, prior, self.task.goal, scale)
        return found

    async def ask(self, net: Network, part: Part) -> list[Answers]:
        """The aggregators' predictions, as far as they reach the entity; where there is none, every
        aggregator keeps its own."""
        answers: list[Answers] = []
        async for batch in net.rounds(part.in_order(self.predict_rows(net))):
            z = await self.opine(net, batch.x, len(batch))
            z = await self.gossip(net, z, len(batch))
            # Who asks cannot know when the devices stopped waiting for each other.
            inbox = await net.send(z, self.answer, len(batch))
            if net.here(self.entity):
                answers.append(Answers(inbox.value[0], inbox.arrived[0]))
            elif not self.entity.parties and net.here(self.aggregators):
                answers.append(Answers(z, torch.ones(len(z), dtype=torch.bool)))
        return answers

    async def opine(self, net: Network, x: Tensor, rows: int) -> Tensor:
        """Lines 2 to 4: every aggregator by itself. Log-probabilities, or numbers [aggregators
        here, rows, outputs]"""
        h = self.encoders.predict(x)
        inbox = await net.send(h, self.encoding, rows, wait=self.wait(net))
        for layer in self.deep:
            h = layer.predict(locally(self.joined, inbox))
            inbox = await net.send(h, self.deep_encoding, rows, wait=self.wait(net))
        outputs = self.heads.predict(locally(self.joined, inbox))
        return locally(self.task.goal.opinion, outputs)

    async def gossip(self, net: Network, z: Tensor, rows: int) -> Tensor:
        """Lines 5 to 7: means over the neighbours that can be heard, itself among them."""
        for _ in range(self.set.gossip):
            inbox = await net.send(z, self.log_probability, rows, wait=self.wait(net))
            z = locally(newer, z, inbox)
        return locally(self.task.goal.opinion, z) if self.set.gossip else z

    # -- messages ---------------------------------------------------------------------------------

    async def send_back(
        self, net: Network, gradient: Tensor, inbox: Inbox, up: Tensor, to: Channel, rows: int
    ) -> Inbox:
        """To those whose encoding was used."""
        shares = locally(self.shares, gradient, inbox)
        return await net.send(shares, to, rows, where=inbox.arrived & up[:, None])

    def wait(self, net: Network) -> Any:
        limit = self.set.deadline if net.phase == "inference" else None
        return ALL if limit is None else deadline(limit)

    def joined(self, inbox: Inbox) -> Tensor:
        """Side by side, zeros where nothing came; with flags if there is something to fill in.
        [aggregators, rows, slots · width]"""
        if not self.flagged:
            return inbox.concat()
        rows = inbox.raw.shape[2]
        flags = inbox.arrived[:, :, None, None].expand(-1, -1, rows, 1)
        parts = torch.cat([inbox.value, flags.to(inbox.value.dtype)], 3)
        return parts.transpose(1, 2).flatten(2)

    def shares(self, gradient: Tensor, inbox: Inbox) -> Tensor:
        """The inverse of `joined`. [aggregators, slots, rows, width]"""
        if not self.flagged:
            return inbox.split(gradient)
        slots = inbox.raw.shape[1]
        return gradient.unflatten(2, (slots, self.width + 1)).transpose(1, 2)[..., :-1]

    def follow_means(self, models: Stack, inbox: Inbox) -> None:
        """What stands in for a missing encoding is the mean of those that came before."""
        if self.set.imputation == "mean":
            locally(self._follow_means, models, inbox)

    def _follow_means(self, models: Stack, inbox: Inbox) -> None:
        means = inbox.value.mean(2)  # [aggregators, slots, width]
        for i in range(models.members):
            value = models.member_state(i)["0.value"]
            came = inbox.arrived[i, : len(value)]
            value[came] += SLOWLY * (means[i, : len(value)][came] - value[came])


def newer(z: Tensor, inbox: Inbox) -> Tensor:
    """The mean of what came; who heard nothing, not even itself, was away and keeps what it had."""
    return torch.where(inbox.any[:, None, None], inbox.mean(), z)


def default_encoder(devices: int) -> list[int | float]:
    """The paper's for 4, 16 and 49 devices: 64 → 16, 16 → 4, 4 → 2."""
    hidden, code = (2 ** round(torch.log2(torch.tensor(n / devices)).item()) for n in (256, 64))
    return [max(4, int(hidden)), max(2, int(code))]


def narrowed(layer: nn.Linear, senders: Sequence[int], width: int) -> nn.Linear:
    """A layer for all members of a group, cut to those it can hear of: to the same numbers, as the
    others' would always be zeros."""
    if len(senders) * width == layer.in_features:
        return layer
    columns = [s * width + i for s in senders for i in range(width)]
    cut = nn.Linear(len(columns), layer.out_features)
    with torch.no_grad():
        cut.weight.copy_(layer.weight[:, columns])
        cut.bias.copy_(layer.bias)
    return cut
