"""What an algorithm is given: the public facts of the task, and the data that is here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.common.devices import to_device
from colonnade.common.metric_names import Weights
from colonnade.common.seeds import seed_of, torch_stream
from colonnade.data.partition import Rows, VerticalData
from colonnade.data.stored import StoredRows, StoredStack
from colonnade.learning.goal import Goal, goal_of
from colonnade.network import ABSENT, Delays, Group, Network, is_absent


@dataclass(frozen=True)
class Task:
    """What every party knows: the column holders and the widths of their columns, the numbers of
    rows and classes, the deciding metric, the seed."""

    clients: tuple[str, ...]
    widths: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    classes: int  # 0: the label is a number
    rows: dict[str, int]  # train, validation, test, extra (per client)
    seed: int
    # Parties of the groups that hold no columns, by group; other groups have the usual names.
    players: dict[str, tuple[str, ...]] = field(default_factory=dict)
    metric: str | None = None  # that the user chose to decide; None: the usual one of the goal
    weights: Weights | None = None  # of classes
    delays: Delays = field(default_factory=Delays)  # as configured for a simulation
    partial: bool = False  # column holders may lack some of the rows

    @cached_property
    def goal(self) -> Goal:
        """The goal, which gives loss, outputs and metrics."""
        return goal_of(self.classes, self.metric, self.weights)

    @property
    def outputs(self) -> int:
        """Width of a head's output."""
        return self.goal.outputs

    @classmethod
    def of(cls, data: VerticalData, seed: int, delays: Delays | None = None) -> Task:
        rows = {name: len(getattr(data, name)) for name in ("train", "validation", "test")}
        rows["extra"] = min((len(x) for x in data.extra), default=0)
        return cls(
            data.clients,
            data.widths,
            data.shapes,
            data.classes,
            rows,
            seed,
            metric=data.metric,
            weights=data.weights,
            delays=delays or Delays(),
            partial=data.partial,
        )


@dataclass
class Batch:
    """Some rows of a part of the data; columns and labels that are not here are absent."""

    rows: Tensor  # indices
    epoch: int = 0
    last: bool = True  # of its epoch
    part: Part | None = None
    loss: Any = 0.0  # for the training curve, by member of a group that learns with labels
    batches: int = 1  # whose losses are added up in `loss`
    again: int = 0  # how often all rows have been gone over before, in this epoch

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def x(self) -> Any:
        """[column holders here, rows, width] or absent"""
        assert self.part is not None
        return self.part.x.index_select(1, self.rows)

    @property
    def y(self) -> Any:
        """[rows] where the labels are, else absent. Number labels of training rows are
        standardised."""
        assert self.part is not None
        return self.part.y.index_select(0, self.rows)

    @property
    def held(self) -> Tensor | None:
        """Which of the rows each column holder has, as far as it is known here; None: all. [column
        holders, rows] bool"""
        known = None if self.part is None else self.part.held
        return None if known is None else known.index_select(1, self.rows)


