"""Keys out of a table, and predictions as a table: CSV or Parquet, by the end of the name."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from colonnade.common.files import replacing
from colonnade.common.text import nearest, printable
from colonnade.data.tables import Column, read_columns
from colonnade.errors import InputError
from colonnade.federation.member.prediction_requests import Predicted

KINDS = (".csv", ".parquet")
ID = "id"  # the name of the key column, where there is no other


class Keys(NamedTuple):
    """What is asked about. Rows of the file without a key are not."""

    column: str
    keys: list[str] | None  # None: the rows that nobody trained on
    nameless: Sequence[int] = ()  # data rows, from 1, without a key


def read_keys(path: Path, column: str | None, usual: str | None) -> Keys:
    """The key column is `column`; else `usual`, the one in the party's own data; else the only
    one."""
    if path.suffix.lower() not in KINDS:
        raise InputError(f"{path}: expected a table of keys, {' or '.join(KINDS)}")
    columns = read_columns(path)
    names = list(columns)
    name = column or (usual if usual in columns else None) or (names[0] if len(names) == 1 else ID)
    if name not in columns:
        raise InputError(f"{path}: no column {name!r}{nearest(name, names)}; name it with --key")
    keys = [_text(value) for value in _values(columns[name])]
    if not keys:
        raise InputError(f"{path}: has no rows")
    if not any(keys):
        raise InputError(f"{path}: column {name!r} is empty in all {len(keys):,} rows")
    nameless = [row for row, key in enumerate(keys, 1) if not key]
    return Keys(name, [key for key in keys if key], nameless)


def _values(column: Column) -> Sequence[object]:
    return column.tolist() if isinstance(column, np.ndarray) else column


def _text(value: object) -> str:
    """As text, as in the data of a party: the number 17 is the key "17" in every kind of file."""
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        return str(int(value)) if value.is_integer() else str(value)
    return "" if value is None else str(value).strip()


def check_out(path: Path) -> None:
    """Before anybody is asked: a file that could not be written in the end."""
    if path.suffix.lower() not in KINDS:
        raise InputError(f"--out {path}: expected a name that ends with {' or '.join(KINDS)}")
    if path.suffix.lower() == ".parquet":
        _polars(path)


def write_table(found: Predicted, path: Path, key: str) -> None:
    """The whole table, or none: a reader never sees half of it."""
    with replacing(path) as partial:
        if path.suffix.lower() == ".parquet":
            names, rows = header(found, key), list(cells(found))
            columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
            _polars(path).DataFrame(columns).write_parquet(partial)
        else:
            with partial.open("w", newline="", encoding="utf-8") as file:
                write_csv(found, file, key)


def write_csv(found: Predicted, file: TextIO, key: str = ID) -> None:
    shown: Callable[[str], str] = printable if file.isatty() else str
    writer = csv.writer(file)
    writer.writerow([shown(name) for name in header(found, key)])
    for row in cells(found):
        writer.writerow([shown(_csv_text(cell)) for cell in row])


def header(found: Predicted, key: str = ID) -> list[str]:
    told = ["probability", *(f"probability_{name}" for name in found.classes)]
    known = ["truth"] if found.truths else []
    names = [key, "prediction", *(told if found.classes else []), *known, "absent", "reasons"]
    return [f"{name}_{i}" if name in names[:i] else name for i, name in enumerate(names)]


def cells(found: Predicted) -> Iterator[list[Any]]:
    """Row by row, in the order of `header`."""
    for i, one in enumerate(found.ids):
        told: list[Any] = [found.numbers[i]] if not found.classes else []
        if found.classes:
            likely = found.probabilities[i]
            told = [found.classes[found.predictions[i]], max(likely), *likely]
        known = [found.truths[i]] if found.truths else []
        absent = found.absent[i]
        why = "; ".join(f"{party}: {reason}" for party, reason in absent.items())
        yield [one, *told, *known, " ".join(absent), why]


def _csv_text(cell: Any) -> str:
    return "" if cell is None else f"{cell:.7g}" if isinstance(cell, float) else str(cell)


def _polars(path: Path) -> Any:
    try:
        import polars
    except ImportError:
        raise InputError(
            f"{path}: writing Parquet needs polars: pip install colonnade[data]"
        ) from None
    return polars
