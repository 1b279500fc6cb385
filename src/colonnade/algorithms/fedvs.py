"""FedVS (Li, Yao, Liu, "FedVS: Straggler-Resilient and Privacy-Preserving Vertical Federated
Learning for Split Models", 2023).

Every client shares its columns once, and its model in every round, with all clients by a Lagrange
code. Each client evaluates the models of all clients on the shares it holds, and sends the server
one coded sum. From any 2(K + T − 1) + 1 coded sums the server gets the exact sum of all embeddings,
those of late clients included, and nothing else. T clients together learn nothing of the others.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Annotated, Literal, cast

import torch
from torch import Tensor, nn

from colonnade.algorithms.fedvs_shares import TAG, Shares
from colonnade.algorithms.fedvs_time import Steps, fastest
from colonnade.coding import Field, LagrangeCode, TooFewAnswers
from colonnade.coding.field import MERSENNE_31
from colonnade.coding.lagrange import most_partitions
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
    Value,
    at_least,
)
from colonnade.learning.segments import CodedBatch, CodedBatches, CodedInOrder, Segments
from colonnade.models.layers import polynomial
from colonnade.network import ABSENT, ALL, EVERYONE, Inbox, Network, first, local

log = logging.getLogger(__name__)

CHUNK = 4096  # coded rows per message when columns are shared


class FedVSSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults: the paper's T, batch and rate for images, with momentum 0.9. `batch` counts rows of
    the data: a step takes batch / partitions coded rows. `encoder`: one width, that of the
    embeddings."""

    batch: Annotated[int, at_least(1)] = 256
    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: float | dict[str, float] = 5e-2
    momentum: Annotated[float, at_least(0)] = 0.9
    # K: a share is 1/K of the columns. "auto": the fastest under the delays of the network.
    partitions: int | Literal["auto"] = 1
    colluders: int = 1  # T: so many clients together learn nothing
    degree: Annotated[int, at_least(1)] = 2  # D, of the clients' polynomials
    data_bits: Annotated[int, at_least(1)] = 7  # binary places of the columns and their powers
    model_bits: Annotated[int, at_least(1)] = 13  # binary places of the clients' models
    prime: int = MERSENNE_31
    # When a client does not share its model, or too few answer. zeros: go on without its embedding,
    # and leave out the steps that too few answer.
    missing: Literal["wait", "zeros", "error"] = "wait"

    def check(self, task: Task) -> None:
        super().check(task)
        if self.encoder is not None and not (
            isinstance(self.encoder, list) and len(self.encoder) == 1 and self.encoder[0] >= 1
        ):
            raise InputError(
                f"encoder = {self.encoder!r}: the clients' models are polynomials of their columns "
                "(see degree); expected one width, that of the embeddings, e.g. encoder = [64]"
            )
        partitions = 1 if self.partitions == "auto" else self.partitions
        self.code(task, partitions)
        if partitions > task.rows["train"]:
            raise InputError(
                f"partitions = {partitions}: there are only {task.rows['train']} training rows"
            )

    def code(self, task: Task, partitions: int) -> LagrangeCode:
        clients, field = len(task.clients), Field(self.prime)
        return LagrangeCode(clients, partitions, self.colluders, field=field)

    def steps(self, task: Task, partitions: int) -> Steps:
        features = tuple(self.degree * (width + 1) for width in task.widths)
        code = self.code(task, partitions)
        return Steps(code, task.rows["train"], self.batch, self.width, features)

    @property
    def width(self) -> int:
        return int(self.encoder[0]) if isinstance(self.encoder, list) else 64


