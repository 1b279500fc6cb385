"""What was fitted for a column on the training rows, and how it turns cells into float32 numbers.

These records are the saved form: JSON, one object per column. Applying one to a cell gives the same
bytes in training and in prediction, and does not depend on the other cells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from colonnade.data.preprocessing import cells
from colonnade.data.preprocessing.cells import Column, Numbers
from colonnade.errors import InputError

Features = NDArray[np.float32]  # [rows, width]
DAY = 86_400 * 10**6  # microseconds
YEAR = 365.2425
LEAST = 1e-3  # quantiles beyond it are cut: 3.1 standard deviations
OTHER, EMPTY = "other", "is empty"


class Remarks:
    """What was noticed while cells were turned into numbers, counted by column."""

    def __init__(self) -> None:
        self.new: Counter[str] = Counter()  # cells with a level that no training row has
        self.gaps: Counter[str] = Counter()  # empty cells of a column that had none in training

    def notes(self) -> tuple[str, ...]:
        new = [
            f"column {c!r}: {n:,} cells hold values that no training row has"
            for c, n in self.new.items()
        ]
        gaps = [
            f"column {c!r}: {n:,} empty cells, and no training row has one"
            for c, n in self.gaps.items()
        ]
        return (*new, *gaps)


class Fitted(msgspec.Struct, frozen=True, kw_only=True, tag_field="treatment", dict=True):
    """A column. `gaps`: some training rows were empty, so a number more says which rows are."""

    name: str
    gaps: bool = False

    @property
    def treatment(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the numbers that it becomes."""
        return (self.name, *((f"{self.name} {EMPTY}",) if self.gaps else ()))

    @property
    def width(self) -> int:
        return len(self.names)

    def apply(self, values: Column, source: str, remarks: Remarks) -> Features:
        raise NotImplementedError

    def _with_gaps(self, found: Features, empty: NDArray[np.bool_], remarks: Remarks) -> Features:
        if self.gaps:
            return np.column_stack([found, empty.astype(np.float32)])
        if count := int(empty.sum()):
            remarks.gaps[self.name] += count
        return found

    def _wrong(
        self, values: Column, read: Callable[[str], object], expected: str, source: str
    ) -> InputError:
        row = cells.first_wrong(values, read)
        return InputError(
            f"{source}: column {self.name!r}, data row {row + 1} is {str(values[row])!r} (data "
            f"rows count from 1); expected {expected}, as in the training rows."
        )


class Standard(Fitted, frozen=True, kw_only=True, tag="standard"):
    """A number: gaps take the median of the training rows; then mean 0 and deviation 1."""

    fill: float
    centre: float
    spread: float
    mark: str = ""  # how it is written; see `cells.number`

    def apply(self, values: Column, source: str, remarks: Remarks) -> Features:
        known = self.read(values, source)
        empty = np.isnan(known)
        filled = np.where(empty, self.fill, known)
        return self._with_gaps(self.scaled(filled), empty, remarks)

    def read(self, values: Column, source: str) -> Numbers:
        found = cells.numbers(values, self.mark)
        if found is None:
            expected = f"a number with a decimal {self.mark}" if self.mark else "a number"
            raise self._wrong(values, lambda cell: cells.number(cell, self.mark), expected, source)
        check_finite(found, source, self.name)
        return found

    def scaled(self, known: Numbers) -> Features:
        return ((known - self.centre) / self.spread).astype(np.float32)[:, None]


class Boolean(Standard, frozen=True, kw_only=True, tag="boolean"):
    """Yes or no: 1 or 0, then as a number."""

    def read(self, values: Column, source: str) -> Numbers:
        found = cells.truths(values)
        if found is None:
            raise self._wrong(values, cells.truth, "true or false, yes or no, 1 or 0", source)
        return found


class Quantile(Standard, frozen=True, kw_only=True, tag="quantile"):
    """A number with a heavy tail: its rank among the training rows, as a normal deviate."""

    landmarks: list[float]  # quantiles of the training rows, at even distances

    def scaled(self, known: Numbers) -> Features:
        from scipy.special import ndtri

        marks = np.array(self.landmarks)
        shares = np.linspace(0.0, 1.0, len(marks))
        # From below and from above: a value that is many landmarks gets the middle of them.
        below = np.interp(known, marks, shares)
        above = -np.interp(-known, -marks[::-1], -shares[::-1])
        rank = np.clip((below + above) / 2, LEAST, 1 - LEAST)
        return ndtri(rank).astype(np.float32)[:, None]


class Levels(Fitted, frozen=True, kw_only=True):
    """Categories. `numeric`: the levels are numbers, so that "1.0" and 1 are one level."""

    levels: list[str]
    numeric: bool = False

    @cached_property
    def places(self) -> dict[str, int]:
        return {level: i for i, level in enumerate(self.levels)}

    def codes(self, values: Column, remarks: Remarks) -> tuple[NDArray[np.int64], Any]:
        """The level of each cell: -1 for a level of no training row; and which cells are empty."""
        texts = level_words(values, self.numeric)
        places = self.places
        codes = np.array([places.get(text, -1) for text in texts], dtype=np.int64)
        empty = np.array([not text for text in texts], dtype=bool)
        return codes, empty


