"""A party's own rows, ready to join with; everybody else's take no memory and hold nothing.

Which rows are aligned: the first `rows.aligned` of the file, at every party. With an id column they
need not be in the same order, only be the same ones: each party puts them in the order of their
ids, and parties compare the `fingerprint` of the ids when they meet. Without one, row r of every
file must speak of the same entity. Rows that follow are not trained on; a prediction may be asked
for any row of the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.common.text import first_of, nearest
from colonnade.common.user_code import Source
from colonnade.data.partition import Rows, VerticalData
from colonnade.data.preprocessing import Column
from colonnade.data.raw import AMOUNTS, COUNTING, Array, encode_labels, label_notes
from colonnade.data.rows import Indices
from colonnade.data.stored import StoredRows
from colonnade.data.table_files import opened, row_count
from colonnade.errors import InputError
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.party_file import OwnSpec, PartyFile
from colonnade.federation.agreement.specs import RowsSpec
from colonnade.federation.member.own_features import OwnFeatures, own_features
from colonnade.federation.member.own_labels import own_labels
from colonnade.federation.member.own_models import own_code, own_models, rehearse
from colonnade.models.factories import Factory

MANY = 10**6  # rows whose numbers are not kept as texts
EXACT = 2**53  # whole numbers up to here survive being read as float64


@dataclass(frozen=True)
class OwnData:
    """What a party has: data to join an algorithm with, and all its rows by id."""

    data: VerticalData
    ids: Sequence[str]  # of every row; where there is no id column, its number from 1
    # [rows, width] of every row, prepared; None: it holds no columns
    x: Tensor | StoredRows | None = None
    classes: tuple[str, ...] = ()  # their names, where the labels are
    fingerprint: str = ""  # of the ids of the aligned rows; "": there is no id column
    models: Mapping[str, Factory] = field(default_factory=dict)  # of this party's own
    code: Mapping[str, Source] = field(default_factory=dict)  # which others are told of
    labels: Tensor | None = None  # of the aligned rows, where several parties have some; see there
    features: OwnFeatures | None = None  # how they were made, where they are from a file

    def keep(self, folder: Path) -> None:
        """Write how the columns were prepared, so that they are prepared alike later."""
        if self.features is not None:
            self.features.keep(folder)

    def positions(self, ids: Sequence[str]) -> Indices:
        """Where these rows are; -1 for one that is not here."""
        return np.array([self.places.get(one, -1) for one in ids], dtype=np.int64)

    def rows(self, ids: Sequence[str]) -> Tensor:
        """The columns of these rows, prepared; zeros, the average of a number, for one that is not
        here. [rows, width]"""
        if self.x is None:
            raise InputError("rows: this party holds no columns")
        places = torch.from_numpy(self.positions(ids))
        here = places >= 0
        return self.x[places.clamp(min=0)] * here[:, None]

    @cached_property
    def places(self) -> dict[str, int]:
        return {one: i for i, one in enumerate(self.ids)}


def read_own(party: PartyFile, read: FileRows | None = None) -> OwnData:
    """Its rows, and its models if it has its own, which are imported and tried. `read`: the rows of
    its file, if they have been read."""
    own = read_rows(party) if read is None else own_data(party, read)
    models = own_models(party)
    if models:
        rehearse(party, models, own.data)
    return replace(own, models=models, code=own_code(party, models))


def read_rows(party: PartyFile) -> OwnData:
    """Of a federation with `[data]`: its test rows are those that predictions may be asked for."""
    federation = party.federation
    if federation.rows is None:
        data = federation.vertical_data()
        x = data.test.x[data.clients.index(party.party)] if party.holds_columns else None
        return OwnData(data, numbered(len(data.test)), x)
    return own_data(party, read_file(party))


@dataclass(frozen=True)
class FileRows:
    """What a party has read, before it is known how many columns the others have."""

    ids: Sequence[str] = ()
    features: OwnFeatures | None = None
    y: Tensor | None = None
    classes: tuple[str, ...] = ()
    labels: Tensor | None = None


def count_rows(party: PartyFile) -> int:
    """The rows of a party's file."""
    assert party.data is not None
    with opened(Path(party.data.path), party.data.query, party.folder) as columns:
        return row_count(columns)


