"""Loading data: from the `[data]` table of an experiment file to scaled, split, shuffled data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.common.metric_names import Weights, check_metric
from colonnade.data import datasets, mapping, partition, tables
from colonnade.data.catalogue import Split
from colonnade.data.noisy import with_noise
from colonnade.data.overlap import overlapping
from colonnade.data.partition import ClientColumns, Partition, Rows, VerticalData
from colonnade.data.preprocessing import Preprocessing, Remarks
from colonnade.data.raw import Array, Raw, check_finite, idle_note, label_notes
from colonnade.data.row_splits import Parts, parts_by
from colonnade.data.rows import Indices, RowSplit, split_rows
from colonnade.data.scaling import Scaler
from colonnade.data.spec import DataSpec, PixelScale, check_share
from colonnade.data.table import Table
from colonnade.errors import InputError

AnyScaler = Scaler | Preprocessing


class Source(NamedTuple):
    """The rows as they were read, and what to do with them unless the spec says it."""

    raw: Raw
    split: Split
    parties: int


def load(spec: DataSpec, seed: int, source: Source | None = None) -> VerticalData:
    """The data set of an experiment. Equal specs and seeds give equal data in every process.
    `source`: what `read_source` gave, where the file is not to be read again."""
    raw, split, parties = source or read_source(spec)
    check_metric(spec.metric, spec.weights, raw.classes, "data.")
    parts = _partition(raw, spec, split, parties)
    chosen = split_rows(
        raw.strata,
        seed,
        official=raw.official,
        test=spec.test,
        validation=spec.validation,
        cap=spec.rows,
        labelled=spec.labelled,
        parties=len(parts.parts),
        given=_given(raw, spec, seed),
    )
    chosen, shared = overlapping(chosen, spec, parts.clients, len(raw.y), seed)
    data = _distribute(raw, parts, chosen, (*_unheld(raw, parts), *shared), spec.scale)
    if spec.noisy:
        data = with_noise(data, spec.noisy, seed)
    return replace(data, metric=spec.metric, weights=spec.weights)


def from_arrays(
    x: Array,
    y: NDArray[np.integer | np.floating],
    *,
    parties: int | None = None,
    columns: Sequence[Sequence[int]] | None = None,
    clients: Sequence[str] = (),
    validation: float = 0.1,
    seed: int = 0,
    name: str = "arrays",
    metric: str | None = None,
    weights: Weights | None = None,
) -> VerticalData:
    """Data from memory, with an empty test part. Whole numbers in y are classes, floats are numbers
    to predict.

    Either `columns` holds the column numbers of each party, or `parties` get neighbouring columns.
    The result's `apply_split` splits and scales new rows the same way.
    """
    x, y = np.asarray(x), np.asarray(y)
    if x.ndim != 2 or len(x) != len(y) or not len(y):
        raise InputError(f"{name}: x {x.shape} must be [rows, columns] and y {y.shape} [rows].")
    check_finite(x, name, "x")
    if y.dtype.kind == "f":
        check_finite(y, name, "y")
    elif y.dtype.kind not in "biu" or y.min() < 0 or y.max() < 1:
        raise InputError(f"{name}: y must hold classes 0, 1, …, at least two of them, or floats.")
    check_share("validation", validation)
    if (parties is None) == (columns is None):
        raise InputError(f"{name}: give exactly one of parties and columns.")
    width = x.shape[1]
    if columns is None:
        parts = partition.columns(width, parties or 0)
    else:
        _check_numbers(columns, width, name)
        parts = partition.grouped(width, columns, clients)
    numbers = y.dtype.kind == "f"
    classes = 0 if numbers else int(y.max()) + 1
    check_metric(metric, weights, classes, "")
    raw = Raw(name, x, y.astype(np.float64 if numbers else np.int64), classes, ((width,),))
    chosen = split_rows(raw.strata, seed, official=len(y), test=0.0, validation=validation)
    return replace(_distribute(raw, parts, chosen), metric=metric, weights=weights)


def read_source(spec: DataSpec) -> Source:
    """Reads the rows from the data folder or from a file."""
    if spec.dataset is not None:
        known = datasets.entry(spec.dataset)
        return Source(datasets.load_raw(spec.dataset, spec.goal), known.split, known.parties)
    raw = tables.read(spec)
    if raw.shape is None:
        return Source(raw, "views", len(raw.shapes))
    return Source(raw, "bands" if len(raw.shape) == 3 else "columns", 2)


def _partition(raw: Raw, spec: DataSpec, split: Split, parties: int) -> Partition:
    if spec.columns is not None:
        source = spec.path or raw.name
        if not raw.feature_names:
            raise InputError(
                f"data.columns: the columns of {source} have no names; use data.parties."
            )
        mapping.check(spec.columns, raw.feature_names, source)
        return partition.columns_by_name(raw.feature_names, spec.columns)
    split = spec.split or split
    parties = parties if spec.parties is None else spec.parties
    if split == "views":
        return partition.views(raw.shapes, parties, raw.view_names)
    if split == "columns":
        return partition.columns(raw.x.shape[1], parties, spec.columns_each)
    if spec.columns_each is not None:
        raise InputError(
            'data.columns_each: is for data.split = "columns", and the usual split of '
            f'{raw.name} is "{split}"; set data.split.'
        )
    cut = partition.bands if split == "bands" else partition.patches
    return cut(raw.shape or (), parties)


def _given(raw: Raw, spec: DataSpec, seed: int) -> Parts | None:
    """Which part each row is in, where a column says it."""
    if spec.split_by is None or raw.divider is None:
        return None
    shares = {"test": spec.test, "validation": spec.validation}
    return parts_by(spec.split_by, raw.divider, spec.path or raw.name, **shares, seed=seed)


def _distribute(
    raw: Raw,
    parts: Partition,
    chosen: RowSplit,
    notes: tuple[str, ...] = (),
    scale: PixelScale | None = None,
) -> VerticalData:
    """Give each client its columns of its rows, scaled by statistics of the rows that it trains
    on."""
    held = [part.take(raw.x) for part in parts.parts]
    alone = chosen.extra or [np.arange(0)] * len(held)
    scalers = tuple(
        _scaler(part, x, np.concatenate([_own(chosen, i), alone[i]]), raw.pixel_max, scale)
        for i, (part, x) in enumerate(zip(parts.parts, held, strict=True))
    )
    seen = {client: Remarks() for client in parts.clients}

    def scaled(which: Indices, i: int) -> Tensor:
        scaler, own = scalers[i], held[i]
        if isinstance(scaler, Preprocessing):
            assert isinstance(own, Table)
            return scaler.apply(own[which], own.source, seen[parts.clients[i]])
        assert not isinstance(own, Table)
        return scaler.apply(own[which])

    def rows(which: Indices) -> Rows:
        x = tuple(scaled(which, i) for i in range(len(held)))
        whole = Rows(x, torch.from_numpy(raw.y[which]))
        return (
            whole
            if chosen.held is None
            else whole.only_held(torch.from_numpy(chosen.held[:, which]))
        )

    train, validation, test = map(rows, (chosen.train, chosen.validation, chosen.test))
    extra = tuple(scaled(which, i) for i, which in enumerate(chosen.extra))
    return VerticalData(
        name=raw.name,
        clients=parts.clients,
        classes=raw.classes,
        shapes=tuple(
            (scaler.width,) if isinstance(scaler, Preprocessing) else shape
            for scaler, shape in zip(scalers, parts.shapes, strict=True)
        ),
        train=train,
        validation=validation,
        test=test,
        extra=extra,
        notes=(
            *raw.cautions,
            *raw.notes,
            *notes,
            *_prepared_notes(parts.clients, scalers, seen),
            *label_notes(raw.classes, raw.y, chosen),
        ),
        cautions=raw.cautions,
        partition=parts,
        scalers=scalers,
    )


def _own(chosen: RowSplit, client: int) -> Indices:
    """The training rows that a client has."""
    train = chosen.train
    return train if chosen.held is None else train[chosen.held[client, train]]


def _unheld(raw: Raw, parts: Partition) -> tuple[str, ...]:
    held = {number for part in parts.parts for number in part.columns}
    names = enumerate(raw.feature_names)
    return idle_note([name for number, name in names if number not in held])


def _prepared_notes(
    clients: Sequence[str], scalers: Sequence[AnyScaler], seen: dict[str, Remarks]
) -> tuple[str, ...]:
    """What was left out of tables, and what rows after the training rows brought."""
    return tuple(
        f"{client}: {note}"
        for client, scaler in zip(clients, scalers, strict=True)
        if isinstance(scaler, Preprocessing)
        for note in (*scaler.notes(), *seen[client].notes())
    )


def _scaler(
    part: ClientColumns,
    x: Array | Table,
    rows: Indices,
    pixel_max: float | None,
    scale: PixelScale | None,
) -> AnyScaler:
    if pixel_max is None and scale is not None:
        raise InputError(
            "data.scale: is for pixels; columns that are no pixels are standardised by their "
            "holders. Leave it out."
        )
    if isinstance(x, Table):
        return x.fit(rows)
    if pixel_max is None:
        return Scaler.standardising(x[rows])
    more = () if scale is None else (scale.mean, scale.spread)
    return Scaler.of_pixels(len(part.columns), pixel_max, *more)


def _check_numbers(groups: Sequence[Sequence[int]], width: int, name: str) -> None:
    numbers = [number for group in groups for number in group]
    if not all(len(group) for group in groups) or not numbers:
        raise InputError(f"{name}: every party needs at least one column.")
    if len(set(numbers)) < len(numbers):
        raise InputError(f"{name}: a column number is given twice; a column has one holder.")
    if min(numbers) < 0 or max(numbers) >= width:
        raise InputError(f"{name}: column numbers must be 0 to {width - 1}.")
