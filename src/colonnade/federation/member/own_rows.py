"""Which rows of a party's file take part, in which order, and what other parties call them.

Either the file lists the aligned rows first (`rows.aligned`), or they were matched (`rows.match`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from colonnade.data.raw import COUNTING, Array
from colonnade.data.rows import Indices
from colonnade.data.tables import Column
from colonnade.errors import InputError
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.party_file import PartyFile
from colonnade.federation.member.own_keys import (
    EXACT,
    KnownKeys,
    beside,
    check_unchanged,
    known_keys,
    read_keys,
)


@dataclass(frozen=True)
class Chosen:
    """Which rows of a file take part, and what others call them."""

    order: Indices  # the aligned rows first
    ids: tuple[str, ...]  # in this order
    fingerprint: str
    beside: Indices = field(default_factory=lambda: np.arange(0))  # learnt from, without labels
    keys: KnownKeys | None = None
    notes: tuple[str, ...] = ()


def listed(columns: dict[str, Column], party: PartyFile, path: Path) -> Chosen:
    """The rows of a file that lists the aligned ones first."""
    spec, rows = party.data, party.federation.rows
    assert spec is not None
    assert rows is not None
    count = len(next(iter(columns.values())))
    if count < rows.size:
        raise InputError(
            f"{path}: has {count} rows, but rows.aligned = {rows.aligned} in the federation file; "
            "agree on rows that every party has, and put them first."
        )
    ids = numbered(count) if spec.id is None else _ids(columns[spec.id], path, spec.id)
    order = _order(ids, rows.size, sort=spec.id is not None)
    ids = tuple(ids[i] for i in order)
    mark = "" if spec.id is None else fingerprint(party.federation, ids[: rows.size])
    return Chosen(order, ids, mark)


def matched(columns: dict[str, Column], party: PartyFile, path: Path) -> Chosen:
    """The rows that every party has, by the alignment in this party's folder."""
    spec, rows, alignment = party.data, party.federation.rows, party.alignment
    assert spec is not None
    assert spec.id is not None
    assert rows is not None
    if alignment is None:
        raise InputError(f"{party.source}: its rows have not been matched yet: colonnade align")
    found = read_keys(columns[spec.id], path, spec.id, rows)
    check_unchanged(found, alignment, path)
    return Chosen(
        alignment.rows,
        numbered(len(alignment.rows)),
        alignment.facts.name,
        beside(found, alignment),
        known_keys(found, alignment, rows.steps),
        alignment.notes,
    )


def fingerprint(federation: Federation, ids: Sequence[str]) -> str:
    """Tells whether two parties have the same ids. Whoever can guess all of them can check the
    guess."""
    text = "\x1f".join([federation.hash, *ids])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _ids(values: Column, path: Path, column: str) -> tuple[str, ...]:
    """As text, so that a number in one file is the same number in another kind of file."""
    array = np.asarray(values)
    ids = [str(one).strip() for one in _whole(array, path, column)]
    for row, one in enumerate(ids, 1):
        if not one:
            raise InputError(f"{path}: column {column!r}, data row {row} has no id ({COUNTING}).")
    if len(set(ids)) < len(ids):
        raise InputError(
            f"{path}: column {column!r} holds the id {repeated(ids)!r} twice; a row is one entity,"
            " so keep one of the rows."
        )
    return tuple(ids)


def _whole(array: Array, path: Path, column: str) -> Sequence[object]:
    if array.dtype.kind != "f":
        return array.tolist()
    numbers = array.astype(np.float64)
    bad = ~np.isfinite(numbers) | (numbers != np.round(numbers)) | (np.abs(numbers) > EXACT)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{path}: column {column!r}, data row {row + 1} ({array[row]}; {COUNTING}) is no id; "
            "expected text or whole numbers below 2^53."
        )
    return numbers.astype(np.int64).tolist()


def _order(ids: Sequence[str], aligned: int, sort: bool) -> Indices:
    """The aligned rows, by id if there is one, then the others."""
    places = range(aligned)
    first = sorted(places, key=ids.__getitem__) if sort else list(places)
    return np.array([*first, *range(aligned, len(ids))], dtype=np.int64)


def numbered(count: int) -> tuple[str, ...]:
    return tuple(str(number + 1) for number in range(count))


def repeated(names: Sequence[str]) -> str:
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))
