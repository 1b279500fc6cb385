"""FedVS (Li, Yao, Liu, "FedVS: Straggler-Resilient and Privacy-Preserving Vertical Federated
Learning for Split Models", 2023).

Every client shares its columns once, and its model in every round, with all clients by a Lagrange
code. Each client evaluates the models of all clients on the shares it holds, and sends the server
one coded sum. From any 2(K + T − 1) + 1 coded sums the server gets the exact sum of all embeddings,
those of late clients included, and nothing else. T clients together learn nothing of the others.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, cast

import torch
from torch import Tensor, nn

from colonnade.coding import Field, LagrangeCode, Quantiser, TooFewAnswers
from colonnade.coding.field import MERSENNE_31
from colonnade.common.seeds import torch_stream
from colonnade.errors import ColonnadeError, InputError
from colonnade.learning import (
    Algorithm,
    Columns,
    Exchange,
    LabelHolder,
    Part,
    Settings,
    Task,
    Value,
    make_head,
)
from colonnade.learning.segments import CodedBatch, CodedBatches, CodedInOrder, Segments
from colonnade.models.layers import cross_entropy
from colonnade.network import ABSENT, ALL, EVERYONE, Inbox, Network, first, local

CHUNK = 4096  # coded rows per message when columns are shared
ROWS = 1  # of a share or an answer that say which sharing it belongs to


class Overflow(ColonnadeError):
    """A sum could leave the field, and would be taken for another."""


class FedVSSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults: the paper's T, batch and rate for images, with momentum 0.9. `batch` counts rows of
    the data: a step takes batch / partitions coded rows. `encoder`: one width, that of the
    embeddings."""

    batch: int = 256
    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: float | dict[str, float] = 5e-2
    momentum: float = 0.9
    partitions: int = 1  # K: a share is 1/K of the columns
    colluders: int = 1  # T: so many clients together learn nothing
    degree: int = 2  # D, of the clients' polynomials
    data_bits: int = 7  # binary places of the columns and their powers
    model_bits: int = 13  # binary places of the clients' models
    prime: int = MERSENNE_31
    # When a client does not share its model, or too few answer. zeros: go on without its embedding,
    # and leave out the steps that too few answer.
    missing: Literal["wait", "zeros", "error"] = "wait"

    def check(self, task: Task) -> None:
        super().check(task)
        for key in ("degree", "data_bits", "model_bits"):
            if getattr(self, key) < 1:
                raise InputError(f"{key} = {getattr(self, key)}: expected 1 or more")
        if self.encoder is not None and not (
            isinstance(self.encoder, list) and len(self.encoder) == 1 and self.encoder[0] >= 1
        ):
            raise InputError(
                f"encoder = {self.encoder!r}: the clients' models are polynomials of their columns "
                "(see degree); expected one width, that of the embeddings, e.g. encoder = [64]"
            )
        self.code(task)
        if self.partitions > task.rows["train"]:
            raise InputError(
                f"partitions = {self.partitions}: there are only {task.rows['train']} training rows"
            )

    def code(self, task: Task) -> LagrangeCode:
        clients, field = len(task.clients), Field(self.prime)
        return LagrangeCode(clients, self.partitions, self.colluders, field=field)

    @property
    def width(self) -> int:
        return 64 if self.encoder is None else int(self.encoder[0])


