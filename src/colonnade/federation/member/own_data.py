"""A party's own rows, ready to join with; everybody else's take no memory and hold nothing.

Which rows are aligned: the first `rows.aligned` of the file, at every party. With an id column they
need not be in the same order, only be the same ones: each party puts them in the order of their
ids, and parties compare the `fingerprint` of the ids when they meet. Without one, row r of every
file must speak of the same entity. Rows that follow are not trained on; a prediction may be asked
for any row of the file.

Where rows were matched (`rows.match`), the alignment in the party's folder says which rows they
are. Parties then speak of rows by their numbers in the common order, never by their keys.
"""

from __future__ import annotations

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
from colonnade.data.raw import AMOUNTS, encode_labels, label_notes
from colonnade.data.rows import Indices
from colonnade.data.stored import StoredRows
from colonnade.data.table_files import opened, row_count
from colonnade.errors import InputError
from colonnade.federation.agreement.party_file import OwnSpec, PartyFile
from colonnade.federation.agreement.specs import RowsSpec
from colonnade.federation.member.own_features import OwnFeatures, own_features
from colonnade.federation.member.own_keys import KnownKeys, check_there
from colonnade.federation.member.own_labels import in_file_order, own_labels
from colonnade.federation.member.own_models import own_code, own_models, rehearse
from colonnade.federation.member.own_rows import RowOrder, repeated, row_order
from colonnade.federation.member.row_ids import numbered, places_of
from colonnade.models.factories import Factory


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
    keys: KnownKeys | None = None  # of the rows, where they were matched; `ids` are then numbers
    held: Sequence[bool] | None = None  # which rows this party has; None: all

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

    def called(self, names: Sequence[str]) -> list[str]:
        """The ids of rows that a person names; "" for a row that not every party has."""
        return list(names) if self.keys is None else self.keys.numbers(names)

    def names(self, ids: Sequence[str]) -> list[str]:
        """What a person calls rows with these ids: as this party's file has it."""
        known = self.keys
        return list(ids) if known is None else [known.written[int(one) - 1] for one in ids]

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Of the rows that this party has."""
        return places_of(self.ids, self.held)


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
        data, x, held = federation.vertical_data(), None, None
        if party.holds_columns:
            me = data.clients.index(party.party)
            x = data.test.x[me]
            held = None if data.test.held is None else data.test.held[me].tolist()
        return OwnData(data, numbered(len(data.test)), x, held=held)
    return own_data(party, read_file(party))


@dataclass(frozen=True)
class FileRows:
    """What a party has read, before it is known how many columns the others have."""

    rows: RowOrder = field(default_factory=RowOrder)
    features: OwnFeatures | None = None
    y: Tensor | None = None
    classes: tuple[str, ...] = ()
    labels: Tensor | None = None


def count_rows(party: PartyFile) -> int:
    """The rows of a party's file."""
    assert party.data is not None
    with opened(Path(party.data.path), party.data.sql, party.folder) as columns:
        return row_count(columns)


def read_file(party: PartyFile) -> FileRows:
    """Nothing, if the party holds neither columns nor labels."""
    rows, spec = party.federation.rows, party.data
    if rows is None:
        return FileRows()
    if spec is None:
        return FileRows(RowOrder(fingerprint=rows.alignment or ""))
    with opened(Path(spec.path), spec.sql, party.folder) as columns:
        return _from_file(party, rows, spec, columns)


def own_data(party: PartyFile, read: FileRows) -> OwnData:
    rows, features = read.rows, read.features
    data = _vertical(party, read)
    if read.labels is not None:
        data = replace(data, notes=())  # what is not labelled is no label
    prepared = () if features is None else features.notes
    notes = (*data.notes, *rows.notes, *(f"{party.party}: {note}" for note in prepared))
    return OwnData(
        replace(data, notes=notes),
        rows.ids,
        None if features is None else features.x,
        read.classes,
        rows.fingerprint,
        labels=read.labels,
        features=features,
        keys=rows.keys,
        held=(rows.order >= 0).tolist() if rows.held else None,
    )


def _from_file(
    party: PartyFile, rows: RowsSpec, spec: OwnSpec, columns: Mapping[str, Column]
) -> FileRows:
    path, federation = Path(spec.path), party.federation
    own = row_order(columns, party)
    order, split, labels = own.order, rows.split(federation.seed), None
    if federation.roles.several and spec.label is not None:
        labels, classes = own_labels(
            columns[spec.label], path, spec.label, rows, order, split.train
        )
        y = labels.clamp(min=0)
    else:
        y, classes = _labels(columns, spec, path, rows, order)
    features = None
    if party.holds_columns:
        names = feature_names(columns, spec, rows, party.party, path)
        features = own_features(party, columns, names, own, split.train)
    return FileRows(own, features, y, classes, labels)


def _vertical(party: PartyFile, read: FileRows) -> VerticalData:
    federation, features, y = party.federation, read.features, read.y
    task, rows = federation.task(), federation.rows
    assert rows is not None
    split = rows.split(federation.seed)
    unknown = torch.zeros(1, dtype=torch.int64 if task.classes else torch.float64)
    known = _held(read.rows, task.clients)

    def part(which: Indices) -> Rows:
        chosen = torch.from_numpy(which)
        x = features and (
            features.x.part(which) if isinstance(features.x, StoredRows) else features.x[chosen]
        )
        labels = unknown.expand(len(which)) if y is None else y[chosen]
        return Rows(held(len(which), x), labels, known[:, chosen] if read.rows.held else None)

    def held(count: int, own: Tensor | StoredRows | None) -> tuple[Tensor, ...]:
        """By client: its columns. Those of others take no memory."""
        every: list[Any] = [torch.zeros(1).expand(count, width) for width in task.widths]
        if own is not None:
            every[task.clients.index(party.party)] = own
        return tuple(every)

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
        extra=held(rows.extra, features and features.beside) if rows.extra else (),
        notes=() if y is None else label_notes(task.classes, y.numpy(), split, read.classes),
    )


def _held(own: RowOrder, clients: Sequence[str]) -> Tensor:
    """Which rows each client has, as far as this party knows it. [clients, rows] bool"""
    every = np.ones(len(own.order), dtype=bool)
    return torch.from_numpy(np.stack([own.held.get(client, every) for client in clients]))


def feature_names(
    columns: Mapping[str, Column], spec: OwnSpec, rows: RowsSpec, party: str, path: Path
) -> list[str]:
    """The columns that it brings. One that rows are split by only if `columns` names it."""
    keys = (spec.id, spec.label)
    by = rows.split_by
    divider = by.name if by is not None and by.party == party else None
    usual = [n for n in columns if n not in (*keys, divider)]
    names = usual if spec.columns is None else spec.columns
    for name in names:
        check_there(columns, name, path, "data.columns")
        if name in keys:
            raise InputError(f"{path}: column {name!r} is the id or the label, and in data.columns")
    if len(set(names)) < len(names):
        raise InputError(f"{path}: data.columns names {repeated(names)!r} twice.")
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
    first, places = in_file_order(order[: rows.size])
    values = np.asarray(columns[spec.label])[first]
    goal = "classes" if rows.count else "number"
    y, names, cautions = encode_labels(values, str(path), spec.label, goal, first)
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
    return torch.from_numpy(y[places]), tuple(names)
