"""Features that stay in a file: float32 rows that are read when they are asked for.

A table that does not fit into memory is prepared in chunks into such a file. Whoever takes a batch
gets a tensor of these rows. The file is read and not mapped: a system that keeps files in large
pages maps two megabytes around a row of one kilobyte, so that a batch of random rows would count as
hundreds of megabytes of resident memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.errors import InputError


class FeatureFile:
    """A file of float32 numbers, [rows, width]. It stays open while it is used."""

    def __init__(self, path: Path, rows: int, width: int) -> None:
        self.path, self.shape = path, (rows, width)
        self._file = path.open("rb", buffering=0)

    def take(self, places: NDArray[np.int64]) -> Tensor:
        size, file = 4 * self.shape[1], self._file.fileno()
        none = bytes(size)
        data = bytearray().join(
            none if place < 0 else os.pread(file, size, size * place) for place in places.tolist()
        )
        if len(data) != size * len(places):
            raise InputError(f"{self.path}: is shorter than it was; start over with --fresh.")
        found = np.frombuffer(data, dtype=np.float32)
        return torch.from_numpy(found.reshape(len(places), self.shape[1]))


class StoredRows:
    """Some rows of a file, in some order: [rows, width]. The place -1 is a row of zeros."""

    def __init__(self, file: FeatureFile, places: NDArray[np.int64]) -> None:
        self.file, self.places = file, places

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.places), self.file.shape[1]

    def __len__(self) -> int:
        return len(self.places)

    def part(self, chosen: NDArray[np.int64]) -> StoredRows:
        return StoredRows(self.file, self.places[chosen])

    def __getitem__(self, rows: Tensor) -> Tensor:
        return self.file.take(self.places[rows.numpy()])


class StoredStack:
    """The same as [1, rows, width], padded with zeros: the columns of the one party that is here.
    `index_select` reads the rows it is asked for; anything else that a tensor can do reads all."""

    def __init__(self, rows: StoredRows, width: int) -> None:
        self.rows, self.width = rows, width

    @property
    def shape(self) -> torch.Size:
        return torch.Size((1, len(self.rows), self.width))

    def index_select(self, axis: int, rows: Tensor) -> Tensor:
        if axis != 1:
            return self.whole().index_select(axis, rows)
        found = self.rows[rows]
        if found.shape[1] < self.width:
            found = torch.nn.functional.pad(found, (0, self.width - found.shape[1]))
        return found[None]

    def whole(self) -> Tensor:
        return self.index_select(1, torch.arange(len(self.rows)))

    def __getitem__(self, key: Any) -> Tensor:
        return self.whole()[key]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.whole(), name)

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        plain = [one.whole() if isinstance(one, StoredStack) else one for one in args]
        return function(*plain, **(kwargs or {}))


def write_features(path: Path, chunks: Iterable[NDArray[np.float32]]) -> int:
    """Write chunks of rows one after the other; returns how many rows they are."""
    rows = 0
    with path.open("wb") as file:
        for chunk in chunks:
            chunk.tofile(file)
            rows += len(chunk)
    return rows
