"""Rows cut into segments that are computed on together (FedVS).

A code with K segments encodes row r of all K segments in one coded row. A batch of coded rows
therefore stands for K times as many rows of the data. The last segments may be padded; padding is
never part of a batch's rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from colonnade.learning.task import Batch, Batches, Part


@dataclass(frozen=True)
class Segments:
    """`rows` rows as `count` segments of equal length."""

    rows: int
    count: int

    @property
    def length(self) -> int:
        """Rows of a segment, which is the number of coded rows."""
        return -(-self.rows // self.count)

    def cut(self, x: Tensor) -> Tensor:
        """[members, rows, width] → [segments, members, length, width], zeros as padding."""
        padded = F.pad(x, (0, 0, 0, self.count * self.length - self.rows))
        return padded.unflatten(1, (self.count, self.length)).transpose(0, 1)

    def rows_behind(self, coded: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of the data that coded rows stand for, segment by segment, without padding; and
        the positions of these rows among all of them, padding included."""
        starts = torch.arange(self.count)[:, None] * self.length
        rows = (starts + coded).flatten()
        places = (rows < self.rows).nonzero()[:, 0]
        return rows[places], places


@dataclass
class CodedBatch(Batch):
    """A batch of coded rows: `rows` are the rows of the data that they stand for."""

    coded: Tensor = field(default_factory=lambda: torch.arange(0))
    places: Tensor = field(default_factory=lambda: torch.arange(0))  # by `Segments.rows_behind`


@dataclass(frozen=True)
class CodedBatches(Batches):
    """Coded rows for each round, drawn from the shared seed. `rows` and `size` are coded ones."""

    segments: Segments = field(default_factory=lambda: Segments(0, 1))

    def __getitem__(self, round: int) -> CodedBatch:
        drawn = super().__getitem__(round)
        rows, places = self.segments.rows_behind(drawn.rows)
        return CodedBatch(rows, drawn.epoch, drawn.last, coded=drawn.rows, places=places)


@dataclass(frozen=True)
class CodedInOrder:
    """All coded rows of a part once, in order, for prediction."""

    part: Part
    segments: Segments
    size: int

    def __len__(self) -> int:
        return -(-self.segments.length // self.size)

    def __getitem__(self, round: int) -> CodedBatch:
        end = min((round + 1) * self.size, self.segments.length)
        coded = torch.arange(round * self.size, end)
        rows, places = self.segments.rows_behind(coded)
        return CodedBatch(rows, part=self.part, coded=coded, places=places)