def read_file(party: PartyFile) -> FileRows:
    """Nothing, if the party holds neither columns nor labels."""
    rows, spec = party.federation.rows, party.data
    if rows is None or spec is None:
        return FileRows()
    with opened(Path(spec.path), spec.query, party.folder) as columns:
        return _from_file(party, rows, spec, columns)


def own_data(party: PartyFile, read: FileRows) -> OwnData:
    federation, rows, spec = party.federation, party.federation.rows, party.data
    assert rows is not None
    x = None if read.features is None else read.features.x
    data = _vertical(federation, x, read.y, party, read.classes)
    if read.labels is not None:
        data = replace(data, notes=())  # what is not labelled is no label
    if read.features is not None:
        notes = [f"{party.party}: {note}" for note in read.features.notes]
        data = replace(data, notes=(*data.notes, *notes))
    keyed = spec is not None and spec.id is not None
    mark = fingerprint(federation, read.ids[: rows.size]) if keyed else ""
    return OwnData(
        data, read.ids, x, read.classes, mark, labels=read.labels, features=read.features
    )


def _from_file(
    party: PartyFile, rows: RowsSpec, spec: OwnSpec, columns: Mapping[str, Column]
) -> FileRows:
    path, federation = Path(spec.path), party.federation
    ids, order = common_order(columns, spec, rows, path)
    split, labels = rows.split(federation.seed), None
    if federation.roles.several and spec.label is not None:
        labels, classes = own_labels(
            columns[spec.label], path, spec.label, rows, order, split.train
        )
        y = labels.clamp(min=0)
    else:
        y, classes = _labels(columns, spec, path, rows, order)
    features = None
    if party.holds_columns:
        names = _names(columns, spec, rows, party.party, path)
        features = own_features(party, columns, names, order, split.train)
    return FileRows(ids, features, y, classes, labels)


def common_order(
    columns: Mapping[str, Column], spec: OwnSpec, rows: RowsSpec, path: Path
) -> tuple[Sequence[str], Indices]:
    """The rows of a file in the order that all parties agree on, and their ids in that order."""
    for key in ("id", "label"):
        _check_there(columns, getattr(spec, key), path, f"data.{key}")
    count = row_count(columns)
    if count < rows.size:
        raise InputError(
            f"{path}: has {count} rows, but rows.aligned = {rows.size} in the federation file; "
            "agree on rows that every party has, and put them first."
        )
    ids = numbered(count) if spec.id is None else _ids(columns[spec.id], path, spec.id)
    order = _order(ids, rows.size, sort=spec.id is not None)
    if spec.id is None:
        return ids, order
    return tuple(str(ids[i]) for i in order), order


def fingerprint(federation: Federation, ids: Sequence[str]) -> str:
    """Tells whether two parties have the same ids. Whoever can guess all of them can check the
    guess."""
    text = "\x1f".join([federation.hash, *ids])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _vertical(
    federation: Federation,
    x: Tensor | StoredRows | None,
    y: Tensor | None,
    party: PartyFile,
    classes: Sequence[str] = (),
) -> VerticalData:
    task, rows = federation.task(), federation.rows
    assert rows is not None
    split = rows.split(federation.seed)
    unknown = torch.zeros(1, dtype=torch.int64 if task.classes else torch.float64)

    def part(which: Indices) -> Rows:
        chosen = torch.from_numpy(which)
        held = [torch.zeros(1).expand(len(which), width) for width in task.widths]
        if isinstance(x, StoredRows):
            held[task.clients.index(party.party)] = x.part(which)  # pyright: ignore
        elif x is not None:
            held[task.clients.index(party.party)] = x[chosen]
        labels = unknown.expand(len(which)) if y is None else y[chosen]
        return Rows(tuple(held), labels)

    return VerticalData(
        name=federation.name,
        clients=task.clients,
        classes=task.classes,
        metric=task.metric,
        weights=task.weights,
        shapes=task.shapes,
        train=part(split.train),
        validation=part(split.validation),
        test=part(split.test),
        notes=() if y is None else label_notes(task.classes, y.numpy(), split, classes),
    )