class FedVS(Algorithm):
    name = "fedvs"
    settings = FedVSSettings
    set: FedVSSettings
    clients = Columns()
    server = LabelHolder("aggregator")
    data_share = Exchange(
        clients,
        clients,
        "a share of the columns: uniform numbers, unless more than T clients join theirs",
        width="field.features",
        each=True,
        by="sender",
        numbers="int32",
    )
    model_share = Exchange(
        clients,
        clients,
        "a share of the client's model, of the same kind",
        width="field.features",
        each=True,
        by="sender",
        numbers="int32",
    )
    coded_embedding = Exchange(
        clients,
        server,
        "a share of the sum of all clients' embeddings, row by row",
        width="set.width",
        numbers="int32",
    )
    gradient = Exchange(
        server, clients, "how the loss changes with the mean embedding", width="set.width"
    )
    held = Exchange(
        clients,
        server,
        "whose shares the client has, before a prediction",
        width="code.clients",
        numbers="int32",
    )
    counted = Exchange(
        server,
        clients,
        "whose shares count in the prediction",
        width="code.clients",
        numbers="int32",
    )

    def __init__(self, settings: FedVSSettings, task: Task) -> None:
        super().__init__(settings, task)
        self.steps = (
            self.fastest()
            if settings.partitions == "auto"
            else settings.steps(task, settings.partitions)
        )
        self.code = self.steps.code
        self.field = Shares(settings, self.code, task.widths)
        waits = settings.missing == "wait"
        self.of_all = EVERYONE if waits else ALL
        self.of_enough = first(self.code.threshold, insist=waits)

    def fastest(self) -> Steps:
        """Of all K that the clients and their rows allow, the one with the shortest expected epoch
        under the configured delays, of which everybody knows; 1 where there are none."""
        delays, rows = self.task.delays, self.task.rows["train"]
        most = most_partitions(len(self.clients), self.set.colluders) if delays.any else 1
        possible = [self.set.steps(self.task, k) for k in range(1, min(most, rows) + 1)]
        chosen = fastest(possible, delays, self.clients, self.server)
        why = (
            "the fastest under the configured delays" if delays.any else "no delays are configured"
        )
        self.notes += (f"{self.set.name}: partitions = {chosen.code.partitions} ({why})",)
        log.info(self.notes[-1])
        return chosen

    def build(self, net: Network) -> None:
        features = self.field.features
        self.models = self.stack(net, "model", self.clients, self.model, input_widths=features)
        self.head = self.head_stack(net, self.server, self.set.width)
        large = lambda name: self.keeps(net, name, self.clients, Value(large=True))  # noqa: E731
        self.shares, self.validation_shares = large("shares"), large("validation shares")
        self.masks, self.validation_masks = large("masks"), large("validation masks")
        self.here = net.here(self.clients)
        self.x = self.field.powers(self.data.train.x, self.here)  # their own, in the clear
        self.largest = torch.zeros(len(self.here), self.field.widest)  # of all that was shared

    def model(self, client: int) -> nn.Module:
        """Its linear part: a client keeps the powers of its columns."""
        widths = self.task.widths[client], self.set.width
        return polynomial(*widths, self.set.degree, parties=len(self.clients))[1]

    def batches(self, rows: int, size: int, epochs: int) -> CodedBatches:
        segments = Segments(rows, self.code.partitions)
        coded = max(1, size // self.code.partitions)
        return CodedBatches(segments.length, coded, epochs, self.task.seed, segments)

    # -- algorithm 1 ------------------------------------------------------------------------------

    async def train(self, net: Network) -> None:
        self.shares.set_once(await self.share_data(net, self.data.train, self.masks))
        if self.data.validation.rows:
            apart, masks = net.within("validation"), self.validation_masks
            later = await self.share_data(apart, self.data.validation, masks)
            self.validation_shares.set_once(later)
        async for batch in self.training.rounds(net):
            assert isinstance(batch, CodedBatch)
            h = self.models(self.x.index_select(1, batch.rows))
            models = await self.share_models(net, self.rounded(net.round))
            inbox = await self.answers(net, self.shares.value, batch.coded, models)
            mean, enough = self.opened(inbox, batch.places)  # [server, rows, width], [server]
            able = net.alive(self.server) & enough
            batch.loss, gradient = self.head.learn(mean, batch.y, self.loss, able)
            back = await net.send(gradient, self.gradient, len(batch), where=able)
            self.models.backward(h, back.total() / len(self.clients), back.any)

    async def predict(self, net: Network, part: Part) -> Tensor:
        """On shares as well: nobody's embedding is opened."""
        known = part is self.data.validation
        shares = self.validation_shares.value if known else await self.share_data(net, part)
        models = await self.share_models(net, self.rounded(None))
        among = await self.settle(net, shares, models)  # [clients here, senders]
        segments = Segments(part.rows, self.code.partitions)
        size = max(1, self.predict_rows(net) // self.code.partitions)
        # While the model is trained, a version that cannot be measured is only not the best one.
        answering = net.phase == "inference" and self.set.missing != "zeros"
        logits, rows = [], []
        async for batch in net.rounds(CodedInOrder(part, segments, size)):
            inbox = await self.answers(net, shares, batch.coded, models, among)
            mean, _ = self.opened(inbox, batch.places, must=answering)
            logits.append(self.head.predict(mean)[0])
            rows.append(batch.rows)
        return torch.cat(logits)[torch.cat(rows).argsort()]

    # -- lines 1 to 10: every client shares its columns -------------------------------------------

    async def share_data(self, net: Network, part: Part, masks: Value | None = None) -> Tensor:
        """Each client's share of every client's columns, and last a row that tells this sharing
        from others. `masks`: where a client keeps those that it drew, so that after a crash it
        sends the same shares again. [clients here, senders, coded rows + 1, features]"""
        segments = Segments(part.rows, self.code.partitions)
        own = self.shared_columns(net, part.x, segments, masks)
        none = torch.zeros(len(self.here), len(self.clients), 0, self.field.widest).int()
        shares, length = [none], segments.length + TAG
        async for start in net.rounds(range(0, length, CHUNK), unhurried=True):
            end = min(start + CHUNK, length)
            some = own[:, :, start:end]  # [clients here, receivers, coded rows, features]
            work = self.steps.columns(end - start)
            inbox = await net.send(some, self.data_share, end - start, wait=self.of_all, work=work)
            shares.append(inbox.value)
        return torch.cat(shares, 2)

    @local
    def shared_columns(
        self, net: Network, x: Tensor, segments: Segments, kept: Value | None
    ) -> Tensor:
        powers = self.field.powers(x, self.here)
        self.field.check_columns(powers)
        self.largest = torch.maximum(self.largest, powers.abs().amax(1))
        secret = segments.cut(self.field.columns.nearest(powers))  # [partitions, clients, …]
        if kept is not None and kept.value is not None:
            return self.field.shared(self.code.share, secret, kept.value)
        masks = self.draw(net, "columns", secret.shape[2:])
        if kept is not None:
            kept.set(masks)
            self.training.keep_now()  # before anybody hears of them
        return self.field.shared(self.code.share, secret, masks)

    def draw(self, net: Network, purpose: str, shape: Sequence[int]) -> Tensor:
        """Fresh masks. [clients here, colluders, …]"""
        parties = [self.clients.parties[n] for n in self.here]
        sources = [net.secrets(party, purpose, net.program, net.round) for party in parties]
        return torch.stack([self.code.masks(shape, source) for source in sources])

    # -- lines 13 to 24: models are shared, and evaluated on shares -------------------------------

    async def share_models(self, net: Network, models: Tensor) -> Tensor:
        """Each client's share of every client's model, and last a row that tells this sharing from
        others; zeros where none came. [clients here, senders, width + 1, features]"""
        own = self.shared_models(net, models)
        rows, work = self.set.width + TAG, self.steps.models
        inbox = await net.send(own, self.model_share, rows, wait=self.of_all, work=work)
        return inbox.value

    @local
    def shared_models(self, net: Network, models: Tensor) -> Tensor:
        masks = self.draw(net, "model", models.shape[1:])
        return self.field.shared(self.code.share_same, models, masks)

    def rounded(self, round: int | None) -> Tensor:
        """The models as field elements: rounded at random in training, else to the nearest.
        [clients here, width, features]"""
        if not self.models.members:
            return cast(Tensor, ABSENT)
        weights = torch.zeros(len(self.here), self.set.width, self.field.widest)
        chance = torch.full_like(weights, 0.5)
        for i, n in enumerate(self.here):
            weights[i, :, : self.field.features[n]] = self.models.member_state(i)["weight"]
            if round is not None:
                stream = torch_stream(self.task.seed, self.clients.parties[n], "rounding", round)
                chance[i].uniform_(generator=stream)
        self.field.check_models(weights, self.largest)
        return self.field.models.rounded(weights, chance)

    async def answers(
        self,
        net: Network,
        shares: Tensor,
        rows: Tensor,
        models: Tensor,
        among: Tensor | None = None,
    ) -> Inbox:
        """The server is told the coded sums of embeddings, by the clients that have the shares of
        all that count (`among`, see `settle`). Per client [coded rows + 1, width]"""
        able = None
        if among is not None:
            able = self.field.able(self.field.held(shares, models), among)
            shares = shares * among[:, :, None, None]
            models = models * among[:, :, None, None]
        coded = self.field.answers(shares, rows, models)
        return await net.send(
            coded,
            self.coded_embedding,
            len(rows) + TAG,
            wait=self.of_enough,
            where=able,
            work=self.steps.answer,
        )

    async def settle(self, net: Network, shares: Tensor, models: Tensor) -> Tensor:
        """Parties that predict do not wait for long, so that one client may lack a share that
        others have. The server decides whose embeddings are added up: as many as enough clients
        have the shares of. [clients here, senders]"""
        held = self.field.held(shares, models)
        inbox = await net.send(held[:, None], self.held, 1, wait=self.of_all)
        among = self.field.counted(inbox)  # [server, 1, senders]
        told = await net.send(among, self.counted, 1, wait=self.of_all)
        return told.value[:, 0, 0]

    # -- lines 27 to 30: the server opens the sum -------------------------------------------------

    @local(results=2)
    def opened(self, inbox: Inbox, places: Tensor, must: bool = False) -> tuple[Tensor, Tensor]:
        """The mean embedding of the rows at these places [server, rows, width], and whether enough
        clients answered from the same sharings [server]; `must`: an error if not."""
        who = self.field.agreeing(inbox)
        if len(who) >= self.code.threshold:
            return self.field.mean(inbox, who, places), torch.ones(1, dtype=torch.bool)
        if must or self.set.missing == "error":
            raise TooFewAnswers(self.code.shortage(len(who)))
        return torch.zeros(1, len(places), self.set.width), torch.zeros(1, dtype=torch.bool)
