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
        self._epochs: dict[int, Sides] = {}
        self._batches = 0

    def add(
        self, epoch: int, rows: NDArray[np.int64], told: Tensor, came: NDArray[np.bool_]
    ) -> None:
        """told [receivers, slots, rows, numbers]; of one receiver: all were sent the same. came
        [receivers, slots]"""
        told = torch.nan_to_num(told.detach().float())
        side = (told @ self._direction(told)[..., None])[..., 0]
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

    def _direction(self, told: Tensor) -> Tensor:
        """In which the rows of a batch differ most, [receivers, slots, numbers]: from that of the
        batch before, so that it keeps its sign."""
        before = self._axes
        if before is None or before.shape != (*told.shape[:2], told.shape[3]):
            before = torch.linalg.eigh(told.mT @ told).eigenvectors[..., -1]
        products = told.mT @ told
        size = products.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
        axes = before[..., None]
        for _ in range(STEPS):
            axes = (products / size.clamp(min=1e-30)) @ axes
        axes = axes[..., 0]
        length = axes.norm(dim=-1, keepdim=True)
        self._axes = torch.where(length > 0, axes / length, before)  # 0: a batch of zeros
        return self._axes

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
            sides = Sides(*stacked)
            if ((sides.batches >= 0).any(0)).sum() > 1:
                yield sides
