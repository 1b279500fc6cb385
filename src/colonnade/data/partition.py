"""Vertically partitioned data: the same rows, different columns."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Rows:
    """Aligned, labelled rows. Row r of every client and y[r] speak of the same entity."""

    x: tuple[Tensor, ...]  # one [rows, width_i] float32 per client
    y: Tensor  # [rows] int64, 0..classes-1

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class VerticalData:
    """A data set split over clients by columns, already scaled, ready to train on."""

    name: str
    clients: tuple[str, ...]  # names of the column holders, e.g. "client0" or "lab"
    classes: int
    shapes: tuple[tuple[int, ...], ...]  # per client: (width,) or (channels, height, width) of its image part
    train: Rows
    validation: Rows
    test: Rows
    extra: tuple[Tensor, ...] = ()  # per client: unlabelled rows that only this client has
    notes: tuple[str, ...] = field(default=())  # e.g. "subset of the official training rows"

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(x.shape[1] for x in self.train.x)