class FedVS(Algorithm):
    name = "fedvs"
    settings = FedVSSettings
    clients = Columns()
    server = LabelHolder("aggregator")
    data_share = Exchange(
        clients,
        clients,
        "a share of the columns: uniform numbers, unless more than T clients join theirs",
        width="features",
        each=True,
        by="sender",
        numbers="int32",
    )
    model_share = Exchange(
        clients,
        clients,
        "a share of the client's model, of the same kind",
        width="features",
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

    def __init__(self, settings: FedVSSettings, task: Task) -> None:
        super().__init__(settings, task)
        self.set: FedVSSettings = settings
        self.code = settings.code(task)
        self.field = self.code.field
        # By client: each power of the columns, with a column of ones for the bias.
        self.features = tuple(settings.degree * (width + 1) for width in task.widths)
        waits = settings.missing == "wait"
        self.of_all = EVERYONE if waits else ALL
        self.of_enough = first(self.code.threshold, insist=waits)

    def build(self, net: Network) -> None:
        s = self.set
        self.models = self.stack(
            net, "model", self.clients, self.polynomial, input_widths=self.features
        )
        self.head = self.stack(
            net, "head", self.server, lambda _: make_head(s.head, s.width, self.task.classes)
        )
        self.masks = self.keeps(net, "masks", self.clients, Value(large=True))
        self.validation_masks = self.keeps(net, "later masks", self.clients, Value(large=True))
        self.shares = self.keeps(net, "shares", self.clients, Value(large=True))
        self.validation = self.keeps(net, "validation shares", self.clients, Value(large=True))
        self.here = net.here(self.clients)
        self.columns_quantiser = Quantiser(self.field, s.data_bits)
        self.models_quantiser = Quantiser(self.field, s.model_bits)
        self.x = self.powers(self.data.train.x)  # of their own rows, in the clear
        self.largest = torch.zeros(len(self.here), max(self.features))  # of all that was shared

    def polynomial(self, client: int) -> nn.Module:
        """Linear in the powers of the columns. √N times as wide at first as a layer usually is, so
        that the mean over N clients has the usual variance."""
        layer = nn.Linear(self.features[client], self.set.width, bias=False)
        with torch.no_grad():
            layer.weight *= math.sqrt(len(self.clients))
        return layer

    def batches(self, rows: int, size: int, epochs: int) -> CodedBatches:
        segments = Segments(rows, self.set.partitions)
        coded = max(1, size // self.set.partitions)
        return CodedBatches(segments.length, coded, epochs, self.task.seed, segments)

    # -- algorithm 1 ------------------------------------------------------------------------------

    async def train(self, net: Network) -> None:
        self.shares.set_once(await self.share_data(net, self.data.train, self.masks))
        apart, later = net.within("validation"), self.validation_masks
        self.validation.set_once(await self.share_data(apart, self.data.validation, later))
        async for batch in self.training.rounds(net):
            assert isinstance(batch, CodedBatch)
            h = self.models(self.x.index_select(1, batch.rows))
            models = await self.share_models(net, self.rounded(net.round))
            inbox = await self.answers(net, self.shares.value, batch.coded, models)
            mean, enough = self.opened(inbox, batch.places)  # [server, rows, width], [server]
            able = net.alive(self.server) & enough
            batch.loss, gradient = self.head.learn(mean, batch.y, cross_entropy, able)
            back = await net.send(gradient, self.gradient, len(batch), where=able)
            self.models.backward(h, back.total() / len(self.clients), back.any)

    async def predict(self, net: Network, part: Part) -> Tensor:
        """On shares as well: nobody's embedding is opened."""
        known = part is self.data.validation
        shares = self.validation.value if known else await self.share_data(net, part)
        models = await self.share_models(net, self.rounded(None))
        segments = Segments(part.rows, self.set.partitions)
        size = max(1, self.predict_rows(net) // self.set.partitions)
        # While the model is trained, a version that cannot be measured is only not the best one.
        answering = net.phase == "inference" and self.set.missing != "zeros"
        logits, rows = [], []
        async for batch in net.rounds(CodedInOrder(part, segments, size)):
            inbox = await self.answers(net, shares, batch.coded, models)
            mean, _ = self.opened(inbox, batch.places, must=answering)
            logits.append(self.head.predict(mean)[0])
            rows.append(batch.rows)
        return torch.cat(logits)[torch.cat(rows).argsort()]

    # -- lines 1 to 10: every client shares its columns -------------------------------------------

    async def share_data(self, net: Network, part: Part, masks: Value | None = None) -> Tensor:
        """Each client's share of every client's columns, and last a row that tells this sharing
        from others. `masks`: where a client keeps those that it drew, so that after a crash it
        sends the same shares again. [clients here, senders, coded rows + 1, features]"""
        segments = Segments(part.rows, self.set.partitions)
        own = self.share_columns(net, part.x, segments, masks)
        none = torch.zeros(len(self.here), len(self.clients), 0, max(self.features)).int()
        shares, length = [none], segments.length + ROWS
        async for start in net.rounds(range(0, length, CHUNK), unhurried=True):
            end = min(start + CHUNK, length)
            inbox = await net.send(
                own[:, :, start:end], self.data_share, end - start, wait=self.of_all
            )
            shares.append(inbox.value)
        return torch.cat(shares, 2)

    @local
    def share_columns(
        self, net: Network, x: Tensor, segments: Segments, kept: Value | None
    ) -> Tensor:
        """[clients here, receivers, coded rows + 1, features]"""
        cut = segments.cut(self.columns_quantiser.nearest(self.bounded(self.powers(x))))
        if kept is not None and kept.value is not None:
            return self.shared(self.code.share, cut, kept.value)
        masks = self.draw(net, "columns", cut.shape[2:])
        if kept is not None:
            kept.set(masks)
            self.training.keep_now()  # before anybody hears of them
        return self.shared(self.code.share, cut, masks)

    @local
    def powers(self, x: Tensor) -> Tensor:
        """[X, 1, X², 1, …] by client, padded to the widest. [clients here, rows, features]"""
        made = torch.zeros(*x.shape[:2], max(self.features))
        for i, n in enumerate(self.here):
            own = torch.cat([x[i, :, : self.task.widths[n]], torch.ones(x.shape[1], 1)], 1)
            powers = [own**d for d in range(1, self.set.degree + 1)]
            made[i, :, : self.features[n]] = torch.cat(powers, 1)
        return made

    def bounded(self, powers: Tensor) -> Tensor:
        """The largest of each power, for `rounded`; an error where a number is too large."""
        limit = self.columns_quantiser.limit
        if float(powers.abs().max()) > limit:
            raise InputError(
                f"data_bits = {self.set.data_bits}: a column has, to the power of "
                f"{self.set.degree}, values up to {float(powers.abs().max()):.3g}, and {limit:.3g} "
                "is the limit; take fewer bits, or a larger prime"
            )
        self.largest = torch.maximum(self.largest, powers.abs().amax(1))
        return powers

    # -- lines 13 to 24: models are shared, and evaluated on shares -------------------------------

    async def share_models(self, net: Network, models: Tensor) -> Tensor:
        """Each client's share of every client's model, and last a row that tells this sharing from
        others; zeros where none came. [clients here, senders, width + 1, features]"""
        own = self.share_own_model(net, models)
        inbox = await net.send(own, self.model_share, self.set.width + ROWS, wait=self.of_all)
        return inbox.value

    def rounded(self, round: int | None) -> Tensor:
        """The models as field elements: rounded at random in training, to the nearest else.
        [clients here, width, features]"""
        if not self.models.members:
            return cast(Tensor, ABSENT)
        made = torch.zeros(len(self.here), self.set.width, max(self.features))
        chance = torch.full_like(made, 0.5)
        for i, n in enumerate(self.here):
            made[i, :, : self.features[n]] = self.models.member_state(i)["weight"]
            if round is not None:
                party = self.clients.parties[n]
                torch.rand(
                    made.shape[1:],
                    out=chance[i],
                    generator=torch_stream(self.task.seed, party, "rounding", round),
                )
        self.check_sum(made)
        return self.models_quantiser.rounded(made, chance)

    def check_sum(self, weight: Tensor) -> None:
        """No sum over the clients leaves the field if each embedding stays below its part."""
        reach = float((weight.abs() @ self.largest[..., None]).max())
        limit = self.field.largest / len(self.clients) * 2.0**-self.bits
        if not reach <= limit:
            raise Overflow(
                f"an embedding may reach {reach:.3g}, and with data_bits = {self.set.data_bits}, "
                f"model_bits = {self.set.model_bits}, prime = {self.set.prime} and "
                f"{len(self.clients)} clients the limit is {limit:.3g}: take fewer bits, a larger "
                "prime, or a lower learning rate"
            )

    @local
    def share_own_model(self, net: Network, models: Tensor) -> Tensor:
        """[clients here, receivers, width + 1, features]"""
        masks = self.draw(net, "model", models.shape[1:])
        return self.shared(self.code.share_same, models, masks)

    def draw(self, net: Network, purpose: str, shape: Sequence[int]) -> Tensor:
        """Fresh masks. [clients here, colluders, …]"""
        sources = [
            net.secrets(self.clients.parties[n], purpose, net.program, net.round) for n in self.here
        ]
        return torch.stack([self.code.masks(shape, source) for source in sources])

    def shared(
        self, share: Callable[[Tensor, Tensor], Tensor], secret: Tensor, masks: Tensor
    ) -> Tensor:
        """The shares of all receivers, with a row more, whose first number tells this sharing from
        all others: a digest of the secret and the masks, which is as random as the masks. [clients
        here, receivers, rows + 1, features]"""
        shares = share(secret, masks.transpose(0, 1)).transpose(0, 1)
        row = torch.zeros_like(shares[:, :, :ROWS])
        for i, own in enumerate(shares):
            row[i, :, 0, 0] = _digest(own)
        return torch.cat([shares, row], 2)

    async def answers(self, net: Network, shares: Tensor, rows: Tensor, models: Tensor) -> Inbox:
        """The server is told the coded sum of embeddings, and last a row that tells which sharings
        went into it. Per client [coded rows + 1, width]"""
        coded = self.coded(shares, rows, models)
        return await net.send(coded, self.coded_embedding, len(rows) + ROWS, wait=self.of_enough)

    @local
    def coded(self, shares: Tensor, rows: Tensor, models: Tensor) -> Tensor:
        x = shares.index_select(2, rows).transpose(1, 2).flatten(2)  # [clients, rows, all features]
        w = models[:, :, :-ROWS].transpose(2, 3).flatten(1, 2)  # [clients, all features, width]
        answer = torch.zeros(len(x), len(rows) + ROWS, self.set.width, dtype=torch.int32)
        answer[:, :-ROWS] = self.field.matmul(x, w)
        tags = torch.stack([shares[:, :, -1, 0], models[:, :, -1, 0]], 1)
        answer[:, -1, 0] = torch.tensor([_digest(one) for one in tags])
        return answer

    # -- lines 27 to 30: the server opens the sum -------------------------------------------------

    @local(results=2)
    def opened(self, inbox: Inbox, places: Tensor, must: bool = False) -> tuple[Tensor, Tensor]:
        """The mean embedding of the rows at these places [server, rows, width], and whether enough
        clients answered from the same sharings [server]; `must`: an error if not."""
        who = self.agreeing(inbox)
        if len(who) < self.code.threshold and (must or self.set.missing == "error"):
            raise TooFewAnswers(self.code.shortage(len(who)))
        if len(who) < self.code.threshold:
            return torch.zeros(1, len(places), self.set.width), torch.zeros(1, dtype=torch.bool)
        answers = self.field.reduced(inbox.value[0, who, :-ROWS].long())
        total = self.code.decode(answers, who).flatten(0, 1)[places]  # [rows, width]
        mean = total.double() * 2.0**-self.bits / len(self.clients)
        return mean.to(torch.get_default_dtype())[None], torch.ones(1, dtype=torch.bool)

    def agreeing(self, inbox: Inbox) -> list[int]:
        """Most of the clients that answered, all from the same sharings."""
        answered = inbox.arrived[0].nonzero()[:, 0].tolist()
        digests = {n: int(inbox.value[0, n, -1, 0]) for n in answered}
        if not answered:
            return []
        common, _ = Counter(digests.values()).most_common(1)[0]
        return [n for n in answered if digests[n] == common]

    @property
    def bits(self) -> int:
        return self.set.data_bits + self.set.model_bits


def _digest(numbers: Tensor) -> int:
    return zlib.crc32(numbers.contiguous().numpy().tobytes()) >> 1  # fits an int32
