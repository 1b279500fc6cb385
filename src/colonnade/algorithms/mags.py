"""MAGS: multiple aggregation with gossip rounds and simulated faults ("Robust Decentralized VFL
over Dynamic Device Environment").

There is no server. Devices encode their columns and send the encodings along the graph; every
aggregator, which is a device as well, joins what reached it and predicts; rounds of gossip average
the aggregators' log-probabilities; whoever wants an answer asks one device. In training messages
are left out at random (dropout), so that predictions survive when messages are lost.

Labels are known to all aggregators, and nobody decides for others: see `learning/gossip.py`. Where
the label is a number, which the paper does not have, aggregators gossip their numbers.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from colonnade.algorithms.answers import Answers, metrics
from colonnade.algorithms.mags_models import MAGSModels
from colonnade.algorithms.mags_settings import MAGSSettings
from colonnade.common.devices import to_device
from colonnade.common.seeds import numpy_stream, torch_stream
from colonnade.learning import (
    Batch,
    Exchange,
    Part,
)
from colonnade.learning.curves import curves_of
from colonnade.learning.gossip import Leaderless
from colonnade.learning.objectives import OBJECTIVES, UNSUPERVISED
from colonnade.network import ALL, Inbox, Network, Wait, deadline, is_absent, local, locally
from colonnade.network.channel import Channel

ROWS_OF_ALL = 65_536  # predicted at a time, summed over the aggregators


class MAGS(Leaderless):
    name = "mags"
    settings = MAGSSettings
    set: MAGSSettings
    usual_epochs = 100
    stops_early = False  # the paper never does
    devices, aggregators, entity = Leaderless.devices, Leaderless.aggregators, Leaderless.entity
    encoding = Exchange(
        devices, aggregators, "an encoding of the columns, row by row", width="models.width"
    )
    deep_encoding = Exchange(
        aggregators,
        aggregators,
        "an encoding of encodings, with depth",
        width="models.width",
        kind="encoding",
    )
    gradient = encoding.back("how a loss changes with an encoding", labels=True)
    deep_gradient = deep_encoding.back(
        "how a loss changes with an encoding of encodings", kind="gradient"
    )
    log_probability = Exchange(
        aggregators, aggregators, "what one predicts, row by row", width="task.outputs", exact=True
    )
    answer = Exchange(
        aggregators, entity, "the prediction, to whoever asks", width="task.outputs", exact=True
    )
    models = cached_property(MAGSModels)

    @cached_property
    def chosen(self) -> tuple[int, ...]:
        devices, wanted = len(self.task.clients), self.set.aggregators
        if wanted == "all":
            return tuple(range(devices))
        drawn = numpy_stream(self.task.seed, "aggregators").permutation(devices)[:wanted]
        return tuple(sorted(drawn.tolist()))

    @cached_property
    def embedding_widths(self) -> tuple[int, ...]:
        return self.models.widths

    @property
    def epochs_alone(self) -> int:
        return 0 if self.set.objective is None else self.set.encoder_epochs

    def build(self, net: Network) -> None:
        if self.set.objective is None:
            self.encoders = self.models.encoders(net)
        else:
            pupils = self.models.pupils()
            self.alone = OBJECTIVES[self.set.objective](self, net, pupils, **UNSUPERVISED)
            self.encoders = self.alone.encoders
        self.deep, self.heads = self.models.deep(net), self.models.heads(net)
        self.hops = net.world.topology.diameter(len(self.devices))
        self.prior = locally(self.task.goal.prior, self.data.train.y)

    # -- training ---------------------------------------------------------------------------------

    async def train(self, net: Network) -> None:
        if self.set.objective is not None:  # as in DVFL: nothing is sent, so nothing can be lost
            await self.alone.learn_alone(net, self.data, self.local_batches)
            await self.training.freeze(net, *self.alone.pupils.names)
        learn = self.learn_together if self.set.objective is None else self.learn_heads
        async for batch in self.training.rounds(net):
            batch.loss = await learn(net, batch)

    async def learn_together(self, net: Network, batch: Batch) -> Tensor:
        """One step of split learning at every aggregator at once, and of all encoders."""
        h, rows = self.encoders(batch.x), len(batch)  # [devices, rows, width]
        inbox = await net.send(h, self.encoding, rows, wait=self.wait(net), where=self.kept(net))
        up = net.alive(self.aggregators)
        passed = []
        for layer in self.deep:
            self.models.follow_means(layer, inbox)
            joined = self.joined(inbox).requires_grad_()
            deeper = layer(joined)  # [aggregators, rows, width]
            passed.append((layer, inbox, joined, deeper))
            inbox = await net.send(deeper, self.deep_encoding, rows, wait=self.wait(net))
        self.models.follow_means(self.heads, inbox)
        loss, gradient = self.heads.learn(self.joined(inbox), batch.y, self.loss, up)
        for layer, before, joined, deeper in reversed(passed):
            back = await self.send_back(net, gradient, inbox, up, self.deep_gradient, rows)
            gradient = layer.pass_back(joined, deeper, back.total(), up)
            inbox = before
        back = await self.send_back(net, gradient, inbox, up, self.gradient, rows)
        # A gradient that did not come counts as zeros (appendix C): so not `backward(h, back)`.
        self.encoders.backward(h, back.total())
        return loss

    async def learn_heads(self, net: Network, batch: Batch) -> Tensor:
        """One step at every aggregator, on whatever encodings come; no gradient goes back."""
        h = self.encoders.predict(batch.x)
        inbox = await net.send(
            h, self.encoding, len(batch), wait=self.wait(net), where=self.kept(net)
        )
        self.models.follow_means(self.heads, inbox)
        return self.heads.fit(self.joined(inbox), batch.y, self.loss)

    async def send_back(
        self, net: Network, gradient: Tensor, inbox: Inbox, up: Tensor, to: Channel, rows: int
    ) -> Inbox:
        """To those whose encoding was used."""
        shares = inbox.split(gradient, self.models.flagged)
        return await net.send(shares, to, rows, where=inbox.arrived & up[:, None])

    def joined(self, inbox: Inbox) -> Tensor:
        """[aggregators, rows, slots · width]; with flags if there is something to fill in."""
        return inbox.concat(self.models.flagged)

    def kept(self, net: Network) -> Tensor | None:
        """Dropout: which messages are sent. A device always hears itself. [devices here,
        out-degree]"""
        if not self.set.dropout:
            return None
        links = net.links(self.aggregators, self.devices)  # by device: whom it sends to
        columns = 1 if self.set.dropout_kind == "party" else links.shape[1]
        stream = torch_stream(self.task.seed, "dropout", net.round)
        drawn = torch.rand(len(self.devices), columns, generator=stream, device="cpu")
        kept = (drawn >= self.set.dropout) | torch.from_numpy(links.own)
        return net.pick(self.devices, to_device(kept))

    async def validate(self, net: Network) -> Any:
        """Loss, deciding metric and its standard error of every aggregator by itself. [aggregators
        here, 3]"""
        part, opinions = self.data.validation, []
        async for batch in net.rounds(part.in_order(self.predict_rows(net))):
            opinions.append(await self.opine(net, batch.x, len(batch)))
        return self.scores(part.y, opinions)

    @local
    def scores(self, y: Tensor, opinions: list[Tensor]) -> Tensor:
        """What `validate` tells, given the opinions of batches. [aggregators here, 3]"""
        goal, answers = self.task.goal, [self.unscaled(z) for z in opinions]
        truths, scale = y.split([z.shape[1] for z in answers]), self.label_scale[1]
        pairs = zip(answers, truths, strict=True)
        losses = [goal.row_loss(z, truth, scale).sum((1, 2)) for z, truth in pairs]
        each = torch.cat(answers, 1)
        values = torch.tensor([goal.deciding.of(one, y) for one in each])
        error = torch.tensor(goal.deciding.error(each[0], y))  # dear; one for all
        loss = torch.stack(losses).sum(0) / len(y)
        return torch.stack([loss, values.to(loss), error.to(loss).expand_as(loss)], 1)

    # -- prediction: algorithm 1 ------------------------------------------------------------------

    async def predict(self, net: Network, part: Part) -> Tensor:
        """What somebody outside is told who asks one device after the other until one can answer;
        at a device, where nobody is outside, what it would tell."""
        unsure = locally(self.task.goal.unsure, self.prior)
        return torch.cat([one.first(unsure) for one in await self.ask(net, part)])

    async def test(self, net: Network) -> dict[str, float]:
        if not self.entity.parties:
            return await super().test(net)
        found = self.judged(await self.ask(net, self.data.test), self.data.test.y)
        if is_absent(found):
            return {}
        figures, self.course = found
        return figures

    async def score(self, net: Network) -> float:
        """Of an aggregator at random."""
        return (await self.test(net))[f"test_{self.task.goal.deciding.key}"]

    @local
    def judged(self, answers: list[Answers], y: Tensor) -> tuple[dict[str, float], list[float]]:
        """What the one who asked knows in the end: see `metrics`."""
        told = [Answers(self.unscaled(one.opinions), one.active) for one in answers]
        prior, scale = self.unscaled(self.prior), self.label_scale[1]
        first = torch.cat([one.first(self.task.goal.unsure(prior)) for one in told])
        self.curves = curves_of(first, y, self.task.classes)
        return metrics(told, y, prior, self.task.goal, scale)

    async def ask(self, net: Network, part: Part) -> list[Answers]:
        """The aggregators' predictions, as far as they reach the entity; where there is none, every
        aggregator keeps its own."""
        answers: list[Answers] = []
        async for batch in net.rounds(part.in_order(self.predict_rows(net))):
            z = await self.opine(net, batch.x, len(batch))
            z = await self.gossip(net, z, len(batch))
            # Who asks cannot know when the devices stopped waiting for each other.
            inbox = await net.send(z, self.answer, len(batch))
            answers.append(Answers.heard(inbox) if self.entity.parties else Answers.own(z))
        return answers

    async def opine(self, net: Network, x: Tensor, rows: int) -> Tensor:
        """Lines 2 to 4: every aggregator by itself. Log-probabilities, or numbers [aggregators
        here, rows, outputs]"""
        h = self.encoders.predict(x)
        inbox = await net.send(h, self.encoding, rows, wait=self.wait(net))
        for layer in self.deep:
            h = layer.predict(self.joined(inbox))
            inbox = await net.send(h, self.deep_encoding, rows, wait=self.wait(net))
        return locally(self.task.goal.opinion, self.heads.predict(self.joined(inbox)))

    async def gossip(self, net: Network, z: Tensor, rows: int) -> Tensor:
        """Lines 5 to 7: means over the neighbours that can be heard, itself among them. Who heard
        nothing, not even itself, was away and keeps what it had."""
        for _ in range(self.set.gossip):
            inbox = await net.send(z, self.log_probability, rows, wait=self.wait(net))
            z = torch.where(inbox.any[:, None, None], inbox.mean(), z)
        return locally(self.task.goal.opinion, z) if self.set.gossip else z

    def wait(self, net: Network) -> Wait:
        limit = self.set.deadline if net.phase == "inference" else None
        return ALL if limit is None else deadline(limit)

    def predict_rows(self, net: Network) -> int:
        """Who is late is drawn for a batch, too. Many aggregators make large messages of few
        rows."""
        late = net.phase == "inference" and self.set.deadline is not None
        few = max(self.set.batch, ROWS_OF_ALL // len(self.aggregators))
        return self.set.batch if late else min(super().predict_rows(net), few)
