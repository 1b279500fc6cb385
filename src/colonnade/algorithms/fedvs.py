"""FedVS (Li, Yao, Liu, "FedVS: Straggler-Resilient and Privacy-Preserving Vertical Federated
Learning for Split Models", 2023).

Every client shares its columns once, and its model in every round, with all clients by a Lagrange
code. Each client evaluates the models of all clients on the shares it holds, and sends the server
one coded sum. From any 2(K + T − 1) + 1 coded sums the server gets the exact sum of all embeddings,
those of late clients included, and no single one. T clients together learn nothing of the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from colonnade.algorithms.fedvs_kept import LastModels, Received, Sharing
from colonnade.algorithms.fedvs_server import Opener
from colonnade.algorithms.fedvs_settings import FedVSSettings
from colonnade.algorithms.fedvs_shares import TAG, Shares
from colonnade.algorithms.fedvs_time import fastest, steps_of
from colonnade.algorithms.fedvs_told import Progress, Told
from colonnade.common.devices import to_device
from colonnade.common.seeds import torch_stream
from colonnade.learning import Algorithm, Columns, Exchange, LabelHolder, Numbers, Part, Task
from colonnade.learning.segments import CodedBatch, CodedBatches, CodedInOrder, Segments
from colonnade.models.layers import polynomial
from colonnade.network import ABSENT, ALL, EVERYONE, Inbox, Network, Wait, first, local, locally

log = logging.getLogger(__name__)

CHUNK = 4096  # coded rows per message when columns are shared


class FedVS(Algorithm):
    name = "fedvs"
    settings = FedVSSettings
    set: FedVSSettings
    sums_only = True
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
        columns=True,
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
        "which shares the client has: before a prediction, and after an epoch; how many rows to "
        "predict it clipped",
        width="code.clients",
        numbers="int32",
    )
    counted = Exchange(
        server,
        clients,
        "which shares count: in a prediction, and in a round of the training",
        width="code.clients",
        numbers="int32",
    )

    def __init__(self, settings: FedVSSettings, task: Task) -> None:
        super().__init__(settings, task)
        self.steps = (
            fastest(settings, task, self.clients, self.server)
            if settings.partitions == "auto"
            else steps_of(settings, task, settings.partitions)
        )
        self.code = self.steps.code
        self.field = Shares(settings, self.code, task.widths)
        self.told = Told(settings, task, self.field, self.clients.parties)

    def build(self, net: Network) -> None:
        features = self.field.features
        # The name decides the initial weights: those of the same polynomials in split learning.
        self.models = self.stack(net, "encoder", self.clients, self.model, input_widths=features)
        self.head = self.head_stack(net, self.server, self.set.width)
        keep = lambda name, value: self.keeps(net, name, self.clients, value)  # noqa: E731
        self.of_train, self.of_validation = Sharing(keep, "train"), Sharing(keep, "validation")
        self.last = LastModels(keep)
        counts = self.keeps(net, "counts", self.server, Numbers())
        self.opener = Opener(self.field, self.clients.parties, counts)
        self.here = self.told.here = net.here(self.clients)
        self.x, *others = (self.powers(part) for _, part in self.shared_parts)  # in the clear
        self.largest = self.field.largest(self.x, *others)  # [clients here, features]
        locally(self.field.check_columns, self.largest, self.names)

    @property
    def names(self) -> list[str]:
        """Of the clients here."""
        return [self.clients.parties[n] for n in self.here]

    def model(self, client: int) -> nn.Module:
        """Its linear part: a client keeps the powers of its columns."""
        widths = self.task.widths[client], self.set.width
        return polynomial(*widths, self.set.degree, parties=len(self.clients))[1]

    def powers(self, part: Part) -> Tensor:
        return self.field.powers(part.x, self.here)

    def batches(self, rows: int, size: int, epochs: int) -> CodedBatches:
        segments = Segments(rows, self.code.partitions)
        coded = max(1, size // self.code.partitions)
        return CodedBatches(segments.length, coded, epochs, self.task.seed, segments)

    def of_all(self, net: Network) -> Wait:
        """How shares are waited for. A model can stand in for one that comes later; new rows have
        nothing that could, so that a prediction waits as far as real parties wait at all."""
        waits = {"wait", "last"} if net.phase == "inference" else {"wait"}
        return EVERYONE if self.set.missing in waits else ALL

    def of_enough(self, net: Network) -> Wait:
        """How answers are waited for. A version that cannot be measured is only not the best one,
        so that a validation waits for nobody who is away."""
        waits = {"wait"} if net.phase == "validation" else {"wait", "last"}
        return first(self.code.threshold + self.set.spare, insist=self.set.missing in waits)

    def remarks(self) -> list[str]:
        return self.told.remarks() + self.opener.remarks()

    @property
    def activity(self) -> str:
        return "" if self.told.sharing is None else str(self.told.sharing)

    @property
    def total_rounds(self) -> int:
        length = self.told.length(self.task.rows["train"])
        return len(range(0, length, CHUNK)) + super().total_rounds

    # -- algorithm 1 ------------------------------------------------------------------------------

    async def train(self, net: Network) -> None:
        self.told.what_protects(net)
        for sharing, part in self.shared_parts:
            apart = net if sharing is self.of_train else net.within("validation")
            shares = await self.share_data(apart, self.powers(part), part.rows, sharing)
            sharing.shares.set_once(shares)
        async for batch in self.training.rounds(net):
            assert isinstance(batch, CodedBatch)
            h = self.models(self.x.index_select(1, batch.rows))
            models = await self.share_models(net, self.rounded(net.round), self.stand_in)
            inbox = await self.answers(net, self.of_train.shares.value, batch.coded, models)
            mean, enough, counted = self.opened(net, inbox, batch.places)
            net.derived(mean, "opened sum", self.clients, self.server)
            able = net.alive(self.server) & enough  # [server]
            batch.loss, gradient = self.head.learn(mean, batch.y, self.loss, able)
            back = await net.send(gradient, self.gradient, len(batch), where=able)
            self.models.backward(h, back.total() / len(self.clients), back.any)
            if self.set.missing == "last":
                locally(self.last.heed, await net.send(counted, self.counted, 1, work=0))
            if batch.last:
                if self.set.missing == "last" and net.here(self.server) and self.ending(batch):
                    await net.wait_for_absent()
                await self.mend(net)

    @property
    def shared_parts(self) -> list[tuple[Sharing, Part]]:
        """What is shared before the training, as far as it has rows."""
        known = ((self.of_train, self.data.train), (self.of_validation, self.data.validation))
        return [(sharing, part) for sharing, part in known if part.rows]

    def ending(self, batch: CodedBatch) -> bool:
        """Whether the version after this batch may be the last one. Then it is measured with
        everybody who may be back: while many processes are killed, few others are."""
        last = batch.epoch + 1 >= self.training.usual
        return last or self.training.progress["over"] >= 0

    async def predict(self, net: Network, part: Part) -> Tensor:
        """On shares as well: nobody's embedding is opened."""
        if part is self.data.validation:
            shares, clipped = self.of_validation.shares.value, torch.zeros(len(self.here))
        else:
            powers, clipped = self.field.clipped(self.powers(part), self.weights(), self.largest)
            shares = await self.share_data(net, powers, part.rows)
        models = await self.share_models(net, self.rounded(None))
        among = await self.settle(net, shares, models, clipped, part.rows)
        segments = Segments(part.rows, self.code.partitions)
        size = max(1, self.predict_rows(net) // self.code.partitions)
        # While the model is trained, a version that cannot be measured is only not the best one.
        answering = net.phase == "inference" and self.set.missing != "zeros"
        logits, rows = [], []
        async for batch in net.rounds(CodedInOrder(part, segments, size)):
            inbox = await self.answers(net, shares, batch.coded, models, among)
            mean, _, _ = self.opened(net, inbox, batch.places, must=answering)
            logits.append(self.head.predict(mean)[0])
            rows.append(batch.rows)
        return torch.cat(logits)[torch.cat(rows).argsort()]

    # -- lines 1 to 10: every client shares its columns -------------------------------------------

    async def share_data(
        self, net: Network, powers: Tensor, rows: int, kept: Sharing | None = None
    ) -> Tensor:
        """Each client's share of every client's columns, and last a row that tells this sharing
        from others. `kept`: where a client keeps its masks, so that after a crash it sends the same
        shares again. [clients here, senders, coded rows + 1, features]"""
        segments = Segments(rows, self.code.partitions)
        own = self.shared_columns(net, powers, segments, kept)
        length = segments.length + TAG
        progress = Progress(self.told.bytes_of(length), length)
        self.told.sharing = progress if kept is not None else None
        shares = Received(len(self.here), len(self.clients), length, self.field.widest)
        async for start in net.rounds(range(0, length, CHUNK), sent_once=True):
            end = min(start + CHUNK, length)
            some = own[:, :, start:end]  # [clients here, receivers, coded rows, features]
            wait, work = self.of_all(net), self.steps.columns(end - start)
            inbox = await net.send(some, self.data_share, end - start, wait=wait, work=work)
            locally(shares.add, start, inbox)
            progress.rows = end
        self.told.sharing = None
        return shares.whole()

    @local
    def shared_columns(
        self, net: Network, powers: Tensor, segments: Segments, kept: Sharing | None
    ) -> Tensor:
        secret = segments.cut(self.field.columns.nearest(powers))  # [partitions, clients, …]
        if kept is not None and kept.mark.value is not None:
            return self.field.shared(self.code.share, secret, kept.masks.value, kept.mark.value)
        masks, mark = self.draw(net, "columns", secret.shape[2:])
        if kept is not None:
            kept.masks.set(masks)
            kept.mark.set(mark)
            self.training.write_checkpoint()  # before anybody hears of them
        return self.field.shared(self.code.share, secret, masks, mark)

    async def mend(self, net: Network) -> None:
        """After an epoch: columns are shared again if a client that is there lacks shares of others
        that are there, because it was away when they were sent, or has lost its files."""
        apart = net.within("validation")
        held = [self.field.marks(sharing.shares.value) for sharing, _ in self.shared_parts]
        inbox = await apart.send(torch.stack(held, 1), self.held, len(held))
        (again,) = await apart.agree(self.field.differ(inbox), self.server, 1)
        if not again:
            return
        log.info("columns are shared again: a client came late, or has lost its files")
        net.clear_missed()
        for sharing, part in self.shared_parts:
            apart = net.within("training")
            sharing.renew(await self.share_data(apart, self.powers(part), part.rows, sharing))

    def draw(self, net: Network, purpose: str, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Fresh masks, and a mark for the sharing. [clients here, colluders, …], [clients here]"""
        sources = [net.secrets(name, purpose, net.program, net.round) for name in self.names]
        masks = self.code.masks_by_source(shape, sources)
        marks = [self.field.mark(source) for source in sources]
        return masks, torch.tensor(marks, dtype=torch.int32)

    # -- lines 13 to 24: models are shared, and evaluated on shares -------------------------------

    async def share_models(
        self, net: Network, models: Tensor, use: Callable[[Inbox], Tensor] | None = None
    ) -> Tensor:
        """Each client's share of every client's model, and last a row that tells this sharing from
        others; zeros where none came, or what is to be used then. [clients here, senders, width +
        1, features]"""
        own = self.shared_models(net, models)
        rows, wait, work = self.set.width + TAG, self.of_all(net), self.steps.models
        inbox = await net.send(own, self.model_share, rows, wait=wait, work=work)
        return inbox.value if use is None else use(inbox)

    @local
    def shared_models(self, net: Network, models: Tensor) -> Tensor:
        masks, mark = self.draw(net, "model", models.shape[1:])
        return self.field.shared(self.code.share_same, models, masks, mark)

    @local
    def stand_in(self, inbox: Inbox) -> Tensor:
        return self.last.stand_in(inbox) if self.set.missing == "last" else inbox.value

    def rounded(self, round: int | None) -> Tensor:
        """The models as field elements: rounded at random in training, else to the nearest.
        [clients here, width, features]"""
        if not self.models.members:
            return cast(Tensor, ABSENT)
        weights = self.weights()
        chance = torch.full_like(weights, 0.5)
        for i, n in enumerate(self.here):
            if round is not None:
                stream = torch_stream(self.task.seed, self.clients.parties[n], "rounding", round)
                drawn = torch.empty(chance[i].shape, device="cpu").uniform_(generator=stream)
                chance[i] = to_device(drawn)
        self.field.check_models(weights, self.largest, self.names)
        return self.field.models.rounded(weights, chance)

    def weights(self) -> Tensor:
        """Of the models, padded to the widest. [clients here, width, features]"""
        weights = torch.zeros(len(self.here), self.set.width, self.field.widest)
        for i, n in enumerate(self.here):
            weights[i, :, : self.field.features[n]] = self.models.member_state(i)["weight"]
        return weights

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
            len(rows) + self.field.mark_rows,
            wait=self.of_enough(net),
            where=able,
            work=self.steps.answer,
        )

    async def settle(
        self, net: Network, shares: Tensor, models: Tensor, clipped: Tensor, rows: int
    ) -> Tensor:
        """Parties that predict do not wait for long, so that one client may lack a share that
        others have. The server decides whose embeddings are added up: as many as enough clients
        have the shares of. [clients here, senders]"""
        told = self.field.before_prediction(self.field.held(shares, models), clipped)
        inbox = await net.send(told, self.held, 2, wait=self.of_all(net))
        if net.phase == "inference":
            locally(self.opener.hear_of_clipped, inbox, rows)
        among = self.field.counted(inbox)  # [server, 1, senders]
        told = await net.send(among, self.counted, 1, wait=self.of_all(net))
        return told.value[:, 0, 0]

    # -- lines 27 to 30: the server opens the sum -------------------------------------------------

    @local(results=3)
    def opened(
        self, net: Network, inbox: Inbox, places: Tensor, must: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The mean embedding of the rows at these places [server, rows, width]; whether enough
        clients answered from the same sharings, and their answers agree [server]; and which
        sharings of models those are [server, 1, senders]. `must`: an error if there are too few."""
        (server,) = self.server.parties
        source = net.secrets(server, "check", net.program, net.round)
        found = self.opener.look_at(inbox, source)
        self.opener.note(found, net.phase == "training")
        if found.trouble is None:
            mean = self.field.mean(inbox, found.who, places)
            return mean, torch.ones(1, dtype=torch.bool), found.counted
        if must or self.set.missing == "error":
            raise found.trouble
        nothing = torch.zeros(1, len(places), self.set.width)
        return nothing, torch.zeros(1, dtype=torch.bool), found.counted