@dataclass(frozen=True)
class Batches:
    """Rows for each round, drawn from the shared seed, so that a party that was away knows them,
    too."""

    rows: int
    size: int
    epochs: int
    seed: int

    @cached_property
    def per_epoch(self) -> int:
        return -(-self.rows // self.size)

    def __len__(self) -> int:
        return self.epochs * self.per_epoch

    def __getitem__(self, round: int) -> Batch:
        epoch, i = divmod(round, self.per_epoch)
        rows = self._order(epoch)[i * self.size : (i + 1) * self.size]
        return Batch(rows, epoch, i == self.per_epoch - 1)

    def _order(self, epoch: int) -> Tensor:
        known = self.__dict__.get("_known")
        if known is None or known[0] != epoch:
            stream = torch_stream(self.seed, "batches", epoch)
            known = (epoch, to_device(torch.randperm(self.rows, generator=stream, device="cpu")))
            self.__dict__["_known"] = known  # a cache: the frozen fields do not change
        return known[1]


@dataclass(frozen=True)
class LocalBatch:
    rows: Tensor
    epoch: int
    aligned: bool  # True: rows that every client has; False: each client's own rows


@dataclass(frozen=True)
class LocalBatches:
    """Batches with which clients learn alone: in each epoch those of aligned rows and those of the
    clients' own rows, in a shuffled order."""

    aligned: Batches
    own: Batches | None
    seed: int

    @classmethod
    def of(cls, task: Task, size: int, epochs: int) -> LocalBatches:
        rows, own = task.rows["train"], task.rows["extra"]
        aligned = Batches(rows, min(size, rows), epochs, seed_of(task.seed, "local"))
        others = Batches(own, size, epochs, seed_of(task.seed, "own")) if own else None
        return cls(aligned, others, task.seed)

    @property
    def per_epoch(self) -> int:
        return self.aligned.per_epoch + (self.own.per_epoch if self.own else 0)

    def __len__(self) -> int:
        return self.aligned.epochs * self.per_epoch

    def __getitem__(self, round: int) -> LocalBatch:
        epoch, i = divmod(round, self.per_epoch)
        if self.own is None:
            return LocalBatch(self.aligned[round].rows, epoch, True)
        stream = torch_stream(self.seed, "order", epoch)
        order = torch.randperm(self.per_epoch, generator=stream, device="cpu")
        k = int(order[i])
        if k < self.aligned.per_epoch:
            return LocalBatch(self.aligned[epoch * self.aligned.per_epoch + k].rows, epoch, True)
        k += epoch * self.own.per_epoch - self.aligned.per_epoch
        return LocalBatch(self.own[k].rows, epoch, False)


@dataclass(frozen=True)
class Part:
    """One part of the data (train, validation, test or extra); what is not here is absent."""

    x: Any  # [column holders here, rows, width] or absent
    y: Any  # [rows] where the labels are, else absent
    rows: int
    asker: int = 0  # which of the label holders wants to know, where there are several
    held: Tensor | None = None  # see `Batch.held`

    def only(self, rows: Tensor) -> Part:
        """Some of the rows, as far as they are here."""
        x = self.x if is_absent(self.x) else self.x.index_select(1, rows)
        y = self.y if is_absent(self.y) else self.y.index_select(0, rows)
        held = None if self.held is None else self.held.index_select(1, rows)
        return Part(x, y, len(rows), self.asker, held)

    def in_order(self, size: int) -> InOrder:
        return InOrder(self, size)


@dataclass(frozen=True)
class InOrder:
    """All rows of a part once, in order, for prediction."""

    part: Part
    size: int

    def __len__(self) -> int:
        return -(-self.part.rows // self.size)

    def __getitem__(self, round: int) -> Batch:
        end = min((round + 1) * self.size, self.part.rows)
        return Batch(torch.arange(round * self.size, end), part=self.part)


@dataclass(frozen=True)
class Holding:
    """The data of the parties that run here."""

    train: Part
    validation: Part
    test: Part
    extra: Part  # rows of each client's own, without labels

    def alone(self, batch: LocalBatch) -> tuple[Any, Tensor]:
        """The content of a local batch: columns [column holders here, rows, width], and row numbers
        that differ between all aligned and own rows."""
        if batch.aligned:
            return self.train.x.index_select(1, batch.rows), batch.rows
        return self.extra.x.index_select(1, batch.rows), self.train.rows + batch.rows

    @classmethod
    def at(
        cls,
        net: Network,
        data: VerticalData,
        columns: Group,
        labels: Group,
        *,
        pooled: bool = False,
    ) -> Holding:
        """The data of the members that run here. `pooled`: one member holds all columns."""
        parts = (data.train, data.validation, data.test)
        extra = Part(ABSENT, ABSENT, min((len(x) for x in data.extra), default=0))
        if extra.rows and net.here(columns) and not pooled:
            mine = [_first(data.extra[i], extra.rows) for i in net.here(columns)]
            extra = Part(_stack(mine, max(data.widths)), ABSENT, extra.rows)
        train, validation, test = (_part(net, rows, columns, labels, pooled) for rows in parts)
        return cls(train, validation, test, extra)


def _part(net: Network, rows: Rows, columns: Group, labels: Group, pooled: bool) -> Part:
    here = net.here(columns)
    width = max(x.shape[1] for x in rows.x)
    mine = [torch.cat(rows.x, 1)] if pooled and here else [rows.x[i] for i in here]
    x = _stack(mine, None if pooled else width) if mine else ABSENT
    y = to_device(rows.y) if net.here(labels) else ABSENT
    return Part(x, y, len(rows), held=_known_held(net, rows.held, columns, labels))


def _known_held(net: Network, held: Tensor | None, columns: Group, labels: Group) -> Tensor | None:
    """A label holder knows which rows each column holder has, a column holder those of its own."""
    if held is None or net.here(labels):
        return held if held is None else to_device(held)
    here = list(net.here(columns))
    known = torch.ones_like(held)
    known[here] = held[here]
    return to_device(known)


def _first(x: Tensor | StoredRows, count: int) -> Tensor | StoredRows:
    return x.part(np.arange(count)) if isinstance(x, StoredRows) else x[:count]


def _stack(parts: Sequence[Tensor | StoredRows], width: int | None) -> Any:
    """The columns of the parties that are here; those of a large table stay in its file."""
    if len(parts) == 1 and isinstance(parts[0], StoredRows):
        return StoredStack(parts[0], width or parts[0].shape[1])
    return pad_stack(parts, width)  # pyright: ignore


def pad_stack(parts: Sequence[Tensor], width: int | None = None) -> Tensor:
    """[parts, rows, width], narrower parts padded with zeros."""
    width = width or max(x.shape[1] for x in parts)
    stacked = torch.zeros(len(parts), parts[0].shape[0], width)
    for i, x in enumerate(parts):
        stacked[i, :, : x.shape[1]] = x
    return stacked
