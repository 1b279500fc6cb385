"""A raw table: named columns of text, numbers or dates, before anything is done with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from colonnade.data.preprocessing import cells
from colonnade.data.preprocessing.cells import Column
from colonnade.data.preprocessing.preprocessing import Preprocessing


@dataclass(frozen=True, eq=False)
class Table:
    """Some columns of a file. `declared`: what to do with them, where the user says it."""

    columns: Mapping[str, Column]
    source: str  # for errors
    declared: Mapping[str, str] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        return len(next(iter(self.columns.values()))), len(self.columns)

    def take(self, numbers: Sequence[int]) -> Table:
        """Some of the columns."""
        names = list(self.columns)
        chosen = {names[i]: self.columns[names[i]] for i in numbers}
        declared = {name: how for name, how in self.declared.items() if name in chosen}
        return replace(self, columns=chosen, declared=declared)

    def __getitem__(self, rows: NDArray[np.int64]) -> dict[str, Column]:
        return {name: cells.take(values, rows) for name, values in self.columns.items()}

    def fit(self, rows: NDArray[np.int64]) -> Preprocessing:
        return Preprocessing.fit(self.columns, rows, self.source, self.declared)
