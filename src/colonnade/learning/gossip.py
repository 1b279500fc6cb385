"""Training control of an algorithm in which nobody leads.

No party decides for the others. Each aggregator's figures on the validation rows are passed from
neighbour to neighbour, and all parties draw the same conclusion from the same figures.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
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
from colonnade.learning.versions import digest
from colonnade.network import ABSENT, Group, Inbox, Network, is_absent, locally
from colonnade.network.network import LIVES

WITNESSES = 64  # more of them would hardly change the decision, but add many messages
UNKNOWN = 1e30  # stands for a loss that is not known
TIE = 1e-5  # weight of the loss beside a metric: smaller than the effect of one row on most metrics
KEPT = ("then", "short")  # of `Witness`, about the best version; in `Training.progress`
AS_GOOD = 1.1  # factor between figures that count as equal: other rows would change them more


class Witness(NamedTuple):
    """What an aggregator tells all parties after an epoch; float, because it is sent as a
    tensor."""

    heard: float  # 1; 0 where nothing came from this aggregator
    loss: float
    value: float  # of the deciding metric
    error: float  # standard error of the value
    best: float  # rounds until the best version that the aggregator knows of
    then: float  # the aggregator's figure of that version; see `Gossip.figure`
    short: float  # how far the deciding metric of that version is from the best possible
    life: float  # of the aggregator's process
    keeps: float  # whether the aggregator keeps its part of that version
    complete: float  # whether it, and all of its neighbours, took part in the validation


FIGURES = len(Witness._fields)
ODD = "figures of a validation that cannot be"  # why a message is not used


def plausible(column: Witness, rounds: int) -> bool:
    """Whether an aggregator may have told these figures after so many rounds."""
    numbers = (column.loss, column.value, column.error, column.then, column.short)
    flags = (column.heard, column.keeps, column.complete)
    return (
        all(flag in (0.0, 1.0) for flag in flags)
        and all(abs(number) <= 2 * UNKNOWN for number in numbers)
        and min(column.loss, column.error, column.then, column.short) >= 0.0
        and 0.0 <= column.best <= rounds
        and 0.0 <= column.life < LIVES
        and column.best.is_integer()
        and column.life.is_integer()
    )


def evenly_spaced(aggregators: int) -> range:
    """The numbers of the witnesses among so many aggregators: all, or evenly spaced ones."""
    return range(0, aggregators, -(-aggregators // WITNESSES))


class Gossip(Training):
    """The control of a program without a leader."""

    async def decide(self, net: Network, batch: Batch, loss: Any) -> Decision:
        """Every party gets the figures of the aggregators, and draws the same conclusion."""
        witnesses = cast(Leaderless, self.algorithm)
        closing = self.closing or batch.epoch + 1 >= self.usual
        if closing:
            await self.wait_for_absent(net)  # parties that are away would lack the best version
        apart, so_far = net.within("validation"), self.progress
        apart.tell_weights(lambda: digest(witnesses.tensors(net)))
        mine = await witnesses.validate(apart)
        as_measured = apart.measured_as_it_is(self.rounds_per_epoch)  # else no part is kept
        told = await self.tell_everybody(apart, mine, net.round, as_measured)
        heard = [Witness(*figures) for figures in told[:, told[0] > 0].T.tolist()]
        before, holders = self.best_before(heard)
        complete = all(one.complete for one in heard) and not apart.left_out()
        # Between two versions only witnesses that have both decide: one that was away then may be
        # behind now.
        better = self.improves(holders)
        if len(holders) < len(heard) and complete and closing:
            better = better or self.as_good(holders)
        found = self.validation(heard)
        self.tell(net, batch, torch.nan if is_absent(loss) else loss.mean(), found)
        self.count_patience(found["validation_loss"], better)
        if better and not is_absent(mine):
            for k, (loss, value, _) in enumerate(mine.tolist()):
                so_far |= {f"then {k}": self.figure(loss, value), f"short {k}": self.short(value)}
        held = better or len(holders) == len(heard)
        stop, _ = self.when_to_stop(batch, found, whole=held and complete)
        lives = int(sum(one.life for one in heard))  # tells a round from its repetition
        as_measured = as_measured and apart.measured_as_it_is(self.rounds_per_epoch)
        best, version = net.round if better else before, (lives, net.round)
        return Decision(best, before, stop, version, as_measured=as_measured)

    def best_before(self, heard: Sequence[Witness]) -> tuple[int, list[Witness]]:
        """The newest of the best versions that the witnesses know of, and the witnesses that keep
        it. A version that a single witness claims to keep does not count beside other witnesses:
        it is of no use to them, and need not exist."""
        told = Counter(one.best for one in heard if one.keeps)
        enough = min(2, len(heard))
        newest = max((best for best, keep in told.items() if keep >= enough), default=None)
        if newest is None:
            return int(self.progress["best"]), []
        return int(newest) - 1, [one for one in heard if one.keeps and one.best == newest]

    def improves(self, holders: Sequence[Witness]) -> bool:
        """Whether the version that was just measured is better than the best one before, given the
        witnesses that keep that one."""
        now = sum(self.figure(one.loss, one.value) for one in holders)
        return not holders or now < sum(one.then for one in holders)

    def as_good(self, holders: Sequence[Witness]) -> bool:
        """Whether the difference from the best version before is small enough to be chance. At the
        end, a version that all have wins over such a one. A loss may rise while the metric stays:
        so either of the two will do."""
        now = sum(self.figure(one.loss, one.value) for one in holders)
        short = sum(self.short(one.value) for one in holders)
        chance = len(holders) * min(one.error for one in holders)  # one alone cannot raise it
        return now < AS_GOOD * sum(one.then for one in holders) or short <= chance + sum(
            one.short for one in holders
        )

    def short(self, value: float) -> float:
        """How far a value of the deciding metric is from the best possible."""
        return self.algorithm.task.goal.deciding.shortfall(value)

    def figure(self, loss: float, value: float) -> float:
        """The figure that decides between two versions; lower is better. It is the loss, as in the
        paper, or the metric that the user chose, with the loss for ties."""
        goal = self.algorithm.task.goal
        return loss if goal.metric is None else goal.deciding.shortfall(value) + TIE * loss

    def validation(self, heard: Sequence[Witness]) -> dict[str, float]:
        """The mean over the witnesses whose figures came."""
        metric = self.algorithm.task.goal.deciding
        if not heard:
            worst = 0.0 if metric.higher else UNKNOWN
            return {"validation_loss": UNKNOWN, f"validation_{metric.key}": worst}
        loss, value = fmean(one.loss for one in heard), fmean(one.value for one in heard)
        return {"validation_loss": loss, f"validation_{metric.key}": value}

    def keeps_best(self) -> bool:
        """Whether the parties here keep their part of the best version."""
        return self.versions.newest_of(int(self.progress["best"])) is not None

    async def tell_everybody(
        self, net: Network, found: Tensor, rounds: int, as_measured: bool
    ) -> Tensor:
        """Pass the figures of the witnesses from neighbour to neighbour, until every party has all
        of them. `rounds`: so many were done before this one. `as_measured`: whether the parties
        here can keep their parts. [figures, witnesses]

        What a neighbour says of itself counts more than what others say of it: at first each
        device tells its own figures only, and those that a party knows stay as they are."""
        a, best = cast(Leaderless, self.algorithm), self.progress["best"] + 1
        here = list(net.here(a.devices))
        told: Any = torch.zeros(len(here), FIGURES, len(a.witnesses)) if here else ABSENT
        complete = as_measured and not net.left_out()
        facts: Any = {"life": net.life, "keeps": self.keeps_best(), "complete": complete}
        for i, k in enumerate(net.here(a.aggregators)):
            if k in a.witnesses:
                then, short = (self.progress.get(f"{key} {i}", UNKNOWN) for key in KEPT)
                loss, value, error = found[i].tolist()
                mine = Witness(1.0, loss, value, error, best, then, short, **facts)
                told[here.index(a.chosen[k]), :, a.witnesses.index(k)] = torch.tensor(mine)
        for hop in range(a.hops):

            def fits(sender: str, figures: Tensor, first: bool = hop == 0) -> bool:
                columns = [Witness(*column) for column in figures.T.tolist()]
                known = {k for k, one in enumerate(columns) if one.heard}
                own = {k for k, w in enumerate(a.witnesses) if a.aggregators.parties[w] == sender}
                return all(plausible(one, rounds) for one in columns) and (
                    not first or known <= own
                )

            inbox = await net.send(told, a.validation, FIGURES)
            inbox = locally(lambda one: net.checked(one, a.devices, a.devices, fits, ODD), inbox)
            told = locally(_merged, told, inbox)
        heard = await net.send(told, a.validation_told, FIGURES)
        return told[0] if here else _columns(heard.value)[0]


def _columns(value: Tensor) -> Tensor:
    """Of each witness the figures of one message that has them; zeros if none has. [receivers,
    messages, figures, witnesses] → [receivers, figures, witnesses]"""
    one = value[:, :, 0].argmax(1)  # [receivers, witnesses]
    return value.gather(1, one[:, None, None].expand(-1, 1, FIGURES, -1))[:, 0]


def _merged(told: Tensor, inbox: Inbox) -> Tensor:
    """What a device knew already, then what it heard; nothing if it was away and heard not even
    itself. [devices here, figures, witnesses]"""
    known = (told[:, :1] > 0) & inbox.any[:, None, None]
    return torch.where(known, told, _columns(inbox.value))


class Leaderless(Algorithm):
    """An algorithm in which nobody leads. Its column holders are devices on a graph; some of them
    aggregate, have the labels, and may be witnesses. The entity stands outside, asks for
    predictions, and must know when the training is over; a real federation has none."""

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
        return evenly_spaced(len(self.chosen))

    @property
    def witness_count(self) -> int:
        return len(self.witnesses)

    @abstractmethod
    async def validate(self, net: Network) -> Any:
        """Loss, deciding metric and the metric's standard error of each aggregator's own model.
        [aggregators here, 3]"""
