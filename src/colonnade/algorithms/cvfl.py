"""CVFL: cascade VFL for horizontally partitioned labels (Xia, Li, Zhang, Wu and Yuan, 2022).

All parties hold columns and a bottom net each; active parties also hold labels, each those of its
own rows, and a copy of the top net; the collaborator holds the top net. Each active party, at its
own pace, collects the embeddings of a batch of its rows, sends every party the gradient of that
party's embedding, and the gradient of the top net to the collaborator, which steps and returns it.
Slow active parties minimise F^q instead of F, so that their rarer gradients count for more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from colonnade.algorithms.cvfl_average import Averaged
from colonnade.algorithms.cvfl_settings import CVFLSettings
from colonnade.algorithms.cvfl_stored import Stored, numbered
from colonnade.algorithms.cvfl_time import A_STEP, lagging, slowed
from colonnade.common.devices import to_device
from colonnade.common.seeds import seeded
from colonnade.data import VerticalData
from colonnade.learning import (
    Algorithm,
    Columns,
    Epoch,
    Exchange,
    LabelHolders,
    Members,
    Part,
    Rows,
    combine,
    make_head,
    pace_of,
)
from colonnade.learning.label_split import split_labels
from colonnade.learning.side_by_side import Turn
from colonnade.models.stack import Stack
from colonnade.network import (
    ABSENT,
    ALL,
    LATEST,
    Delays,
    Group,
    Inbox,
    Network,
    Program,
    Register,
    Wait,
    World,
    deadline,
    is_absent,
    local,
)


class Found(NamedTuple):
    """What an active party computes from one batch."""

    loss: Tensor
    top: Tensor  # gradient of the top net [active party, 1, size]
    shares: Tensor  # gradient of each embedding [active party, clients, rows, width]
    stored: Tensor  # whose stored embedding was used in place of a late one [active party, clients]


class CVFL(Algorithm):
    name = "cvfl"
    settings = CVFLSettings
    set: CVFLSettings
    side_by_side = True
    optional = ("collaborator",)
    clients = Columns()
    active = LabelHolders(
        "client", lambda self: self.set.holders(self.task)[: 1 if self.set.single else None]
    )
    collaborator = Members("aggregator", lambda self: self.collaborators)
    embedding = Exchange(
        clients, active, "an encoding of the party's columns, row by row", width="embedding_widths"
    )
    regulariser = Exchange(
        clients,
        active,
        "the value of the party's regulariser, where q is not 1",
        width=1,
        exact=True,
    )
    gradient = embedding.back("how the loss changes with the party's embedding")
    late = Exchange(
        clients, active, "an embedding that came too late, and its round", width="numbered_widths"
    )
    late_gradient = embedding.back("how the loss changes with a stored embedding of the party")
    top_gradient = Exchange(
        active,
        collaborator,
        "how the loss changes with the top net",
        width="top_size",
        repeated=True,
    )
    top = Exchange(collaborator, active, "the parameters of the top net", width="top_size")
    pace = pace_of(collaborator)
    own_pace = pace_of(active)

    @property
    def collaborators(self) -> tuple[str, ...]:
        return () if self.set.single else self.task.players.get("collaborator", ("collaborator",))

    @cached_property
    def counter(self) -> Group:
        """Who counts the rounds of all programs."""
        return self.collaborator if len(self.collaborator) else self.active

    @cached_property
    def top_size(self) -> int:
        """Parameters of the top net."""
        width = sum(self.embedding_widths)
        made = seeded(0, make_head, self.set.head, width, self.task.outputs)
        return sum(p.numel() for p in made.parameters())

    @property
    def numbered_widths(self) -> tuple[int, ...]:
        return tuple(width + 1 for width in self.embedding_widths)

    def world(self, **facts: Any) -> World:
        """Slow parties compute more slowly."""
        passive = [party for party in self.task.clients if party not in self.active.parties]
        slower = self.set.slower(self.task)
        delays = slowed(facts.get("delays") or Delays(), slower, passive)
        if self.set.stale:
            delays = lagging(delays, passive, [*self.task.clients, *self.collaborators])
        return super().world(**{**facts, "delays": delays})

    def join(self, net: Network, data: VerticalData) -> None:
        holders = self.set.holders(self.task)
        how, task = self.set.label_split, self.task
        rows, y = [torch.zeros(0, dtype=torch.int64) for _ in holders], to_device(data.train.y)
        if not self.labels_are_told:
            rows = split_labels(y, task.classes, holders, how, task.seed)
        pairs = zip(rows, self.active.parties, strict=False)
        self.programs = [Rows(own, party) for own, party in pairs]
        if self.set.single:
            seen = y[rows[0]].unique().tolist()
            self.unseen = [label for label in range(task.classes) if label not in seen]
        super().join(net, data)

    def labelled_by(self, party: str) -> Tensor:
        own = [one.rows for one in self.programs if one.party == party]
        return own[0] if own else super().labelled_by("")

    def hear_of_labels(self, party: str, rows: Tensor) -> None:
        self.programs[self.active.parties.index(party)] = Rows(rows, party)

    def build(self, net: Network) -> None:
        clip, width = self.set.clip, sum(self.embedding_widths)
        decay = self.set.decay + self.set.weight_decay
        self.encoder_stack(net, self.clients, weight_decay=decay, clip=clip)
        self.head_stack(net, self.active, width, clip=clip)
        self.stack(
            net,
            "top",
            self.collaborator,
            lambda _: make_head(self.set.head, width, self.task.outputs),
            input_widths=[width] * len(self.collaborator),
            clip=clip,
        )
        self.bottoms = Averaged(self, "encoder", self.set.average)
        self.tops = Averaged(self, "top" if len(self.collaborator) else "head", self.set.average)
        self.encoders = self.bottoms.learning
        head = self.stacks["head"][1]
        self.copies = head if len(self.collaborator) else self.tops.learning
        if self.set.stale:
            self.stored = [
                Stored(
                    self.keeps(net, f"newest {k}", self.active.only(k), Register(len(one.rows))),
                    one.rows,
                )
                for k, one in enumerate(self.programs)
            ]

    def remarks(self) -> list[str]:
        found = []
        if self.set.single and self.unseen:
            classes = ", ".join(map(str, self.unseen))
            found.append(
                f"single: {self.active.parties[0]} has no row of class {classes}, which the model "
                "could not learn"
            )
        if self.set.q not in ("auto", 1) and not any(map(self.amplifies, range(len(self.active)))):
            found.append(f"q = {self.set.q:g} had no effect: no active party is slow")
        if self.set.stale and not {*self.clients.parties} - {*self.active.parties}:
            found.append("stale = true had no effect: all parties are active")
        return found

    async def train(self, net: Network) -> None:
        async for epoch in self.training.epochs(net, self.programs):
            if self.set.asynchronous:
                active = enumerate(self.active.parties)
                programs = [Program(partial(self.lead, epoch, k), name) for k, name in active]
            else:
                programs = [partial(self.lead_together, epoch)]
            await net.concurrently(*programs, counter=self.counter.only(0))
            # The first one does so to validate.
            await self.fetch(net, self.tops.asked, *range(1, len(self.active)))

    # -- Algorithm 1: an active party -------------------------------------------------------------

    async def lead(self, epoch: Epoch, k: int, net: Network) -> None:
        """Active party k at its own pace."""
        await self.fetch(net, self.tops.learning, k)
        async for batch in epoch.rounds(net, k, self.counter):
            h = self.encoders(batch.x)  # [clients, rows, width]
            inbox, found = await self.collect(epoch, batch, h, k)
            await self.update_top(batch, [(k, found)])
            to_all = self.gradient.only(src=k)
            back = await batch.send(found.shares, to_all, where=inbox.arrived)
            if self.set.stale:
                back = await self.hear_late(epoch, batch, h, k, found, back)
            await batch.close([(k, found.loss, self.active.only(k))])
            self.step_bottoms(h, back, back.any & batch.once("bottom"))

    def step_bottoms(self, h: Tensor, gradient: Tensor | Inbox, where: Tensor) -> None:
        """Algorithm 2: every party takes a step by the gradient of its embedding."""
        self.encoders.backward(h, gradient, where)
        self.bottoms.follow(where)

    async def collect(self, epoch: Epoch, batch: Turn, h: Tensor, k: int) -> tuple[Inbox, Found]:
        """Active party k gets the embeddings of its batch, and what it finds with its labels."""
        inbox = await batch.send(h, self.embedding.only(dst=k), wait=self.wait)
        penalty: Any = 0.0
        if self.amplifies(k):
            values = 0.5 * self.set.decay * self.encoders.squares()[:, None, None]
            penalties = await batch.send(values, self.regulariser.only(dst=k), 1)
            penalty = penalties.total()[:, 0, 0]
        factor = partial(self.factor, epoch, k)
        used = self.stored[k].filled(inbox, batch.rows) if self.set.stale else inbox
        joined = combine(used)
        loss, top, gradient = self.copies.only(k).derivatives(joined.value, batch.y, self.loss)
        scale = _scale(factor, loss + penalty, top, self.set.clip)  # [active party k]
        by = scale[:, None, None]
        shares = joined.share(gradient * by)
        return inbox, Found(loss, top[:, None] * by, shares, used.arrived & ~inbox.arrived)

    @property
    def wait(self) -> Wait:
        """How long an active party waits for embeddings."""
        limit = A_STEP if self.set.deadline is None else self.set.deadline
        return deadline(limit) if self.set.stale else ALL

    async def hear_late(
        self, epoch: Epoch, batch: Turn, h: Tensor, k: int, found: Found, back: Inbox
    ) -> Inbox:
        """A party that was sent no gradient sends its embedding once more, to be stored whenever it
        arrives; and gets the gradient of its stored embedding, if that was used."""
        message, widths = numbered(h, batch.net.round), self.late.only(dst=k)
        late = await batch.send(message, widths, wait=LATEST, where=~back.any)
        self.stored[k].take(late, epoch.order(k))
        told = self.late_gradient.only(src=k)
        more = await batch.send(found.shares, told, where=found.stored, work=0.0)
        return _either(back, more)

    def amplifies(self, k: int) -> bool:
        """Whether active party k may minimise F^q."""
        slow = self.set.slower(self.task).get(self.active.parties[k], 0) > 0
        return self.set.q == "auto" or (self.set.q > 1 and slow)

    def factor(self, epoch: Epoch, k: int, objective: Tensor) -> Tensor:
        """By how much party k's gradients count for more, never less than 1: the derivative of
        F^q is q·F^(q−1) that of F, which falls to 1 at F = q^(1/(1−q))."""
        if not self.amplifies(k):
            return torch.ones_like(objective)
        if self.set.q == "auto":
            paces = [epoch.pace(other) for other in range(len(self.active))]
            behind = max(paces) / max(1, paces[k])
            chance = math.log(max(2, self.task.classes))  # the loss of who knows nothing
            return (behind * (objective / chance).clamp(max=1.0)).pow(1 / 3).clamp(min=1.0)
        return (self.set.q * objective ** (self.set.q - 1)).clamp(min=1.0)

    # -- Algorithm 3: the collaborator ------------------------------------------------------------

    async def update_top(self, batch: Turn, found: Sequence[tuple[int, Found]]) -> None:
        """The collaborator takes a step by each gradient, in order, and returns the top net."""
        if not len(self.collaborator):
            for k, one in found:
                self.step_top(one.top[:, 0], self.copies.only(k).stepping())
            return
        mean = not self.set.asynchronous and self.set.synchronous == "mean"
        came: list[Inbox] = []
        for k, one in found:
            came.append(await batch.send(one.top, self.top_gradient.only(src=k), 1))
            if not mean:
                new = came[-1].any & batch.once(f"top {k}")
                self.step_top(came[-1].total()[:, 0], new)
        if mean:
            gradient, anything = _mean(came)
            self.step_top(gradient, anything & batch.once("top"))
        for (k, _), inbox in zip(found, came, strict=True):
            newest = self.tops.learning.as_row()[:, None]
            back = await batch.send(newest, self.top.only(dst=k), 1, where=inbox.any)
            self.copies.only(k).take(back.total()[:, 0], back.any)

    def step_top(self, gradient: Tensor, where: Tensor) -> None:
        self.tops.learning.step(gradient, where)
        self.tops.follow(where)

    async def fetch(self, net: Network, top: Stack, *parties: int) -> None:
        """Active parties ask for the newest top net; without an answer they go on with their own
        copies."""
        for k in parties if len(self.collaborator) else ():
            inbox = await net.send(top.as_row()[:, None], self.top.only(dst=k), 1)
            self.copies.only(k).take(inbox.total()[:, 0], inbox.any)

    # -- the synchronous counterpart --------------------------------------------------------------

    async def lead_together(self, epoch: Epoch, net: Network) -> None:
        """All active parties in every round, which ends with the slowest of them."""
        parties = range(len(self.active))
        orders = [epoch.order(k) for k in parties]
        epoch.ended = set(parties[1:])  # one program for all
        for k in parties:
            await self.fetch(net, self.tops.learning, k)
        async for first in epoch.rounds(net, 0, self.counter):
            first.alone = True  # active parties compute at the same time
            batches = [first.like(orders[k][net.round]) for k in parties]
            h = [self.encoders(batch.x) for batch in batches]
            got = [await self.collect(epoch, batches[k], h[k], k) for k in parties]
            await self.update_top(first, [(k, got[k][1]) for k in parties])
            rows = max(len(batch) for batch in batches)
            shares = _those_here([_padded(found.shares, rows) for _, found in got])
            if self.set.synchronous == "mean":
                shares = shares / len(parties)
            where = _those_here([inbox.arrived for inbox, _ in got])
            every = await first.send(shares, self.gradient, rows, where=where)
            back = [_from_one(every, k, len(batches[k])) for k in parties]
            await first.close([(k, got[k][1].loss, self.active.only(k)) for k in parties])
            self.step_together(batches, h, back)

    def step_together(
        self, batches: Sequence[Turn], h: Sequence[Tensor], back: list[Inbox]
    ) -> None:
        """`steps`: one after the other; `mean`: one step by the mean gradient."""
        new = batches[0].once("bottom")
        if self.set.synchronous != "mean":
            for one, inbox in zip(h, back, strict=True):
                self.step_bottoms(one, inbox, inbox.any & new)
            return
        every = self.encoders(_side_by_side([batch.x for batch in batches]))
        gradient, anything = _joined(back)
        self.step_bottoms(every, gradient, anything & new)

    # -- prediction -------------------------------------------------------------------------------

    async def predict(self, net: Network, part: Part) -> Tensor:
        """An active party asks. It takes the collaborator's newest top net, or its own copy if that
        does not come; an embedding that does not come counts as zeros."""
        k, logits = part.asker, []
        top = self.copies if len(self.collaborator) else self.tops.asked
        await self.fetch(net, self.tops.asked, k)
        async for batch in net.rounds(part.in_order(self.predict_rows(net))):
            h = self.bottoms.asked.predict(batch.x)
            inbox = await net.send(h, self.embedding.only(dst=k), len(batch))
            logits.append(top.only(k).predict(combine(inbox).value)[0])
        return torch.cat(logits)


@local
def _scale(factor: Any, objective: Tensor, top: Tensor, clip: float) -> Tensor:
    """One factor for all nets, so that none learns faster than the others: not larger than makes
    the gradient of the top net as long as `clip`. (Amplified first and clipped net by net, bottom
    nets moved several times as far as the top net that reads them, and q = "auto" ended behind
    q = 1.)"""
    longest = (clip / top.norm(dim=1)).nan_to_num(1.0).clamp(min=1.0)
    return torch.minimum(factor(objective), longest)


@local
def _either(back: Inbox, more: Inbox) -> Inbox:
    """What came by the one or by the other."""
    arrived = back.arrived | more.arrived
    return Inbox(back.value + more.value, arrived, bool(arrived.all()), back.widths)


@local
def _padded(shares: Tensor, rows: int) -> Tensor:
    """A short batch filled up with zeros."""
    return torch.nn.functional.pad(shares, (0, 0, 0, rows - shares.shape[2]))


def _those_here(parts: Sequence[Any]) -> Any:
    """Values of single members as one of the group. [members here, ...]"""
    here = [part for part in parts if not is_absent(part)]
    return torch.cat(here) if here else ABSENT


@local
def _from_one(inbox: Inbox, k: int, rows: int) -> Inbox:
    """What came from the k-th sender."""
    arrived = inbox.arrived[:, k : k + 1]
    return Inbox(inbox.raw[:, k : k + 1, :rows], arrived, bool(arrived.all()))


@local(results=2)
def _mean(came: Sequence[Inbox]) -> tuple[Tensor, Tensor]:
    """The mean of what came, zeros for what did not, and whether anything came."""
    total = torch.stack([inbox.total()[:, 0] for inbox in came]).mean(0)
    return total, torch.stack([inbox.any for inbox in came]).any(0)


@local
def _side_by_side(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(parts), 1)


@local(results=2)
def _joined(back: Sequence[Inbox]) -> tuple[Tensor, Tensor]:
    gradient = torch.cat([inbox.total() for inbox in back], 1)
    return gradient, torch.stack([inbox.any for inbox in back]).any(0)
