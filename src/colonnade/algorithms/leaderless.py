"""Algorithms in which nobody leads: who decides which epoch was the best, and when to stop.

Nobody decides for others. How well each aggregator does on the validation rows goes from neighbour
to neighbour, and from the same figures all draw the same conclusion.
"""

from __future__ import annotations

from abc import abstractmethod
from statistics import fmean
from typing import Any, ClassVar

import torch
from torch import Tensor

from colonnade.algorithms.algorithm import Algorithm, Decision
from colonnade.algorithms.task import Batch
from colonnade.network import ABSENT, Group, Inbox, Network, is_absent, locally

WITNESSES = 64  # more of them would tell the same, and talk much
UNKNOWN = 1e30  # a loss
FIGURES = 8  # of every witness
NOTHING = ((0.0,), (UNKNOWN,), (0.0,), (UNKNOWN,), (0.0,), (0.0,), (1.0,), (1.0,))  # of nobody


class Leaderless(Algorithm):
    """Devices on a graph, some of which aggregate and have the labels."""

    led: ClassVar[bool] = False

    devices: Group
    aggregators: Group
    chosen: tuple[int, ...]  # which devices aggregate
    entity: Group  # somebody outside, who must know when to ask
    hops: int  # from anybody to anybody

    @property
    def witnesses(self) -> range:
        """Aggregators whose validation counts: all, or evenly spread ones."""
        return range(0, len(self.chosen), -(-len(self.chosen) // WITNESSES))

    @abstractmethod
    async def validate(self, net: Network) -> Any:
        """Loss and accuracy of every aggregator by itself. [aggregators here, 2]"""

    async def decide(self, net: Network, batch: Batch, loss: Any) -> Decision:
        """Everybody hears how the aggregators do, and draws the same conclusion."""
        if batch.epoch + 1 >= self.usual:
            await net.reunite()  # those who are away would lack the best version
        apart, so_far = net.within("validation"), self.progress
        told = await self.tell_everybody(apart, await self.validate(apart))
        heard = told[:, told[0] > 0].T.tolist()  # by witness that was heard of
        _, losses, accuracies, lowest, rounds, lives, keeps, complete = (
            zip(*heard, strict=True) if heard else NOTHING
        )
        if min(lowest) < so_far["loss"]:  # this party was away when it was told
            so_far |= {"loss": min(lowest), "best": rounds[lowest.index(min(lowest))] - 1}
        found = {"validation_loss": fmean(losses), "validation_accuracy": fmean(accuracies)}
        self._tell(net, batch, torch.nan if is_absent(loss) else loss.mean(), found)
        value, before = found["validation_loss"], int(so_far["best"])
        better = value < so_far["loss"]
        self.count_patience(value, better)
        if better:
            so_far["loss"] = value
        stop, _ = self.when_to_stop(batch, whole=all(complete) and (better or all(keeps)))
        version = (int(sum(lives)), net.round)  # rounds that are done again differ in lives
        return Decision(net.round if better else before, before, stop, version)

    def keeps_best(self) -> bool:
        return self.versions.newest_of(int(self.progress["best"])) is not None

    async def tell_everybody(self, net: Network, found: Tensor) -> Tensor:
        """From neighbour to neighbour, until everybody knows of every witness: 1 (it was heard of),
        its loss and accuracy, the lowest loss that it knows of, the number of rounds until then,
        which life of its process this is, whether it keeps its part of that version, and whether
        all of its neighbours took part in the validation. [8, witnesses]"""
        here, so_far = list(net.here(self.devices)), self.progress
        told: Any = torch.zeros(len(here), FIGURES, len(self.witnesses)) if here else ABSENT
        best = [min(so_far["loss"], UNKNOWN), so_far["best"] + 1, net.life, self.keeps_best()]
        best.append(not net.owing())
        for i, k in enumerate(net.here(self.aggregators)):
            if k in self.witnesses:
                mine = torch.cat([torch.ones(1), found[i], torch.tensor(best)])
                told[here.index(self.chosen[k]), :, self.witnesses.index(k)] = mine
        for _ in range(self.hops):
            inbox = await self.say(net, told, self.devices)
            told = locally(lambda inbox: inbox.value.amax(1), inbox)
        heard = await self.say(net, told, self.entity)
        return told[0] if here else heard.value[0].amax(0)

    async def say(self, net: Network, told: Tensor, to: Group) -> Inbox:
        facts: Any = {"kind": "validation", "shape": (FIGURES, len(self.witnesses))}
        return await net.send(told, self.devices, to, bounded=False, **facts)
