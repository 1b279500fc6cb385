"""`hide_labels`: noise on gradients that is shaped to hide the labels of single rows.

The gradients of one class lie around a point of their own; the differences between these points
tell the labels. The label holder adds Gaussian noise that varies exactly as these points do: its
covariance is `hide_labels` times that between the classes, in each batch. So the noise is where the
labels are told, and nowhere else. For two classes this is the shape of Marvell (Li et al., 2022,
"Label leakage and protection in two-party split learning"), which also gives the two classes
different amounts. The noise of a row is drawn once: if it were drawn anew in each epoch, or for
each receiver, a receiver that averages, or two that join, would hear less and less of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from colonnade.errors import InputError
from colonnade.learning.declare import Exchange, declared
from colonnade.learning.state import Value
from colonnade.network import Network, is_absent
from colonnade.network.absent import Absent
from colonnade.network.channel import Channel, Where
from colonnade.privacy.noise import gaussian

if TYPE_CHECKING:
    from colonnade.learning.algorithm import Algorithm


class HiddenLabels:
    """The gate of channels by which column holders are told gradients of single rows."""

    def __init__(self, algorithm: Algorithm, strength: float) -> None:
        self.algorithm, self.strength = algorithm, strength
        self.drawn = Value(large=True)  # [label holders here, training rows, classes]
        kind = type(algorithm)
        if not any(exchange.tells_labels for exchange in declared(kind, Exchange)):
            raise InputError(
                f"hide_labels: {kind.name} tells nobody gradients of single rows; leave it out"
            )
        if not algorithm.task.classes:
            raise InputError("hide_labels: hides classes, but the label is a number; leave it out")

    def join(self, net: Network) -> None:
        """Draw the noise of each training row, and declare it as state: after a crash it must be
        the same."""
        labels, task = self.algorithm.labels, self.algorithm.task
        self.algorithm.keeps(net, "hidden_labels", labels, self.drawn)
        sources = [net.secrets(labels.parties[k], "hidden labels") for k in net.here(labels)]
        shape = task.rows["train"], task.classes
        if sources:
            normal = torch.stack([gaussian(source, *shape) for source in sources])
            self.drawn.set(normal.to(torch.get_default_dtype()))

    def leave(
        self, net: Network, value: Tensor | Absent, channel: Channel, rows: int, where: Where
    ) -> tuple[Tensor | Absent, Where]:
        if is_absent(value) or net.phase != "training":
            return value, where
        batch, told = net.item, cast(Tensor, value)
        noisy = told.clone()
        holders = [self.algorithm.labels.parties[k] for k in net.here(self.algorithm.labels)]
        for member, at in enumerate(net.here(channel.src)):
            mine = holders.index(channel.src.parties[at])
            normal = self.drawn.value[mine, batch.rows]  # the same in all epochs, for all receivers
            for each in noisy[member] if told.dim() == 4 else [noisy[member]]:
                each += self.strength**0.5 * shaped_noise(each, batch.y, normal)
        return noisy, where


def shaped_noise(gradient: Tensor, labels: Tensor, normal: Tensor) -> Tensor:
    """Gaussian noise whose covariance is that of the class means of the gradients. gradient [rows,
    width], labels [rows], normal [rows, classes] → [rows, width]"""
    members = F.one_hot(labels, normal.shape[1]).to(gradient.dtype)  # [rows, classes]
    count = members.sum(0)
    means = members.T @ gradient / count.clamp(min=1)[:, None]  # [classes, width]
    share = count / len(labels)
    return normal.to(gradient.dtype) @ (share.sqrt()[:, None] * (means - gradient.mean(0)))