def _names(
    columns: Mapping[str, Column], spec: OwnSpec, rows: RowsSpec, party: str, path: Path
) -> list[str]:
    """The columns that it brings. One that rows are split by only if `columns` names it."""
    keys = (spec.id, spec.label)
    by = rows.split_by
    divider = by.name if by is not None and by.party == party else None
    usual = [n for n in columns if n not in (*keys, divider)]
    names = usual if spec.columns is None else spec.columns
    for name in names:
        _check_there(columns, name, path, "data.columns")
        if name in keys:
            raise InputError(f"{path}: column {name!r} is the id or the label, and in data.columns")
    if len(set(names)) < len(names):
        raise InputError(f"{path}: data.columns names {_repeated(names)!r} twice.")
    for name in spec.prepare:
        if name not in names:
            raise InputError(
                f"{path}: data.prepare names {name!r}, which is no column that {party!r} brings"
                f"{nearest(name, names)}."
            )
    return list(names)


def _labels(
    columns: Mapping[str, Column], spec: OwnSpec, path: Path, rows: RowsSpec, order: Indices
) -> tuple[Tensor | None, tuple[str, ...]]:
    """Of the aligned rows; those that follow need none."""
    if spec.label is None:
        return None, ()
    values = np.asarray(columns[spec.label])[: rows.size]
    goal = "classes" if rows.count else "number"
    y, names, cautions = encode_labels(values, str(path), spec.label, goal)
    if rows.names and set(names) != set(rows.names):
        raise InputError(
            f"{path}: column {spec.label!r} holds the classes {first_of(names)}, but the "
            f"federation file says rows.classes = {list(rows.names)}."
        )
    if rows.names:
        numbers = np.array([rows.names.index(name) for name in names])
        y, names = numbers[y.astype(np.int64)], list(rows.names)
    if len(names) != rows.count:
        advice = f" If they are amounts, in [rows] {AMOUNTS}" if cautions else ""
        raise InputError(
            f"{path}: column {spec.label!r} holds {len(names)} classes ({first_of(names)}) in the "
            f"{rows.size} aligned rows, but the federation file says rows.classes = "
            f"{rows.count}.{advice}"
        )
    return torch.from_numpy(y[order[: rows.size]]), tuple(names)


def _ids(values: Column, path: Path, column: str) -> tuple[str, ...]:
    """As text, so that a number in one file is the same number in another kind of file."""
    array = np.asarray(values)
    ids = [str(one).strip() for one in _whole(array, path, column)]
    for row, one in enumerate(ids, 1):
        if not one:
            raise InputError(f"{path}: column {column!r}, data row {row} has no id ({COUNTING}).")
    if len(set(ids)) < len(ids):
        raise InputError(
            f"{path}: column {column!r} holds the id {_repeated(ids)!r} twice; a row is one entity,"
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
    if not sort:
        return np.arange(len(ids))
    first = np.array(sorted(places, key=ids.__getitem__), dtype=np.int64)
    return np.concatenate([first, np.arange(aligned, len(ids))])


class RowNumbers(Sequence[str]):
    """Ids of rows that have none: their numbers from 1. They take no memory."""

    def __init__(self, rows: range) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: Any) -> Any:
        found = self.rows[place]
        return RowNumbers(found) if isinstance(found, range) else str(found)


def numbered(count: int) -> Sequence[str]:
    few = tuple(str(number) for number in range(1, min(count, MANY) + 1))
    return few if count <= MANY else RowNumbers(range(1, count + 1))


def _check_there(columns: Mapping[str, Column], name: str | None, path: Path, key: str) -> None:
    if name is not None and name not in columns:
        raise InputError(
            f"{path}: no column {name!r}, which {key} names{nearest(name, list(columns))}."
        )


def _repeated(names: Sequence[str]) -> str:
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))
