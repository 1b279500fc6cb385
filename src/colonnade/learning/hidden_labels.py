"""`hide_labels`: the label holder adds noise to the gradients of single rows before they leave, so
that column holders cannot tell the labels from them. The forms of the noise are in
`privacy/hiding.py`.

The noise of a row is the same for all receivers: noise of its own for each would average out where
several of them join. (Equal noise cancels in their difference; receivers that work together are not
covered.) From epoch to epoch a part of it stays and parts of it change, each at its own pace: see
`privacy/redrawn.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor

from colonnade.learning.private_labels import check_holders, check_told
from colonnade.learning.state import Tensors, Value
from colonnade.network import Network, is_absent
from colonnade.network.absent import Absent
from colonnade.network.channel import Channel, Where
from colonnade.privacy.hiding import ClassPoints, hidden
from colonnade.privacy.redrawn import Redrawn
from colonnade.privacy.spec import Hide

if TYPE_CHECKING:
    from colonnade.learning.algorithm import Algorithm


SECRET = 8  # words of 32 bits


@dataclass
class Stretch:
    """Where the classes lie, as it is used for some batches, and sums of where they lie in these:
    their mean is used for the next stretch, which is twice as long."""

    used: ClassPoints
    sums: ClassPoints  # `known`: in how many batches the class was, a number
    batches: Tensor  # of this stretch, and how many of them are left [2]

    @classmethod
    def begin(cls, used: ClassPoints, batches: int) -> Stretch:
        counts = torch.zeros(len(used.known), dtype=torch.int64)
        nothing = ClassPoints(torch.zeros_like(used.means), torch.zeros_like(used.spread), counts)
        return cls(used, nothing, torch.tensor([batches, batches]))

    def points(self, now: ClassPoints, most: int) -> ClassPoints:
        """Those for a batch with these points; it then counts for the next stretch, of at most so
        many batches. A class that has not been seen before is where it is now."""
        self.used = used = self.used.or_else(now)
        old = self.sums
        means = old.means + torch.where(now.known[:, None], now.means, 0)
        spread = old.spread + torch.where(now.known, now.spread, 0)
        self.sums = sums = ClassPoints(means, spread, old.known + now.known)
        self.batches = self.batches - torch.tensor([0, 1])
        if int(self.batches[1]) <= 0:
            count = sums.known.clamp(min=1)
            mean = ClassPoints(
                sums.means / count[:, None], sums.spread / count, sums.known > 0
            ).or_else(used)
            following = Stretch.begin(mean, min(2 * int(self.batches[0]), most))
            self.used, self.sums = following.used, following.sums
            self.batches = following.batches
        return used


PARTS = ("means", "spread", "known")


class Stretches:
    """Of each label holder here and receiver. Kept as declared state (state.py).

    The points of a batch itself would tell which of its rows are of the rarer class: of two
    classes, gradients leave on the line through the two points, which a row moves towards its own
    gradient. Over 60 epochs, a receiver that added up these lines told Credit Card's labels with
    AUC 0.88. A running mean of points would tell them as well, by the difference of two batches."""

    large, members = False, 0

    def __init__(self) -> None:
        self.by_member: list[dict[str, Stretch]] = []

    def take(self, member: int, receiver: str, now: ClassPoints, most: int) -> ClassPoints:
        """The points for a batch; see `Stretch.points`."""
        known = self.by_member[member]
        if receiver not in known:
            known[receiver] = Stretch.begin(now, 1)
        return known[receiver].points(now, most)

    def whole(self) -> list[Tensors]:
        return [
            {
                f"{receiver}/{name}": value.clone()
                for receiver, one in mine.items()
                for name, value in (
                    *((f"used.{part}", getattr(one.used, part)) for part in PARTS),
                    *((f"sums.{part}", getattr(one.sums, part)) for part in PARTS),
                    ("batches", one.batches),
                )
            }
            for mine in self.by_member
        ]

    def changes(self) -> list[Tensors]:
        return self.whole()

    def restore(self, found: Sequence[Tensors]) -> None:
        for mine, tensors in zip(self.by_member, found, strict=True):
            for receiver in {name.rpartition("/")[0] for name in tensors}:
                used, sums = (
                    ClassPoints(*(tensors[f"{receiver}/{which}.{part}"] for part in PARTS))
                    for which in ("used", "sums")
                )
                mine[receiver] = Stretch(used, sums, tensors[f"{receiver}/batches"])


class HiddenLabels:
    """The gate of channels by which column holders are told gradients of single rows."""

    def __init__(self, algorithm: Algorithm, hide: Hide) -> None:
        self.algorithm, self.hide = algorithm, hide
        self.secret = Value()  # of which the noise is made [label holders here, words]
        self.normal: list[Redrawn] = []  # the noise by label holder here, made when it is needed
        self.points = Stretches()
        self.share = torch.zeros(0)  # of the training rows, by class
        check_told(algorithm, "hide_labels")
        check_holders(algorithm, "hide_labels")

    def join(self, net: Network) -> None:
        """Draw the secret of which all noise is made, and declare it as state: after a crash the
        noise must be the same."""
        labels = self.algorithm.labels
        self.algorithm.keeps(net, "hiding_secret", labels, self.secret)
        self.algorithm.keeps(net, "class_stretches", labels, self.points)
        sources = [net.secrets(labels.parties[k], "hidden labels") for k in net.here(labels)]
        self.points.by_member = [{} for _ in sources]
        if sources:
            words = np.stack([source.words(SECRET) for source in sources])
            self.secret.set(torch.from_numpy(words.astype(np.int64)))

    def _redrawn(self) -> list[Redrawn]:
        """After `join`, because a restart brings the secret back."""
        task, training = self.algorithm.task, self.algorithm.training
        numbers = self.hide.numbers(task.classes)
        secrets = self.secret.value.cpu().numpy().astype("<u4")
        rows, epochs = task.rows["train"], training.usual
        return [Redrawn(secret.tobytes(), rows, numbers, epochs) for secret in secrets]

    @property
    def per_epoch(self) -> int:
        """Batches in which about all rows have been told."""
        algorithm = self.algorithm
        return -(-algorithm.task.rows["train"] // algorithm.training.batch_size)

    def begin(self, y: Tensor) -> None:
        """What is learnt, as the training begins: see `Algorithm.labels_to_learn`."""
        labels = _classes(y)
        known = labels[labels >= 0]  # below: a row of another label holder
        self.share = torch.bincount(known, minlength=self.algorithm.task.classes).double()

    def leave(
        self, net: Network, value: Tensor | Absent, channel: Channel, rows: int, where: Where
    ) -> tuple[Tensor | Absent, Where]:
        if is_absent(value) or net.phase != "training":
            return value, where
        batch, told = net.item, cast(Tensor, value)
        noisy, labels = told.clone(), _classes(batch.y)
        self.normal = self.normal or self._redrawn()
        holders = [self.algorithm.labels.parties[k] for k in net.here(self.algorithm.labels)]
        for member, at in enumerate(net.here(channel.src)):
            mine = holders.index(channel.src.parties[at])
            # The same for all receivers.
            normal = self.normal[mine].of(batch.epoch, batch.again)[batch.rows]
            for slot, each in enumerate(noisy[member] if told.dim() == 4 else [noisy[member]]):
                width = channel.width if isinstance(channel.width, int) else channel.width[slot]
                gradient = each[:, :width]  # the rest is padding
                points = ClassPoints.of(gradient, labels, self.algorithm.task.classes)
                receiver = f"{channel.kind} {channel.dst.parties[0]} {slot}"
                points = self.points.take(mine, receiver, points, self.per_epoch)
                left = hidden(self.hide, gradient, labels, points, self.share, normal)
                gradient.copy_(left)
        return noisy, where


def _classes(y: Tensor) -> Tensor:
    """The classes that are learnt: with `label_privacy`, the likeliest ones. [rows]"""
    return y if y.dim() == 1 else y.argmax(1)
