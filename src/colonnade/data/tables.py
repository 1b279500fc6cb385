"""Own files as data sets: `.npz`, CSV, Parquet and SQL. Errors name file, column and row."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from colonnade.common.metric_names import GoalName
from colonnade.common.text import nearest
from colonnade.data import mapping, sql
from colonnade.data.fits import check_fits
from colonnade.data.preprocessing.cells import Column, Unusable
from colonnade.data.raw import Raw, class_note, encode_labels, from_arrays, idle_note
from colonnade.data.spec import DataSpec
from colonnade.data.sql import Query
from colonnade.data.table import Table
from colonnade.data.table_files import read_arrays, read_columns, read_parquet, stamp
from colonnade.errors import InputError


def read(spec: DataSpec) -> Raw:
    """The rows of a file; of a table, only the columns that `columns` names, if it is given."""
    path, changed = found(spec)
    if path.suffix.lower() == ".npz":
        return _npz(path, changed, path.stem, spec.goal)
    if spec.label is None:
        raise InputError(f"{path}: data.label must name the column that holds the labels.")
    used = None
    if spec.columns is not None:
        used = 1 + len({one for held in spec.columns.values() for one in held})
    return _raw(_columns(path, changed, spec.sql, used), path, spec, spec.label)


def found(spec: DataSpec) -> tuple[Path, tuple[int, ...]]:
    """The file, and when it was last changed. Refuses one that cannot be read."""
    path = Path(spec.path or "").expanduser()
    return path, stamp(path, spec.sql)


def read_npz(path: Path, name: str, goal: GoalName | None = None) -> Raw:
    return _npz(path, (path.stat().st_mtime_ns,), name, goal)


# A grid of runs reads the same file once per seed; the time stamp notices a changed file.
@functools.lru_cache(maxsize=4)
def _npz(path: Path, stamp: tuple[int, ...], name: str, goal: GoalName | None) -> Raw:
    return from_arrays(read_arrays(path), str(path), name, goal)


@functools.lru_cache(maxsize=4)
def _columns(
    path: Path, stamp: tuple[int, ...], query: Query | None, used: int | None
) -> Mapping[str, Column]:
    if query is None:
        check_fits(path, path, used)
        return read_columns(path)
    with sql.result(path, query) as found:
        check_fits(found, path, used)
        return read_parquet(found, str(path))


def _raw(columns: Mapping[str, Column], path: Path, spec: DataSpec, label: str) -> Raw:
    source, names = str(path), list(columns)
    for key, name in (("label", label), ("split_by", spec.split_by and spec.split_by.name)):
        if name is not None and name not in columns:
            near = nearest(name, names)
            raise InputError(f"{source}: no column {name!r}, which data.{key} names{near}.")
    if spec.columns:
        mapping.check(spec.columns, names, source, label)
    features = _features(names, spec, label)
    if not features:
        raise InputError(f"{source}: has no column beside the label {label!r}.")
    for name in spec.prepare:
        if name not in features:
            near = nearest(name, features)
            raise InputError(
                f"{source}: data.prepare names {name!r}, which is no column that a party holds"
                f"{near}."
            )
    _refuse_unusable([columns[name] for name in features if spec.columns])
    labels = np.asarray(columns[label])
    y, classes, cautions = encode_labels(labels, source, label, spec.goal)
    return Raw(
        name=path.stem,
        x=Table({name: columns[name] for name in features}, source, spec.prepare),
        y=y,
        classes=len(classes),
        shapes=((len(features),),),
        feature_names=tuple(features),
        notes=(*class_note(labels, classes), *idle_note(_idle(names, features, spec, label))),
        cautions=cautions,
        divider=columns[spec.split_by.name] if spec.split_by else None,
    )


def _refuse_unusable(named: Sequence[Column]) -> None:
    """Columns that are left out by default are an error where they are named."""
    for column in named:
        if isinstance(column, Unusable):
            raise column.refused()


def _features(names: list[str], spec: DataSpec, label: str) -> list[str]:
    """A column that rows are split by is a feature only if `columns` names it."""
    if spec.columns:
        held = {column for chosen in spec.columns.values() for column in chosen}
        return [name for name in names if name != label and name in held]
    divider = spec.split_by and spec.split_by.name
    return [name for name in names if name not in (label, divider)]


def _idle(names: list[str], features: list[str], spec: DataSpec, label: str) -> list[str]:
    known = (label, spec.split_by and spec.split_by.name)
    return [name for name in names if name not in known and name not in features]
