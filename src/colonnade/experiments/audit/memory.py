"""What attackers with a memory keep of a training: of each row and epoch, the side of the gradient
along the direction in which those of its batch differ most, and its length beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

REMEMBERED = 20_000  # rows: how a batch is scaled is seen from all of its rows, not from a few
STEPS = 2  # of power iteration, from the direction of the batch before


@dataclass
class Sides:
    """Of rows in one epoch, at each receiver and slot of a lane. [receivers, slots, rows]"""

    along: NDArray[np.float32]
    units: NDArray[np.float32]  # of gradients of length 1
    beside: NDArray[np.float32]  # the length of what a gradient has in other directions
    batches: NDArray[np.int64]  # the number of the batch; -1 where nothing came
    # By batch; of one receiver and slot only: [batches, numbers].
    lines: NDArray[np.float32] | None = None  # the direction in which its gradients differ most
    feet: NDArray[np.float32] | None = None  # their mean, without its part in that direction

    @classmethod
    def none(cls, *shape: int) -> Sides:
        along, units, beside = (np.zeros(shape, np.float32) for _ in range(3))
        return cls(along, units, beside, np.full(shape, -1))


class Memory:
    """Of messages of one kind from one group to another."""

    def __init__(self, order: NDArray[np.int64]) -> None:
        """`order`: all training rows, those that are attacked first."""
        self.rows = min(len(order), REMEMBERED)
        self._place = np.full(len(order), -1)
        self._place[order[: self.rows]] = np.arange(self.rows)
        self._axes: Tensor | None = None  # the direction of the newest batch
        self._centred: Tensor | None = None  # the same of what differs from its mean
        self._lines: list[tuple[Tensor, Tensor]] = []
        self._epochs: dict[int, Sides] = {}
        self._batches = 0

    def add(
        self, epoch: int, rows: NDArray[np.int64], told: Tensor, came: NDArray[np.bool_]
    ) -> None:
        """told [receivers, slots, rows, numbers]; of one receiver: all were sent the same. came
        [receivers, slots]"""
        told = torch.nan_to_num(told.detach().float())
        self._axes = axes = _direction(told, self._axes)
        side = (told @ axes[..., None])[..., 0]
        self._lines.append(self._line(told))
        length = told.norm(dim=-1)
        units = (side / length.clamp(min=1e-30)).numpy()
        # Where little is left, the difference of two squares is rounding.
        beside = (length**2 - side**2 - 1e-6 * length**2).clamp(min=0).sqrt().numpy()
        sides = side.numpy()
        if epoch not in self._epochs:
            self._epochs[epoch] = Sides.none(*came.shape, self.rows)
        known = np.nonzero(self._place[rows] >= 0)[0]
        at, here = self._place[rows[known]], self._epochs[epoch]
        for k, j in np.argwhere(came):
            one = min(int(k), len(sides) - 1)
            here.along[k, j, at] = sides[one, j, known]
            here.units[k, j, at] = units[one, j, known]
            here.beside[k, j, at] = beside[one, j, known]
            here.batches[k, j, at] = self._batches
        self._batches += 1

    def _line(self, told: Tensor) -> tuple[Tensor, Tensor]:
        mean = told.mean(2, keepdim=True)
        centred = told - mean
        self._centred = line = _direction(centred, self._centred)
        foot = mean[..., 0, :] - (mean @ line[..., None])[..., 0] * line
        spread = (centred @ line[..., None])[..., 0].std(-1, keepdim=True)
        return line, foot / spread.clamp(min=1e-30)

    def _of_batches(self, part: int, receiver: int, slot: int) -> NDArray[np.float32]:
        """[batches, numbers]"""
        each = (two[part] for two in self._lines)
        return np.stack([one[min(receiver, len(one) - 1), slot].numpy() for one in each])

    def of(self, receiver: int) -> Iterator[Sides]:
        """From each sender of whom there is something in more epochs than one. Each [rows,
        epochs]"""
        if len(self._epochs) < 2:
            return
        pages = [self._epochs[epoch] for epoch in sorted(self._epochs)]
        for j in range(pages[0].along.shape[1]):
            stacked = [
                np.stack([getattr(page, name)[receiver, j] for page in pages], 1)
                for name in ("along", "units", "beside", "batches")
            ]
            along, units, beside, batches = stacked
            lines, feet = (self._of_batches(part, receiver, j) for part in range(2))
            sides = Sides(along, units, beside, batches, lines, feet)
            if ((sides.batches >= 0).any(0)).sum() > 1:
                yield sides


def _direction(told: Tensor, before: Tensor | None) -> Tensor:
    """In which the rows of a batch differ most, [receivers, slots, numbers]: from that of the batch
    before, so that it keeps its sign."""
    products = told.mT @ told
    if before is not None and before.shape == (*told.shape[:2], told.shape[3]):
        start = before
    else:
        start = _main_axis(products)
    size = products.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    axes = start[..., None]
    for _ in range(STEPS):
        axes = (products / size.clamp(min=1e-30)) @ axes
    axes = axes[..., 0]
    length = axes.norm(dim=-1, keepdim=True)
    return torch.where(length > 0, axes / length, start)  # 0: a batch of zeros


def _main_axis(products: Tensor) -> Tensor:
    vectors: Tensor = torch.linalg.eigh(products)[1]
    return vectors[..., -1]
