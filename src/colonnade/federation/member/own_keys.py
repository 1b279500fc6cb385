"""The keys of a party's own rows, and the order of rows that follows from an alignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from colonnade.common.text import nearest
from colonnade.data.preprocessing import Column
from colonnade.data.rows import Indices
from colonnade.data.series import EXACT
from colonnade.errors import InputError
from colonnade.federation.agreement.alignment_file import AGAIN, Alignment, digest_of
from colonnade.federation.agreement.specs import RowsSpec
from colonnade.privacy.alignment.keys import DuplicateKeys, KeyColumn, Step, key_column, normalised


@dataclass(frozen=True)
class KnownKeys:
    """The keys of the common rows at one party. Parties speak of a common row by its number, from
    1 in the common order, so that nobody is told a key."""

    keys: tuple[str, ...]  # normalised; "" for a row that this party lacks
    written: tuple[str, ...]  # as this party's file has them
    steps: tuple[Step, ...]

    @cached_property
    def _numbers(self) -> dict[str, str]:
        return {key: str(number) for number, key in enumerate(self.keys, 1) if key}

    def numbers(self, asked: Sequence[str]) -> list[str]:
        """The numbers of rows that a person names by their keys; "" for one that is not common."""
        return [self._numbers.get(normalised(key, self.steps), "") for key in asked]


def read_keys(column: Column, path: Path, name: str, rows: RowsSpec) -> KeyColumn:
    """The keys in a column of this party's file."""
    try:
        found = key_column(_texts(column, path, name), rows.steps)
    except DuplicateKeys as error:
        done = ", ".join(rows.steps) or "nothing"
        raise InputError(
            f"{path}: column {name!r}: {error}, after normalisation ({done}). A row is one entity, "
            "so keep one row of each key."
        ) from None
    if not found.keys:
        raise InputError(f"{path}: column {name!r} has no key in any row; rows are matched by it.")
    if rows.most_keys is not None and len(found.keys) > rows.most_keys:
        raise InputError(
            f"{path}: column {name!r} has {len(found.keys):,} keys, but in the federation file "
            f"rows.most_keys = {rows.most_keys:,}."
        )
    if rows.keys == "numbers" and found.kind != "numbers":
        raise InputError(
            f"{path}: column {name!r} holds keys that are no whole numbers, but in the federation "
            'file rows.keys = "numbers".'
        )
    return found


def _texts(column: Column, path: Path, name: str) -> list[str]:
    """As text, so that a number in one file is the same number in another kind of file."""
    array = np.asarray(column)
    if array.dtype.kind != "f":
        return [str(one) for one in array.tolist()]
    numbers = array.astype(np.float64)
    known = ~np.isnan(numbers)
    bad = known & ((numbers != np.round(numbers)) | (np.abs(numbers) >= EXACT))
    if bad.any():
        raise InputError(
            f"{path}: column {name!r}, data row {int(np.argmax(bad)) + 1} is no key; expected text "
            f"or whole numbers, and below 2^53 those that are kept as {array.dtype}; CAST others "
            "to text or BIGINT with data.query."
        )
    return [str(int(one)) if there else "" for one, there in zip(numbers, known, strict=True)]


def known_keys(found: KeyColumn, alignment: Alignment, steps: tuple[Step, ...]) -> KnownKeys:
    place = {row: i for i, row in enumerate(found.rows.tolist())}
    common = [place.get(row) for row in alignment.rows.tolist()]
    keys, written = (
        tuple("" if i is None else texts[i] for i in common)
        for texts in (found.keys, found.written)
    )
    return KnownKeys(keys, written, steps)


def digest_of_used(found: KeyColumn, common: Indices, extra: int, name: str) -> str:
    """Of the keys, and the places in the file, of the rows that an alignment uses: the common ones
    and `extra` beside. Rows that are added behind them do not change it."""
    used = np.isin(found.rows, np.concatenate([common, _beside(found, common, extra)]))
    keys = [key for key, one in zip(found.keys, used.tolist(), strict=True) if one]
    return digest_of(keys, found.rows[used], name)


def check_unchanged(found: KeyColumn, alignment: Alignment, path: Path) -> None:
    facts = alignment.facts
    wanted = [(facts.extra, facts.name, facts.keys), *((0, a.name, a.keys) for a in facts.added)]
    for rows, (extra, name, keys) in zip(alignment.parts, wanted, strict=True):
        if digest_of_used(found, rows, extra, name) != keys:
            raise InputError(
                f"{path}: its keys have changed since its rows were matched; put back those of "
                f"rows in use, or {AGAIN}"
            )


def outside(found: KeyColumn, rows: Indices) -> KeyColumn:
    """The keys of a party's other rows."""
    other = ~np.isin(found.rows, rows)
    return replace(
        found,
        keys=tuple(compress(found.keys, other)),
        rows=found.rows[other],
        written=tuple(compress(found.written, other)),
    )


def has_label(column: Column) -> NDArray[np.bool_]:
    """Which rows have a label: a cell that is not empty."""
    array = np.asarray(column)
    if array.dtype.kind == "f":
        return ~np.isnan(array.astype(np.float64))
    return np.array([bool(str(one).strip()) for one in array.tolist()], dtype=bool)


def beside(found: KeyColumn, alignment: Alignment) -> Indices:
    """Rows of this party that are not common ones, as many as every column holder has."""
    return _beside(found, alignment.parts[0], alignment.facts.extra)


def _beside(found: KeyColumn, common: Indices, extra: int) -> Indices:
    return np.setdiff1d(found.rows, common)[:extra]


def check_there(columns: Mapping[str, Column], name: str | None, path: Path, key: str) -> None:
    if name is not None and name not in columns:
        raise InputError(
            f"{path}: no column {name!r}, which {key} names{nearest(name, list(columns))}."
        )