class OneHot(Levels, frozen=True, kw_only=True, tag="onehot"):
    """One number for each level; rare levels of the training rows are one, `other`. A level that
    no training row has counts as `other`; where no level was rare, all numbers are 0."""

    rare: list[str] = []

    @property
    def names(self) -> tuple[str, ...]:
        other = [OTHER] if self.rare else []
        empty = (f"{self.name} {EMPTY}",) if self.gaps else ()
        return (*(f"{self.name}={level}" for level in [*self.levels, *other]), *empty)

    @cached_property
    def known_rare(self) -> frozenset[str]:
        return frozenset(self.rare)

    def apply(self, values: Column, source: str, remarks: Remarks) -> Features:
        codes, empty = self.codes(values, remarks)
        unknown = (codes < 0) & ~empty
        found = np.zeros((len(codes), len(self.levels) + bool(self.rare)), dtype=np.float32)
        found[np.flatnonzero(codes >= 0), codes[codes >= 0]] = 1.0
        if self.rare:
            found[unknown, -1] = 1.0
        if unknown.any():
            self._count_new(values, unknown, remarks)
        return self._with_gaps(found, empty, remarks)

    def _count_new(self, values: Column, unknown: NDArray[np.bool_], remarks: Remarks) -> None:
        texts = level_words(cells.take(values, np.flatnonzero(unknown)), self.numeric)
        if new := sum(text not in self.known_rare for text in texts):
            remarks.new[self.name] += new


class Ordinal(Levels, frozen=True, kw_only=True, tag="ordinal"):
    """One number: the rank of the level, the most frequent first, scaled. A level that no training
    row has ranks after all others. `declared`: the levels are in an order that the user has
    declared; a level that is not among them takes the median, since it has no place there."""

    fill: float
    centre: float
    spread: float
    declared: bool = False

    def apply(self, values: Column, source: str, remarks: Remarks) -> Features:
        codes, empty = self.codes(values, remarks)
        unknown = (codes < 0) & ~empty
        if count := int(unknown.sum()):
            remarks.new[self.name] += count
        new = self.fill if self.declared else len(self.levels)
        ranks = np.where(unknown, new, codes).astype(np.float64)
        ranks = np.where(empty, self.fill, ranks)
        scaled = ((ranks - self.centre) / self.spread).astype(np.float32)[:, None]
        return self._with_gaps(scaled, empty, remarks)


class Date(Fitted, frozen=True, kw_only=True, tag="date"):
    """Days since 1970, scaled; where in the year and in the week it is, as points on a circle; and
    where in the day, if training rows had a time."""

    pattern: str  # see `cells.date`
    fill: float
    centre: float
    spread: float
    clock: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        circles = ("year", "week", *(("day",) if self.clock else ()))
        points = [f"{self.name} {axis} of {c}" for c in circles for axis in ("sine", "cosine")]
        empty = (f"{self.name} {EMPTY}",) if self.gaps else ()
        return (f"{self.name} days", *points, *empty)

    def apply(self, values: Column, source: str, remarks: Remarks) -> Features:
        found = cells.dates(values, self.pattern)
        if found is None:
            kind = f"a date such as {cells.written_as(self.pattern)}"
            raise self._wrong(values, lambda cell: cells.date(cell, self.pattern), kind, source)
        empty = np.isnat(found)
        days = np.where(empty, np.nan, days_of(found))
        turns = [days / YEAR, (days + 3) / 7, *([days % 1] if self.clock else [])]  # Monday is 0
        points = [f(2 * np.pi * turn) for turn in turns for f in (np.sin, np.cos)]
        scaled = (np.where(empty, self.fill, days) - self.centre) / self.spread
        numbers = np.column_stack([scaled, *(np.where(empty, 0.0, p) for p in points)])
        return self._with_gaps(numbers.astype(np.float32), empty, remarks)


class Drop(Fitted, frozen=True, kw_only=True, tag="drop"):
    """Left out."""

    why: str

    @property
    def names(self) -> tuple[str, ...]:
        return ()

    def apply(self, values: Column, source: str, remarks: Remarks) -> Features:
        return np.zeros((len(values), 0), dtype=np.float32)


AnyFitted = Standard | Boolean | Quantile | OneHot | Ordinal | Date | Drop


def days_of(known: cells.Dates) -> Numbers:
    whole = known.astype("datetime64[us]").astype(np.int64)
    return whole / DAY


def level_words(values: Column, numeric: bool) -> list[str]:
    if numeric:
        known = cells.numbers(values)
        if known is not None:
            return cells.words(known)
        return [_number_word(text) for text in cells.words(values)]
    return cells.words(values)


def _number_word(text: str) -> str:
    """One cell among others that are no numbers."""
    try:
        return cells.words(np.array([cells.number(text)]))[0]
    except ValueError:
        return text


def check_finite(
    found: Numbers, source: str, column: str, rows: NDArray[np.int64] | None = None
) -> None:
    """`rows`: the row numbers of these cells, if they are not all rows."""
    infinite = np.isinf(found)
    if infinite.any():
        place = int(np.argmax(infinite))
        row = place if rows is None else int(rows[place])
        raise InputError(
            f"{source}: column {column!r}, data row {row + 1} is infinite ({found[place]}; data "
            "rows count from 1); every number must be finite."
        )
