"""Cells of a column as numbers, truth values, dates or words. A gap is NaN, NaT or ""."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import InputError

Column = Sequence[str] | NDArray[np.generic]  # text as in the file, or typed, NaN or NaT for gaps
Numbers = NDArray[np.float64]
Dates = NDArray[np.datetime64]

# What counts as empty where all other cells are numbers, dates or truth values. In a column of
# words only an empty cell does: "NA" may be Namibia.
MARKS = frozenset({"", "na", "n/a", "nan", "null", "none", "nat", "?", "-"})
# Numbers as people write them: 1,234.5 with a decimal point, 1.234,5 with a decimal comma. Groups
# of three digits may be parted, also by a space or an apostrophe.
DECIMAL = {"point": ".", "comma": ","}
WRITTEN = {
    mark: re.compile(rf"[+-]?([1-9]\d{{0,2}}([{other}\s'’]\d{{3}})+|\d+)([{decimal}]\d+)?")
    for mark, decimal, other in (("point", ".", ","), ("comma", ",", "."))
}
TRUE, FALSE = frozenset({"true", "t", "yes", "y"}), frozenset({"false", "f", "no", "n"})
ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?(Z|\+00:00)?")
LIKE_A_DATE = re.compile(
    r"(\d{4}([-/.])\d\d?\2\d\d?|\d\d?([-/.])\d\d?\3\d{4}|\d\d([-/.])\d\d\4\d\d)([T ]\d\d?:\d\d.*)?"
)
FORMATS = ("%Y/%m/%d", "%d.%m.%Y")
# 03/04/2025 has two meanings; among other dates of its column one of them may be the only one.
ORDERS = (("%d/%m/%Y", "%m/%d/%Y"), ("%d-%m-%Y", "%m-%d-%Y"))
CLOCKS = ("", " %H:%M", " %H:%M:%S")
OR = "|"  # between patterns
MICROSECONDS = np.dtype("datetime64[us]")


class Unusable(Sequence[str]):
    """A column whose type gives no cells, such as lists. Whoever asks for a cell is refused.
    `what`: it holds."""

    def __init__(self, name: str, what: str, source: str, rows: int) -> None:
        self.name, self.what, self.source, self.rows = name, what, source, rows

    def refused(self) -> InputError:
        return InputError(
            f"{self.source}: column {self.name!r} holds values of a type that is not used: "
            f"{self.what}; leave it out, or make text or numbers of it with data.query."
        )

    def take(self, rows: NDArray[np.int64]) -> Unusable:
        return Unusable(self.name, self.what, self.source, len(rows))

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, place: Any) -> Any:
        raise self.refused()

    def __array__(self, *_: Any, **__: Any) -> NDArray[np.generic]:
        raise self.refused()


def take(values: Column, rows: NDArray[np.int64]) -> Column:
    """Some cells, in this order."""
    if isinstance(values, Unusable):
        return values.take(rows)
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


def numbers(values: Column, mark: str = "") -> Numbers | None:
    """None if a cell is neither a number nor a gap. `mark`: see `number`."""
    if is_typed(values, "biuf"):
        return np.asarray(values, dtype=np.float64)
    if is_typed(values, "M"):
        return None
    try:
        return np.array([number(str(cell), mark) for cell in values], dtype=np.float64)
    except ValueError:
        return None


def number(cell: str, mark: str = "") -> float:
    """`mark`: how numbers are written, one of `WRITTEN`; "": as programs write them."""
    text = cell.strip()
    if text.lower() in MARKS:
        return np.nan
    if not mark:
        return float(text)
    if not WRITTEN[mark].fullmatch(text):
        raise ValueError(cell)
    kept = "0123456789+-" + DECIMAL[mark]
    return float("".join(c for c in text if c in kept).replace(",", "."))


def mark_of(values: Column) -> str | None:
    """How the numbers of a column of text are written, if no other way is possible. None: they are
    no numbers, or 1,234 may be a thousand or one."""
    texts = {text for text in words(values) if text.lower() not in MARKS}
    fitting = [mark for mark in WRITTEN if all(map(WRITTEN[mark].fullmatch, texts))]
    return fitting[0] if texts and len(fitting) == 1 else None


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
    """`pattern`: see `date`. None if a cell is no such date."""
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
    """`pattern`: "iso", one of `datetime.strptime`, or several with | between them, of which the
    first that fits counts."""
    text = cell.strip()
    if text.lower() in MARKS:
        return np.datetime64("NaT", "us")
    for one in pattern.split(OR):
        try:
            return _iso(text) if one == "iso" else _written(text, one)
        except ValueError:
            continue
    raise ValueError(cell)


def _iso(text: str) -> Any:
    if not ISO.fullmatch(text):  # NumPy would take "today" as well
        raise ValueError(text)
    return np.datetime64(text.removesuffix("Z").removesuffix("+00:00"), "us")


def _written(text: str, pattern: str) -> Any:
    """A time of day may follow a date."""
    for clock in CLOCKS:
        try:
            return np.datetime64(datetime.strptime(text, pattern + clock), "us")
        except ValueError:
            continue
    raise ValueError(text)


def pattern_of(values: Column) -> str | None:
    """How the dates of a column are written; None if it holds something else, or dates of which it
    does not show what comes first, the day or the month."""
    if is_typed(values, "M"):
        return "iso"
    texts = dict.fromkeys(str(cell).strip() for cell in values)
    left = [text for text in texts if text.lower() not in MARKS]
    found: list[str] = []
    for pattern in ("iso", *FORMATS):
        others = [text for text in left if not fits(text, pattern)]
        found += [pattern] if len(others) < len(left) else []
        left = others
        if left and not looks_like_date(left[0]):
            return None
    for orders in ORDERS if left else ():
        fitting = [one for one in orders if all(fits(text, one) for text in left)]
        if len(fitting) == 1:
            return OR.join([*found, *fitting])
    return None if left or not found else OR.join(found)


def fits(text: str, pattern: str) -> bool:
    try:
        date(text, pattern)
    except ValueError:
        return False
    return True


def looks_like_date(text: str) -> bool:
    return LIKE_A_DATE.fullmatch(text.strip()) is not None


def written_as(pattern: str) -> str:
    """An example of each way in which dates are written."""
    day = datetime(2025, 1, 31)
    ways = [str(day.date()) if one == "iso" else day.strftime(one) for one in pattern.split(OR)]
    return " or ".join(ways)


def first_wrong(values: Column, read: Callable[[str], object]) -> int:
    """The first cell that `read` refuses."""
    for row, cell in enumerate(values):
        try:
            read(str(cell))
        except ValueError:
            return row
    return 0
