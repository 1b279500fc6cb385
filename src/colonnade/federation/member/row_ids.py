"""The ids of a party's rows, in little memory: a table may have millions of rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.common.texts import Texts
from colonnade.data.preprocessing import Column
from colonnade.data.raw import COUNTING, Array
from colonnade.data.rows import Indices
from colonnade.data.series import EXACT
from colonnade.data.table_files import ParquetColumns
from colonnade.errors import InputError

MANY = 10**6  # rows whose numbers are not kept as texts
PIECE = 2**16  # rows that are Python objects at a time


class RowIds(Sequence[str]):
    """Ids of rows: those of the aligned ones first, in ascending order. `later`: the places of the
    others, in the order of their ids."""

    def __init__(self, ids: Texts, aligned: int, later: Indices) -> None:
        self.ids, self.aligned, self.later = ids, aligned, later

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, place: Any) -> Any:
        return self.ids[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def place(self, one: str) -> int:
        """Where the row with this id is; -1: nowhere."""
        for places in (range(self.aligned), self.later):
            found = bisect_left(places, one, key=self.ids.__getitem__)
            if found < len(places) and self.ids[int(places[found])] == one:
                return int(places[found])
        return -1


class RowNumbers(Sequence[str]):
    """Ids of rows that have none: their numbers from 1. They take no memory."""

    def __init__(self, rows: range) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: Any) -> Any:
        found = self.rows[place]
        return RowNumbers(found) if isinstance(found, range) else str(found)

    def place(self, one: str) -> int:
        number = int(one) if one.isascii() and one.isdecimal() else 0
        return self.rows.index(number) if number in self.rows and str(number) == one else -1


class Places(Mapping[str, int]):
    """Where the rows with these ids are. `held`: which rows there are; None: all."""

    def __init__(self, ids: RowIds | RowNumbers, held: Sequence[bool] | None) -> None:
        self.ids, self.held = ids, held

    def __getitem__(self, one: str) -> int:
        place = self.ids.place(one)
        if place < 0 or (self.held is not None and not self.held[place]):
            raise KeyError(one)
        return place

    def __iter__(self) -> Iterator[str]:
        return (one for one in self.ids if one in self)

    def __len__(self) -> int:
        return len(self.ids) if self.held is None else sum(self.held)


def places_of(ids: Sequence[str], held: Sequence[bool] | None) -> Mapping[str, int]:
    if isinstance(ids, RowIds | RowNumbers):
        return Places(ids, held)
    return {one: i for i, one in enumerate(ids) if held is None or held[i]}


def numbered(count: int) -> Sequence[str]:
    few = tuple(str(number) for number in range(1, min(count, MANY) + 1))
    return few if count <= MANY else RowNumbers(range(1, count + 1))


def read_ids(
    columns: Mapping[str, Column], path: Path, column: str, aligned: int
) -> tuple[Indices, RowIds]:
    """The order of the rows, the `aligned` first ones by their ids, and the ids in this order."""
    ids = Texts.of(_texts(columns, path, column))
    by_id, repeated = ids.order()
    if not all(ids.lengths):
        row = int(np.argmin(ids.lengths)) + 1
        raise InputError(f"{path}: column {column!r}, data row {row} has no id ({COUNTING}).")
    if repeated is not None:
        raise InputError(
            f"{path}: column {column!r} holds the id {ids[repeated]!r} twice; a row is one entity,"
            " so keep one of the rows."
        )
    first = by_id < aligned
    order = np.concatenate([by_id[first], np.arange(aligned, len(ids))])
    return order, RowIds(ids.take(order), aligned, by_id[~first])


def _texts(columns: Mapping[str, Column], path: Path, column: str) -> Iterator[str]:
    """As text, so that a number in one file is the same number in another kind of file."""
    row = 0
    for piece in _pieces(columns, column):
        cells = np.asarray(piece)
        yield from (str(one).strip() for one in _whole(cells, path, column, row))
        row += len(cells)


def _pieces(columns: Mapping[str, Column], column: str) -> Iterator[Column]:
    if isinstance(columns, ParquetColumns):
        yield from (piece[column] for piece in columns.chunks([column]))
        return
    values = columns[column]
    yield from (values[start : start + PIECE] for start in range(0, len(values), PIECE))


def _whole(cells: Array, path: Path, column: str, before: int) -> Sequence[object]:
    """`before`: so many rows of the file come before these."""
    if cells.dtype.kind != "f":
        return cells.tolist()
    numbers = cells.astype(np.float64)
    bad = ~np.isfinite(numbers) | (numbers != np.round(numbers)) | (np.abs(numbers) >= EXACT)
    if bad.any():
        place = int(np.argmax(bad))
        raise InputError(
            f"{path}: column {column!r}, data row {before + place + 1} ({cells[place]}; "
            f"{COUNTING}) is no id; expected text or whole numbers, and below 2^53 those that are "
            f"kept as {cells.dtype}; CAST others to text or BIGINT with data.query."
        )
    return numbers.astype(np.int64).tolist()
