"""Training control of an algorithm in which nobody leads.

Nobody decides for others. How well each aggregator does on the validation rows goes from neighbour
to neighbour, and from the same figures all draw the same conclusion.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from statistics import fmean
from typing import Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor

from colonnade.learning.algorithm import Algorithm
from colonnade.learning.declare import Columns, Exchange, Members
from colonnade.learning.task import Batch
from colonnade.learning.training import Decision, Training
from colonnade.network import ABSENT, Group, Network, is_absent, locally

WITNESSES = 64  # more of them would tell the same, and talk much
UNKNOWN = 1e30  # a loss
TIE = 1e-5  # weight of the loss beside a metric: less than one row changes most metrics
AS_GOOD = 1.1  # times the figure: less than what the choice of validation rows changes


class Witness(NamedTuple):
    """What an aggregator tells everybody after an epoch."""

    heard: float  # 1
    loss: float
    value: float  # of the deciding metric
    best: float  # rounds until the best version that it knows of
    then: float  # its figure at that time; see `Gossip.figure`
    life: float  # of its process
    keeps: float  # whether it keeps its part of the best version
    complete: float  # whether all of its neighbours took part in the validation


FIGURES = len(Witness._fields)


def spread(aggregators: int) -> range:
    """The witnesses among so many aggregators: all, or evenly spread ones."""
    return range(0, aggregators, -(-aggregators // WITNESSES))


class Gossip(Training):
    """The control of a program without a leader."""

    async def decide(self, net: Network, batch: Batch, loss: Any) -> Decision:
        """Everybody hears how the aggregators do, and draws the same conclusion."""
        witnesses = cast(Leaderless, self.algorithm)
        if batch.epoch + 1 >= self.usual:
            await net.reunite()  # those who are away would lack the best version
        apart, so_far = net.within("validation"), self.progress
        mine = await witnesses.validate(apart)
        told = await self.tell_everybody(apart, mine)
        heard = [Witness(*figures) for figures in told[:, told[0] > 0].T.tolist()]
        before = int(max([so_far["best"] + 1, *(one.best for one in heard)])) - 1
        holders = [one for one in heard if one.keeps and one.best == before + 1]
        complete = all(one.complete for one in heard) and not apart.owing()
        # Of two versions those decide who have both: one that was away then may be behind now. At
        # the end a version that all have is preferred to one that is a little better.
        alone = len(holders) < len(heard) and complete and batch.epoch + 1 >= self.usual
        now = sum(self.figure(w.loss, w.value) for w in holders)
        then = sum(w.then for w in holders)
        better = not holders or now < then * (AS_GOOD if alone else 1.0)
        found = self.validation(heard)
        self.tell(net, batch, torch.nan if is_absent(loss) else loss.mean(), found)
        self.count_patience(found["validation_loss"], better)
        if better and not is_absent(mine):
            so_far |= {f"then {k}": self.figure(*pair) for k, pair in enumerate(mine.tolist())}
        held = better or len(holders) == len(heard)
        stop, _ = self.when_to_stop(batch, whole=held and complete)
        lives = int(sum(one.life for one in heard))  # rounds that are done again differ in them
        return Decision(net.round if better else before, before, stop, (lives, net.round))

    def figure(self, loss: float, value: float) -> float:
        """What decides between two versions, lower is better: the loss, as in the paper, unless the
        user chose a metric. Then the loss decides between equal values."""
        goal = self.algorithm.task.goal
        return loss if goal.metric is None else goal.deciding.shortfall(value) + TIE * loss

    def validation(self, heard: Sequence[Witness]) -> dict[str, float]:
        """The mean over those who were heard."""
        metric = self.algorithm.task.goal.deciding
        if not heard:
            worst = 0.0 if metric.higher else UNKNOWN
            return {"validation_loss": UNKNOWN, f"validation_{metric.key}": worst}
        loss, value = fmean(one.loss for one in heard), fmean(one.value for one in heard)
        return {"validation_loss": loss, f"validation_{metric.key}": value}

    def keeps_best(self) -> bool:
        return self.versions.newest_of(int(self.progress["best"])) is not None

    async def tell_everybody(self, net: Network, found: Tensor) -> Tensor:
        """From neighbour to neighbour, until everybody knows of every witness. [figures,
        witnesses]"""
        a, best = cast(Leaderless, self.algorithm), self.progress["best"] + 1
        here = list(net.here(a.devices))
        told: Any = torch.zeros(len(here), FIGURES, len(a.witnesses)) if here else ABSENT
        facts: Any = {"life": net.life, "keeps": self.keeps_best(), "complete": not net.owing()}
        for i, k in enumerate(net.here(a.aggregators)):
            if k in a.witnesses:
                loss, value = found[i].tolist()
                then = self.progress.get(f"then {i}", UNKNOWN)
                mine = Witness(1.0, loss, value, best, then, **facts)
                told[here.index(a.chosen[k]), :, a.witnesses.index(k)] = torch.tensor(mine)
        for _ in range(a.hops):
            inbox = await net.send(told, a.validation, FIGURES)
            told = locally(lambda inbox: inbox.value.amax(1), inbox)
        heard = await net.send(told, a.validation_told, FIGURES)
        return told[0] if here else heard.value[0].amax(0)


class Leaderless(Algorithm):
    """An algorithm in which nobody leads. Its column holders are devices on a graph; some of them
    aggregate, have the labels, and may be witnesses. The entity is somebody outside who must know
    when to ask; a real federation has none."""

    led: ClassVar[bool] = False
    control: ClassVar[type[Training]] = Gossip
    outside: ClassVar[tuple[str, ...]] = ("entity",)
    devices = Columns()
    aggregators = Members(
        "aggregator", lambda self: tuple(self.task.clients[i] for i in self.chosen)
    )
    entity = Members("owner", lambda self: self.task.players.get("entity", ("entity",)))
    validation = Exchange(
        devices,
        devices,
        "loss and deciding metric of every aggregator",
        width="witness_count",
        bounded=False,
        encodes=False,
        exact=True,
    )
    validation_told = Exchange(
        devices,
        entity,
        "loss and deciding metric of every aggregator",
        width="witness_count",
        bounded=False,
        encodes=False,
        exact=True,
        kind="validation",
    )
    hops: int  # from any device to any other; set by `build`

    @cached_property
    def chosen(self) -> tuple[int, ...]:
        """Which devices aggregate."""
        return tuple(range(len(self.task.clients)))

    @cached_property
    def labels(self) -> Group:
        return Group("labels", (*self.aggregators.parties, *self.entity.parties), "owner")

    @property
    def informed(self) -> tuple[str, ...]:
        return self.entity.parties or self.aggregators.parties

    @property
    def witnesses(self) -> range:
        """Which aggregators are witnesses."""
        return spread(len(self.chosen))

    @property
    def witness_count(self) -> int:
        return len(self.witnesses)

    @abstractmethod
    async def validate(self, net: Network) -> Any:
        """Loss and deciding metric of every aggregator by itself. [aggregators here, 2]"""
