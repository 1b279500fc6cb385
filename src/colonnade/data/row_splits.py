"""Which rows are for training, validation and test, by a column: by time, by group, or as given."""

from __future__ import annotations

import base64
import zlib

import msgspec
import numpy as np
from numpy.typing import NDArray

from colonnade.common.seeds import numpy_stream
from colonnade.data.preprocessing import cells
from colonnade.data.preprocessing.cells import Column
from colonnade.errors import InputError

TRAIN, VALIDATION, TEST, LEFT_OUT = range(4)
Parts = NDArray[np.int8]  # by row
WORDS = {
    "train": TRAIN,
    "training": TRAIN,
    "validation": VALIDATION,
    "valid": VALIDATION,
    "val": VALIDATION,
    "test": TEST,
    "": LEFT_OUT,
}
KEYS = ("time", "group", "column")
LEAVE = "Leave these rows out with data.query, or fill their cells."
TIMELESS = (
    f"{LEAVE} Or write train, validation or test into a column, nothing for a row to leave out, "
    "and name it in split_by.column."
)


class SplitBy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`split_by`: exactly one of these names a column."""

    time: str | None = None  # later rows are for test
    group: str | None = None  # rows with one value stay together
    column: str | None = None  # holds train, validation or test
    party: str | None = None  # of a federation: who has the column

    def __post_init__(self) -> None:
        if sum(getattr(self, key) is not None for key in KEYS) != 1:
            raise InputError(
                "split_by: give exactly one of time, group and column, each the name of a column."
            )

    @property
    def name(self) -> str:
        """Of the column."""
        return self.time or self.group or self.column or ""


def parts_by(
    by: SplitBy, values: Column, source: str, *, test: float, validation: float, seed: int
) -> Parts:
    """For each row, which part it belongs to."""
    where = f"{source}: column {by.name!r}"
    if by.column is not None:
        return _given(values, where)
    if by.time is not None:
        return _by_rank(_moments(values, where), test, validation, where)
    groups = np.array(cells.words(values))
    _refuse_gaps(groups == "", where, "a group")
    names, place = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        raise InputError(f"{where} holds one group only; split_by.group needs several.")
    sizes = np.bincount(place)
    order = numpy_stream(seed, "split", "groups").permutation(len(names))
    return _cut(order, sizes, test, validation)[place]


def packed_parts(parts: Parts) -> str:
    """As text, to be told to other parties."""
    return base64.b64encode(zlib.compress(parts.tobytes(), 9)).decode()


def unpacked_parts(text: str, rows: int) -> Parts:
    """For exactly so many rows; whatever is not that is an error."""
    try:
        opened = zlib.decompressobj()
        raw = opened.decompress(base64.b64decode(text, validate=True), rows + 1)
    except (ValueError, zlib.error) as error:
        raise InputError(f"rows.parts: cannot be read ({error}).") from error
    parts = np.frombuffer(raw, dtype=np.int8)
    if len(parts) != rows or not np.isin(parts, range(4)).all():
        raise InputError(f"rows.parts: expected one part for each of {rows:,} rows.")
    return parts


def _given(values: Column, where: str) -> Parts:
    words = [text.lower() for text in cells.words(values)]
    for row, word in enumerate(words, 1):
        if word not in WORDS:
            raise InputError(
                f"{where}, data row {row} holds {word!r} (data rows count from 1); split_by.column "
                "expects train, validation or test, or an empty cell for a row to leave out."
            )
    return np.array([WORDS[word] for word in words], dtype=np.int8)


def _moments(values: Column, where: str) -> NDArray[np.float64]:
    pattern = cells.pattern_of(values)
    known = None if pattern is None else cells.dates(values, pattern)
    if known is not None:
        found = np.where(np.isnat(known), np.nan, known.astype(np.int64).astype(np.float64))
    else:
        numbers = cells.numbers(values)
        if numbers is None:
            raise InputError(
                f"{where} holds neither numbers nor dates whose meaning is clear, such as "
                "2025-01-31; split_by.time needs one of them."
            )
        found = numbers
    _refuse_gaps(np.isnan(found), where, "a time", TIMELESS)
    return found


def _by_rank(moments: NDArray[np.float64], test: float, validation: float, where: str) -> Parts:
    """The latest for test, those before for validation. Rows of one moment stay together."""
    times, place = np.unique(moments, return_inverse=True)
    if len(times) < 2:
        raise InputError(f"{where} holds one time only; split_by.time needs several.")
    latest_first = np.arange(len(times))[::-1]
    return _cut(latest_first, np.bincount(place), test, validation)[place]


def _cut(order: NDArray[np.int64], sizes: NDArray[np.int64], test: float, val: float) -> Parts:
    """Whole groups in this order: test until its share is reached, then validation; the share of
    validation is of what the test leaves."""
    parts = np.full(len(sizes), TRAIN, dtype=np.int8)
    rows = int(sizes.sum())
    wanted, begin = round(test * rows), 0
    for part, share in ((TEST, None), (VALIDATION, val)):
        if share is not None:
            left = int(sizes[order[begin:]].sum())
            wanted = round(share * left)
        before = np.concatenate([[0], np.cumsum(sizes[order[begin:]])])[:-1]
        # A group goes where more than half of it fits; the last one is always for training.
        count = int((before + sizes[order[begin:]] / 2 <= wanted).sum()) if wanted else 0
        count = min(max(count, 1 if wanted else 0), len(order) - begin - 1)
        parts[order[begin : begin + count]] = part
        begin += count
    return parts


def _refuse_gaps(empty: NDArray[np.bool_], where: str, what: str, advice: str = LEAVE) -> None:
    if empty.any():
        row = int(np.argmax(empty)) + 1
        raise InputError(
            f"{where}, data row {row} is empty, in all {int(empty.sum()):,} of {len(empty):,} rows "
            f"(data rows count from 1); every row needs {what} to be split by. {advice}"
        )
