"""Noise on the encodings that column holders send, and how often each row has left.

With the setting `noise`, everything that an algorithm sends over an exchange of encodings passes
`Releases.leave`: it is clipped, noise is added, and its rows are counted. The algorithm does
nothing for it. Each training and validation row is counted by itself, because the network knows
which rows the present round is about; of test rows only the total is counted. A message that a
simulated fault keeps from leaving is counted as well.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from colonnade.errors import InputError
from colonnade.learning.declare import Exchange, declared
from colonnade.learning.state import Tensors
from colonnade.network import Group, Network, is_absent
from colonnade.network.absent import Absent
from colonnade.network.channel import Channel, Where
from colonnade.privacy import accountant
from colonnade.privacy.noise import released
from colonnade.privacy.spec import Noise

if TYPE_CHECKING:
    from colonnade.learning.algorithm import Algorithm

log = logging.getLogger(__name__)

PARTS = {
    "training": "train",
    "supervision": "train",
    "validation": "validation",
    "inference": "test",
}
PART_NAMES = {"train": "training rows", "validation": "validation rows", "test": "test rows"}


class RowsLeft:
    """How often each training and validation row has left, and how many test rows have left. The
    counts are the same at every member here. They are kept as declared state (state.py)."""

    large, members = False, 0

    def __init__(self, rows: dict[str, int]) -> None:
        self.rows, self.tested = rows, 0
        counted = ("train", "validation")
        self.counts = {part: torch.zeros(rows[part], dtype=torch.int32) for part in counted}

    def times(self, part: str) -> int:
        """How often the row of this part that left most often has left."""
        if part not in self.counts:
            return -(-self.tested // max(1, self.rows[part]))
        return int(self.counts[part].max()) if self.rows[part] else 0

    def after(self, part: str, which: Tensor | slice) -> int:
        """The largest count of these rows after they leave once more."""
        return int(self.counts[part][which].max()) + 1

    def add(self, part: str, which: Tensor | slice, rows: int) -> None:
        if part in self.counts:
            self.counts[part][which] += 1
        else:
            self.tested += rows

    def at_least(self, part: str, times: int) -> None:
        """Every row of this part counts as having left so often."""
        self.counts[part].clamp_(min=times)

    def whole(self) -> list[Tensors]:
        tested = {"test": torch.tensor([self.tested])}
        return [{k: v.clone() for k, v in (self.counts | tested).items()}] * self.members

    def changes(self) -> list[Tensors]:
        return self.whole()

    def restore(self, found: Sequence[Tensors]) -> None:
        for one in found:
            self.tested = int(one["test"])
            self.counts = {part: one[part].clone() for part in self.counts}


class Releases:
    """Adds noise to encodings and counts releases: the gate of the channels of encodings."""

    def __init__(self, algorithm: Algorithm, noise: Noise) -> None:
        self.algorithm, self.noise = algorithm, noise
        self.left = RowsLeft(algorithm.task.rows)
        # Called before the largest count of a part grows: a real party writes it to the disk.
        self.reserve: Callable[[str, int], None] = lambda part, times: None
        self.stopped = False  # the training ended because the budget was used up
        self._told = False
        self._check(type(algorithm))

    def _check(self, kind: type[Algorithm]) -> None:
        sent = [exchange for exchange in declared(kind, Exchange) if exchange.encodes]
        if not sent:
            raise InputError(
                f"noise: is added to encodings of rows that column holders send, and {kind.name} "
                "sends none; leave it out"
            )
        if kind.side_by_side:
            raise InputError(
                f"noise: is not supported with {kind.name}, whose parties go at their own pace, so "
                "that nobody knows beforehand how often a row leaves; leave it out"
            )
        own = [exchange.kind for exchange in sent if exchange.facts["each"]]
        if own:
            raise InputError(
                f"noise: {kind.name} sends each receiver an encoding of its own ({own[0]}), which "
                "is not supported; leave it out"
            )
        if self.noise.releases is not None and (least := self._planned(1)) > self.noise.releases:
            raise InputError(
                f"noise.releases = {self.noise.releases}: but {kind.name} sends a row's encoding "
                f"{least} times with these settings, even if it learns for one epoch"
            )

    def join(self, net: Network) -> None:
        """Declare the counts as state, which column holders, and a label holder that leads, keep
        through a crash."""
        a = self.algorithm
        parties = (*a.columns.parties, *(a.labels.parties if a.led else ()))
        self.algorithm.keeps(
            net, "left", Group("counting", tuple(dict.fromkeys(parties)), "owner"), self.left
        )

    # -- how much noise ---------------------------------------------------------------------------

    def _planned(self, epochs: int) -> int:
        """Planned releases of the row that leaves most often in so many epochs."""
        planned, rows = self.algorithm.planned_releases(epochs), self.algorithm.task.rows
        return max(times for part, times in planned.items() if rows[part])

    @cached_property
    def allowed(self) -> float:
        """The largest number of releases of one row; infinite without `epsilon`."""
        if self.noise.epsilon is None:
            return math.inf
        return self.noise.releases or self._planned(self.algorithm.training.batches.epochs)

    @cached_property
    def sigma(self) -> float:
        """Standard deviation of the noise."""
        noise = self.noise
        if noise.sigma is not None:
            return noise.sigma
        assert noise.epsilon is not None
        z = accountant.multiplier_for(noise.epsilon, noise.delta, int(self.allowed))
        return 2 * noise.clip * z

    # -- what leaves ------------------------------------------------------------------------------

    def leave(
        self, net: Network, value: Tensor | Absent, channel: Channel, rows: int, where: Where
    ) -> tuple[Tensor | Absent, Where]:
        """What a channel sends in place of `value`: clipped, with noise, and counted; nothing where
        the budget is used up."""
        part, here = PARTS[net.phase], net.here(channel.src)
        which = _rows_of(net, rows)
        if part in self.left.counts:
            times = self.left.after(part, which)
            if times > self.allowed:
                self._tell(f"{channel.kind}: {self._used_up(part)}; nothing more of them is sent")
                return value, torch.zeros(len(here), dtype=torch.bool)
            if here and times > self.left.times(part):
                self.reserve(part, times)
        self.left.add(part, which, rows)
        if is_absent(value):
            return value, where
        width = channel.width
        sources = [
            (
                net.secrets(channel.src.parties[i], "noise", channel.kind, *net.at),
                width if isinstance(width, int) else width[i],
            )
            for i in here
        ]
        return released(value, self.noise.clip, self.sigma, sources), where

    # -- the budget -------------------------------------------------------------------------------

    def last_epoch(self, epoch: int) -> bool:
        """Whether the budget does not suffice for the epoch after this one. With a leader, repeated
        rounds count, too; without one they do not, because all parties must conclude the same."""
        if self.allowed == math.inf:
            return False
        planned = self.algorithm.planned_releases(epoch + 1)
        parts = [part for part in ("train", "validation") if self.algorithm.task.rows[part]]
        again = max(self.left.times(part) - planned[part] for part in parts)
        more = max(0, again) if self.algorithm.led else 0
        after = self.algorithm.planned_releases(epoch + 2)
        return any(after[p] > planned[p] and after[p] + more > self.allowed for p in parts)

    def stop(self) -> None:
        """Note and log that the training ends because the budget is used up."""
        self.stopped = True
        log.info("%s; training ends, with the best model so far", self._used_up("train"))

    def _used_up(self, part: str) -> str:
        noise = self.noise
        budget = f"epsilon = {noise.epsilon:g}, delta = {noise.delta:g}: {self.allowed} releases"
        return f"the privacy budget of the {PART_NAMES[part]} is used up ({budget} of a row)"

    def _tell(self, what: str) -> None:
        if not self._told:
            log.warning("%s", what)
        self._told = True

    # -- what results tell ------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """For the results: the noise, and ε of the row that left most often, as far as this process
        knows."""
        noise, times = self.noise, {part: self.left.times(part) for part in PART_NAMES}
        z = accountant.multiplier(noise.clip, self.sigma)
        epsilon = accountant.epsilon(z, max(times.values()), noise.delta)
        return {
            "epsilon": epsilon if math.isfinite(epsilon) else None,
            "delta": noise.delta,
            "sigma": self.sigma,
            "clip": noise.clip,
            "releases": max(times.values()),
            **{f"{part}_releases": number for part, number in times.items()},
        }

    def notes(self) -> tuple[str, ...]:
        if not self.stopped:
            return ()
        return (f"{self._used_up('train')}: training ended early, with the best model so far",)


def _rows_of(net: Network, rows: int) -> Tensor | slice:
    """Which rows leave: those of the present round; all rows where that is not known."""
    found = getattr(net.item, "rows", None)
    return found if isinstance(found, Tensor) and len(found) == rows else slice(None)
