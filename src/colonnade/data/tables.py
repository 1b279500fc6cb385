"""Own files: `.npz`, CSV and Parquet. Errors name file, column and row."""

from __future__ import annotations

import csv
import functools
import lzma
import math
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.common.metric_names import GoalName
from colonnade.data import mapping
from colonnade.data.raw import (
    COUNTING,
    Array,
    Raw,
    class_note,
    columns_of,
    encode_labels,
    from_arrays,
    idle_note,
)
from colonnade.errors import InputError

Column = Sequence[str] | Array  # text as in the file, or numbers with NaN for missing values
Mapped = tuple[tuple[str, tuple[str, ...]], ...]  # the `columns` table, hashable
KINDS = {".npz": "NumPy", ".csv": "CSV", ".parquet": "Parquet"}
NOT_NPZ = (
    OSError,
    ValueError,
    EOFError,
    TypeError,  # a single array (.npy) under the wrong name
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


def read(
    path: Path,
    label: str | None,
    columns: Mapping[str, Sequence[str]] | None,
    goal: GoalName | None = None,
) -> Raw:
    """The rows of a file; of a table, only the columns that `columns` names, if it is given."""
    stamp = _stamp(path)
    if path.suffix.lower() == ".npz":
        return _npz(path, stamp, path.stem, goal)
    if label is None:
        raise InputError(f"{path}: data.label must name the column that holds the labels.")
    mapped = tuple((party, tuple(chosen)) for party, chosen in (columns or {}).items())
    return _table(path, stamp, label, mapped, goal)


def read_columns(path: Path) -> dict[str, Column]:
    """The columns of a file by name, unchanged. For an `.npz` file see `columns_of`."""
    _stamp(path)
    match path.suffix.lower():
        case ".csv":
            return _csv(path)
        case ".parquet":
            return _parquet(path)
        case _:
            return {**columns_of(_arrays(path), str(path))}


def _stamp(path: Path) -> int:
    """When the file was last changed; refuses a file of another kind, or that cannot be read."""
    if path.suffix.lower() not in KINDS:
        raise InputError(
            f"{path}: unknown kind of file {path.suffix!r}; data.path takes {', '.join(KINDS)}."
        )
    try:
        path.open("rb").close()
        return path.stat().st_mtime_ns
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check data.path.") from error


def read_npz(path: Path, name: str, goal: GoalName | None = None) -> Raw:
    return _npz(path, path.stat().st_mtime_ns, name, goal)


# A grid of runs reads the same file once per seed; the time stamp notices a changed file.
@functools.lru_cache(maxsize=4)
def _npz(path: Path, stamp: int, name: str, goal: GoalName | None) -> Raw:
    return from_arrays(_arrays(path), str(path), name, goal)


def _arrays(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except NOT_NPZ as error:
        # NumPy's own text would advise to unpickle the file.
        why = "it is damaged, or holds Python objects, which are never loaded"
        raise InputError(_unreadable(path, "an .npz file of plain arrays", why)) from error


@functools.lru_cache(maxsize=4)
def _table(path: Path, stamp: int, label: str, mapped: Mapped, goal: GoalName | None) -> Raw:
    columns = _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path)
    source, names = str(path), list(columns)
    if label not in columns:
        raise InputError(
            f"{source}: no column {label!r}, which data.label names{mapping.nearest(label, names)}."
        )
    if mapped:
        mapping.check(dict(mapped), names, source, label)
    held = {column for _, chosen in mapped for column in chosen}
    features = [name for name in names if name != label and (not mapped or name in held)]
    if not features:
        raise InputError(f"{source}: has no column beside the label {label!r}.")
    labels = np.asarray(columns[label])
    y, classes, cautions = encode_labels(labels, source, label, goal)
    idle = [name for name in names if name != label and name not in features]
    return Raw(
        name=path.stem,
        x=np.column_stack([finite_numbers(columns[name], source, name) for name in features]),
        y=y,
        classes=len(classes),
        shapes=((len(features),),),
        feature_names=tuple(features),
        notes=(*class_note(labels, classes), *idle_note(idle)),
        cautions=cautions,
    )


def _csv(path: Path) -> dict[str, Column]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = list(csv.reader(file, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(_unreadable(path, "a CSV file in UTF-8", error)) from error
    while lines and not lines[-1]:
        lines.pop()
    if len(lines) < 2:
        raise InputError(f"{path}: is empty; expected a header row and data rows.")
    header, rows = [name.strip() for name in lines[0]], lines[1:]
    if all(math.isfinite(_number(name)) for name in header):
        raise InputError(f"{path}: the first line holds numbers; it must name the columns.")
    if len(set(header)) < len(header):
        repeated = next(name for name in header if header.count(name) > 1)
        raise InputError(f"{path}: the header names column {repeated!r} twice.")
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise InputError(
                f"{path}: data row {number} has {len(row)} values, the header names "
                f"{len(header)} columns ({COUNTING})."
            )
    return dict(zip(header, zip(*rows, strict=True), strict=True))


def _parquet(path: Path) -> dict[str, Column]:
    try:
        import polars
    except ImportError as error:
        raise InputError(
            f"{path}: reading Parquet needs polars: pip install colonnade[data]"
        ) from error
    try:
        frame = polars.read_parquet(path)
    except (OSError, polars.exceptions.PolarsError) as error:
        raise InputError(_unreadable(path, "a Parquet file", error)) from error
    if not frame.height:
        raise InputError(f"{path}: is empty; expected data rows.")
    return {series.name: _series(series) for series in frame.get_columns()}


def _series(series: Any) -> Column:
    import polars

    if series.dtype.is_numeric() or series.dtype == polars.Boolean:
        return series.cast(polars.Float64).to_numpy()
    return ["" if value is None else str(value) for value in series]


def finite_numbers(values: Column, source: str, column: str) -> Array:
    """A feature column as float64; the first value that is no finite number is an error."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except ValueError:
        numbers = np.array([_number(str(value)) for value in values])
    bad = ~np.isfinite(numbers)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{source}: column {column!r}, data row {row + 1} {_complaint(values[row])} "
            f"({COUNTING}); every feature must be a finite number."
        )
    return numbers


def _complaint(value: object) -> str:
    text = str(value).strip()
    if not text:
        return "is empty"
    if math.isnan(_number(text)) and text.lower() != "nan":
        return f"is text ({text!r})"
    return "is empty or NaN" if text.lower() == "nan" else f"is infinite ({text})"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _unreadable(path: Path, expected: str, why: object) -> str:
    reason = str(why).partition("\n")[0]  # libraries add advice for programmers
    return f"{path}: cannot be read as {expected} ({reason})."
