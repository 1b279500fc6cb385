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

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.common.text import first_of
from colonnade.common.user_code import Source
from colonnade.data.partition import Rows, VerticalData
from colonnade.data.raw import AMOUNTS, encode_labels, label_notes
from colonnade.data.rows import Indices
from colonnade.data.scaling import Scaler
from colonnade.data.tables import Column, finite_numbers, read_columns
from colonnade.errors import InputError
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.party_file import OwnSpec, PartyFile
from colonnade.federation.agreement.specs import RowsSpec
from colonnade.federation.member.own_keys import KnownKeys, check_there
from colonnade.federation.member.own_labels import in_file_order, own_labels
from colonnade.federation.member.own_models import own_code, own_models, rehearse
from colonnade.federation.member.own_rows import listed, matched, numbered, repeated
from colonnade.models.factories import Factory


@dataclass(frozen=True)
class OwnData:
    """What a party has: data to join an algorithm with, and all its rows by id."""

    data: VerticalData
    ids: tuple[str, ...]  # of every row; where there is no id column, its number from 1
    x: Tensor | None = None  # [rows, width] of every row, scaled; None: it holds no columns
    classes: tuple[str, ...] = ()  # their names, where the labels are
    fingerprint: str = ""  # of the ids of the aligned rows; "": there is no id column
    models: Mapping[str, Factory] = field(default_factory=dict)  # of this party's own
    code: Mapping[str, Source] = field(default_factory=dict)  # which others are told of
    labels: Tensor | None = None  # of the aligned rows, where several parties have some; see there
    keys: KnownKeys | None = None  # of the rows, where they were matched; `ids` are then numbers

    def positions(self, ids: Sequence[str]) -> Indices:
        """Where these rows are; -1 for one that is not here."""
        return np.array([self.places.get(one, -1) for one in ids], dtype=np.int64)

    def rows(self, ids: Sequence[str]) -> Tensor:
        """The columns of these rows, scaled; average ones, which are zeros, for one that is not
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
    def places(self) -> dict[str, int]:
        return {one: i for i, one in enumerate(self.ids)}


def read_own(party: PartyFile) -> OwnData:
    """Its rows, and its models if it has its own, which are imported and tried."""
    own, models = read_rows(party), own_models(party)
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
    if party.data is None:  # it holds neither columns nor labels
        data = _vertical(federation, None, None, party)
        return OwnData(data, (), fingerprint=federation.rows.alignment or "")
    return _from_file(party, federation.rows, party.data)


def _from_file(party: PartyFile, rows: RowsSpec, spec: OwnSpec) -> OwnData:
    path, federation = Path(spec.path), party.federation
    columns = read_columns(path)
    for key in ("id", "label"):
        check_there(columns, getattr(spec, key), path, f"data.{key}")
    chosen = matched(columns, party, path) if rows.match else listed(columns, party, path)
    order, split, labels = chosen.order, rows.split(federation.seed), None
    if federation.roles.several and spec.label is not None:
        labels, classes = own_labels(
            columns[spec.label], path, spec.label, rows, order, split.train
        )
        y = labels.clamp(min=0)
    else:
        y, classes = _labels(columns, spec, path, rows, order)
    x = alone = None
    if party.holds_columns:
        every = _features(columns, party, path)
        own, beside = every[order], every[chosen.beside]
        scaler = Scaler.standardising(np.concatenate([own[split.train], beside]))
        x, alone = scaler.apply(own), scaler.apply(beside)
    data = _vertical(federation, x, y, party, classes, alone)
    if labels is not None:
        data = replace(data, notes=())  # what is not labelled is no label
    data = replace(data, notes=(*data.notes, *chosen.notes))
    return OwnData(
        data, chosen.ids, x, classes, chosen.fingerprint, labels=labels, keys=chosen.keys
    )


def _vertical(
    federation: Federation,
    x: Tensor | None,
    y: Tensor | None,
    party: PartyFile,
    classes: Sequence[str] = (),
    alone: Tensor | None = None,
) -> VerticalData:
    task, rows = federation.task(), federation.rows
    assert rows is not None
    split = rows.split(federation.seed)
    unknown = torch.zeros(1, dtype=torch.int64 if task.classes else torch.float64)

    def part(which: Indices) -> Rows:
        chosen = torch.from_numpy(which)
        held = [torch.zeros(1).expand(len(which), width) for width in task.widths]
        if x is not None:
            held[task.clients.index(party.party)] = x[chosen]
        labels = unknown.expand(len(which)) if y is None else y[chosen]
        return Rows(tuple(held), labels)

    beside = [torch.zeros(1).expand(rows.extra or 0, width) for width in task.widths]
    if alone is not None:
        beside[task.clients.index(party.party)] = alone
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
        extra=tuple(beside) if rows.extra else (),
        notes=() if y is None else label_notes(task.classes, y.numpy(), split, classes),
    )


def _features(columns: dict[str, Column], party: PartyFile, path: Path) -> NDArray[np.float64]:
    spec = party.data
    assert spec is not None
    keys = (spec.id, spec.label)
    names = [n for n in columns if n not in keys] if spec.columns is None else spec.columns
    for name in names:
        check_there(columns, name, path, "data.columns")
        if name in keys:
            raise InputError(f"{path}: column {name!r} is the id or the label, and in data.columns")
    if len(set(names)) < len(names):
        raise InputError(f"{path}: data.columns names {repeated(names)!r} twice.")
    expected = party.federation.party(party.party).columns
    if len(names) != expected:
        raise InputError(
            f"{path}: gives {len(names)} columns ({first_of(names)}), but the federation file says "
            f"columns = {expected} for {party.party!r}; list the right ones in data.columns."
        )
    found = [finite_numbers(columns[name], str(path), name) for name in names]
    return np.column_stack(found).astype(np.float64)


def _labels(
    columns: dict[str, Column], spec: OwnSpec, path: Path, rows: RowsSpec, order: Indices
) -> tuple[Tensor | None, tuple[str, ...]]:
    """Of the aligned rows; those that follow need none."""
    if spec.label is None:
        return None, ()
    first, places = in_file_order(order[: rows.size])
    values = np.asarray(columns[spec.label])[first]
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
    return torch.from_numpy(y[places]), tuple(names)
