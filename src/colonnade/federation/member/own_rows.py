"""Which rows of a party's file take part, in which order, and what other parties call them.

Either the file lists the aligned rows first (`rows.aligned`; not set, all rows are aligned), or
they were matched (`rows.match`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from colonnade.data.preprocessing import Column
from colonnade.data.rows import Indices
from colonnade.data.table_files import row_count
from colonnade.errors import InputError
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.party_file import OwnSpec, PartyFile
from colonnade.federation.agreement.specs import RowsSpec
from colonnade.federation.member.own_keys import (
    KnownKeys,
    beside,
    check_there,
    check_unchanged,
    known_keys,
    read_keys,
)
from colonnade.federation.member.row_ids import numbered, read_ids


@dataclass(frozen=True)
class RowOrder:
    """Which rows of a file take part, and what others call them."""

    # The aligned rows first; -1 for one that this party lacks, of those that were matched.
    order: Indices = field(default_factory=lambda: np.arange(0))
    ids: Sequence[str] = ()  # in this order
    fingerprint: str = ""  # the same at every party; "": nothing can be compared
    beside: Indices = field(default_factory=lambda: np.arange(0))  # learnt from, without labels
    keys: KnownKeys | None = None  # of rows that were matched
    notes: tuple[str, ...] = ()
    # Where parties may lack rows, by column holder, as far as it is known: whether it has each.
    held: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)


def row_order(columns: Mapping[str, Column], party: PartyFile) -> RowOrder:
    """The rows of a party's file, as the federation file says."""
    spec, rows = party.data, party.federation.rows
    assert spec is not None
    assert rows is not None
    path = Path(spec.path)
    for key in ("id", "label"):
        check_there(columns, getattr(spec, key), path, f"data.{key}")
    return (_matched if rows.match else _listed)(columns, party, spec, rows, path)


def _listed(
    columns: Mapping[str, Column], party: PartyFile, spec: OwnSpec, rows: RowsSpec, path: Path
) -> RowOrder:
    """The rows of a file that lists the aligned ones first."""
    count = row_count(columns)
    if count < rows.size:
        raise InputError(
            f"{path}: has {count} rows, but rows.aligned = {rows.size} in the federation file; "
            "agree on rows that every party has, and put them first."
        )
    if spec.id is None:
        return RowOrder(np.arange(count), numbered(count))
    order, ids = read_ids(columns, path, spec.id, rows.size)
    return RowOrder(order, ids, fingerprint(party.federation, islice(ids, rows.size)))


def _matched(
    columns: Mapping[str, Column], party: PartyFile, spec: OwnSpec, rows: RowsSpec, path: Path
) -> RowOrder:
    """The rows that every party has, by the alignment in this party's folder."""
    alignment = party.alignment
    assert spec.id is not None
    if alignment is None:
        raise InputError(f"{party.source}: its rows have not been matched yet: colonnade align")
    found = read_keys(columns[spec.id], path, spec.id, rows)
    check_unchanged(found, alignment, path)
    return RowOrder(
        alignment.rows,
        numbered(len(alignment.rows)),
        alignment.facts.name,
        beside(found, alignment),
        known_keys(found, alignment, rows.steps),
        alignment.notes,
        alignment.held,
    )


def fingerprint(federation: Federation, ids: Iterable[str]) -> str:
    """Tells whether two parties have the same ids. Whoever can guess all of them can check the
    guess."""
    found = hashlib.blake2b(federation.hash.encode(), digest_size=16)
    for one in ids:
        found.update(b"\x1f" + one.encode())
    return found.hexdigest()


def repeated(names: Sequence[str]) -> str:
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))
