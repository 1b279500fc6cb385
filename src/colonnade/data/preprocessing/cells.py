"""Cells of a column as numbers, truth values, dates or words. A gap is NaN, NaT or ""."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

Column = Sequence[str] | NDArray[np.generic]  # text as in the file, or typed, NaN or NaT for gaps
Numbers = NDArray[np.float64]
Dates = NDArray[np.datetime64]

# What counts as empty where all other cells are numbers, dates or truth values. In a column of
# words only an empty cell does: "NA" may be Namibia.
MARKS = frozenset({"", "na", "n/a", "nan", "null", "none", "nat", "?", "-"})
TRUE, FALSE = frozenset({"true", "t", "yes", "y"}), frozenset({"false", "f", "no", "n"})
ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?(Z|\+00:00)?")
FORMATS = ("%Y/%m/%d", "%d.%m.%Y")  # 03/04/2025 is not among them: it has two meanings
MICROSECONDS = np.dtype("datetime64[us]")


def take(values: Column, rows: NDArray[np.int64]) -> Column:
    """Some cells, in this order."""
    if isinstance(values, np.ndarray):
        return values[rows]
    return [str(values[i]) for i in rows.tolist()]


def is_typed(values: Column, kinds: str) -> bool:
    return isinstance(values, np.ndarray) and values.dtype.kind in kinds


def words(values: Column) -> list[str]:
    """Every cell as text: a whole number has no decimal point, in whatever kind of file it is."""
    if is_typed(values, "f"):
        return [_word(value) for value in np.asarray(values, dtype=np.float64).tolist()]
    if is_typed(values, "M"):
        return ["" if text == "NaT" else text for text in np.asarray(values).astype(str).tolist()]
    return [str(value).strip() for value in values]


def _word(value: float) -> str:
    return "" if value != value else str(int(value)) if value.is_integer() else repr(value)


def numbers(values: Column) -> Numbers | None:
    """None if a cell is neither a number nor a gap."""
    if is_typed(values, "biuf"):
        return np.asarray(values, dtype=np.float64)
    if is_typed(values, "M"):
        return None
    try:
        return np.array([number(str(cell)) for cell in values], dtype=np.float64)
    except ValueError:
        return None


def number(cell: str) -> float:
    text = cell.strip()
    return np.nan if text.lower() in MARKS else float(text)


def truths(values: Column) -> Numbers | None:
    """1, 0 or NaN; None if a cell is none of the words for it."""
    if is_typed(values, "bif"):
        known = np.asarray(values, dtype=np.float64)
        return known if np.isin(known[~np.isnan(known)], (0.0, 1.0)).all() else None
    try:
        return np.array([truth(str(cell)) for cell in values], dtype=np.float64)
    except ValueError:
        return None


def truth(cell: str) -> float:
    text = cell.strip().lower()
    if text in TRUE or text == "1":
        return 1.0
    if text in FALSE or text == "0":
        return 0.0
    if text in MARKS:
        return np.nan
    raise ValueError(cell)


def dates(values: Column, pattern: str) -> Dates | None:
    """`pattern`: "iso", or one of `datetime.strptime`. None if a cell is no such date."""
    if is_typed(values, "M"):
        return np.asarray(values).astype(MICROSECONDS)
    if isinstance(values, np.ndarray) and values.dtype.kind not in "US":
        return None
    try:
        known = {cell: date(cell, pattern) for cell in dict.fromkeys(map(str, values))}
    except ValueError:
        return None
    return np.array([known[str(cell)] for cell in values], dtype=MICROSECONDS)


def date(cell: str, pattern: str) -> Any:
    text = cell.strip()
    if text.lower() in MARKS:
        return np.datetime64("NaT", "us")
    if pattern != "iso":
        return np.datetime64(datetime.strptime(text, pattern), "us")
    if not ISO.fullmatch(text):  # NumPy would take "today" as well
        raise ValueError(cell)
    return np.datetime64(text.removesuffix("Z").removesuffix("+00:00"), "us")


def pattern_of(values: Column) -> str | None:
    """How the dates of a column are written; None if it holds something else."""
    if is_typed(values, "M"):
        return "iso"
    first = next((cell for cell in values if str(cell).strip().lower() not in MARKS), None)
    for pattern in ("iso", *FORMATS):
        try:
            date(str(first), pattern)
        except ValueError:
            continue
        return pattern if dates(values, pattern) is not None else None
    return None


def first_wrong(values: Column, read: Callable[[str], object]) -> int:
    """The first cell that `read` refuses."""
    for row, cell in enumerate(values):
        try:
            read(str(cell))
        except ValueError:
            return row
    return 0
