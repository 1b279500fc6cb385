"""What would be done with each column of a table: `colonnade look`."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from colonnade.common.seeds import numpy_stream
from colonnade.common.text import first_of, nearest
from colonnade.data.preprocessing import Preprocessing, cells
from colonnade.data.preprocessing.cells import Column
from colonnade.data.preprocessing.fitted import (
    AnyFitted,
    Boolean,
    Date,
    Drop,
    OneHot,
    Ordinal,
    Quantile,
    Standard,
)
from colonnade.data.preprocessing.fitting import Unfit, fit_column, has_codes
from colonnade.data.raw import unlabelled
from colonnade.data.rows import Indices
from colonnade.data.sql import Query
from colonnade.data.table_files import ParquetColumns, opened, row_count
from colonnade.errors import InputError

SHOWN = 5  # levels that are named
SAMPLE = 10**5  # rows of a large table that are looked at
STAY = "In a federation with rows.match they may stay: they are not trained on."


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """A column, as its cells show it."""

    name: str
    kind: str  # number, yes/no, category, date, text; key and label as the user says
    gaps: int
    values: int  # different ones, gaps not counted
    treatment: str
    width: int  # numbers that it becomes
    detail: str = ""


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    rows: int
    width: int
    columns: list[Look]
    sample: int | None = None  # so many rows were looked at; None: all
    fitted: bool = False  # on the training rows of a training that has begun; else on all rows


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A table, and what its owner says of it."""

    path: Path
    query: Query | None = None
    label: str | None = None
    key: str | None = None
    divider: str | None = None  # the column that rows are split by
    only: list[str] | None = None  # the columns that are used; None: all
    declared: Mapping[str, str] = {}
    labelled: int | None = None  # so many rows, the first ones, need a label; None: all
    elsewhere: bool = False  # a label that is missing may be at another party

    @property
    def known(self) -> dict[str | None, str]:
        """Columns that are no features, and what they are."""
        return {self.divider: "split", self.label: "label", self.key: "key"}


def look(wanted: Wanted, fitted: Preprocessing | None = None) -> Looked:
    """What a training does with each column, if it has all rows for training rows; or `fitted`,
    what a training has made of them."""
    path = wanted.path
    with (
        tempfile.TemporaryDirectory(prefix="colonnade-") as folder,
        opened(path, wanted.query, Path(folder)) as columns,
    ):
        for option, name in (("label", wanted.label), ("key", wanted.key)):
            if name is not None and name not in columns:
                near = nearest(name, list(columns))
                raise InputError(
                    f"{path}: no column {name!r}, which is named as the {option}{near}."
                )
        before = {} if fitted is None else {column.name: column for column in fitted.columns}
        rows = row_count(columns)
        sampled = _sampled(columns)
        found = [
            _look(name, _cells(columns, name, sampled), wanted, before.get(name), sampled)
            for name in columns
        ]
    return Looked(
        path=str(path),
        rows=rows,
        width=sum(one.width for one in found),
        columns=found,
        fitted=fitted is not None,
        sample=None if sampled is None else len(sampled),
    )


def _sampled(columns: Mapping[str, Column]) -> Indices | None:
    """The rows of a large table that are looked at, drawn by a fixed seed. None: all."""
    if not isinstance(columns, ParquetColumns):
        return None
    drawn = numpy_stream(0, "look").choice(columns.rows, min(columns.rows, SAMPLE), replace=False)
    return np.sort(drawn)


def _cells(columns: Mapping[str, Column], name: str, sampled: Indices | None) -> Column:
    return columns.take(name, sampled) if isinstance(columns, ParquetColumns) else columns[name]


def _look(
    name: str,
    values: Column,
    wanted: Wanted,
    fitted: AnyFitted | None,
    sampled: Indices | None,
) -> Look:
    if isinstance(values, cells.Unusable):
        return _look_unusable(name, values, wanted)
    texts = cells.words(values)
    different = Counter(text for text in texts if text)
    empty = len(texts) - different.total()
    told = partial(Look, name=name, values=len(different))
    unused = partial(told, gaps=empty, treatment="no feature", width=0)
    if name in wanted.known:
        kind = wanted.known[name]
        detail = _named_detail(kind, different)
        if kind == "label" and empty:
            if why := _lacking_labels(name, texts, wanted, sampled):
                return told(kind=kind, gaps=empty, treatment="refused", width=0, detail=why)
            detail += f"; {_without_label(empty, wanted)}"
        return unused(kind=kind, detail=detail)
    if wanted.only is not None and name not in wanted.only:
        return unused(kind="", detail="not used")
    source = str(wanted.path)
    try:
        fitted = fitted or fit_column(
            name, values, np.arange(len(texts)), source, wanted.declared.get(name)
        )
    except Unfit as error:
        why = str(error).removeprefix(f"{source}: ")
        return told(kind="mixed", gaps=empty, treatment="refused", width=0, detail=why)
    return told(
        kind=kind_of(fitted, values),
        gaps=_gaps(fitted, values, texts),
        treatment="left out" if isinstance(fitted, Drop) else fitted.treatment,
        width=fitted.width,
        detail=_key_perhaps(name, values, fitted, wanted) + detail_of(fitted),
    )


def _lacking_labels(
    name: str, texts: list[str], wanted: Wanted, sampled: Indices | None
) -> str | None:
    """Why a training would refuse the labels that are missing; None: it would not."""
    rows = np.arange(len(texts)) if sampled is None else sampled
    empty = np.array([not text for text in texts])
    if empty.all():
        return f"label column {name!r} is empty in every row."
    need = rows < (np.inf if wanted.labelled is None else wanted.labelled)
    if not empty[need].any():
        return None
    return f"{unlabelled(empty[need], name, rows[need])} {STAY}"


def _without_label(rows: int, wanted: Wanted) -> str:
    which = "1 row" if rows == 1 else f"{rows:,} rows"
    if wanted.elsewhere:
        return f"{which} without a label here may have one at another party"
    are = "is" if rows == 1 else "are"
    return f"{which} without a label {are} not trained on, and may be asked for"


def _look_unusable(name: str, values: cells.Unusable, wanted: Wanted) -> Look:
    """A column whose type gives no cells; an error if it is asked for by name."""
    declared = wanted.declared.get(name, "drop")
    if name in wanted.known or name in (wanted.only or ()) or declared != "drop":
        raise values.refused()
    used = wanted.only is None
    return Look(
        name=name,
        kind="",
        gaps=0,
        values=0,
        treatment="left out" if used else "no feature",
        width=0,
        detail=values.what if used else "not used",
    )


def _key_perhaps(name: str, values: Column, fitted: AnyFitted, wanted: Wanted) -> str:
    if wanted.key is not None or not isinstance(fitted, Drop) or not has_codes(values):
        return ""
    return f"leading zeros: may be a key (--key {name}); "


def _named_detail(kind: str, different: Counter[str]) -> str:
    """Of a key, how many rows it does not tell apart; of a label or a split, its values."""
    if kind != "key":
        return first_of(sorted(different), SHOWN)
    twice = sum(count > 1 for count in different.values())
    return f"{twice:,} of them in more than one row" if twice else ""


def _gaps(fitted: AnyFitted, values: Column, texts: list[str]) -> int:
    """In columns of words an empty cell; in others words for it, such as NA, as well."""
    if isinstance(fitted, OneHot | Ordinal | Drop):
        return sum(not text for text in texts)
    if cells.is_typed(values, "M"):
        return int(np.isnat(np.asarray(values)).sum())
    return sum(text.lower() in cells.MARKS for text in texts)


def kind_of(fitted: AnyFitted, values: Column) -> str:
    if isinstance(fitted, Drop):
        known = cells.numbers(values) is not None and not has_codes(values)
        return "number" if known and fitted.why != "empty" else "text"
    if isinstance(fitted, Boolean):
        return "yes/no"
    if isinstance(fitted, Standard):
        return "number"
    return "date" if isinstance(fitted, Date) else "category"


def detail_of(fitted: AnyFitted) -> str:
    """In a few words, what is worth knowing of the treatment."""
    match fitted:
        case Drop():
            return fitted.why
        case OneHot():
            rare = f"; {len(fitted.rare):,} rare ones are 'other'" if fitted.rare else ""
            return f"{first_of(fitted.levels, SHOWN)}{rare}"
        case Ordinal(declared=True):
            return f"in this order: {first_of(fitted.levels, SHOWN)}"
        case Ordinal():
            return f"{len(fitted.levels):,} levels by frequency, {first_of(fitted.levels, 2)}"
        case Date():
            parts = "days, time of year, day of week" + (", time of day" if fitted.clock else "")
            return f"{parts}; written as {cells.written_as(fitted.pattern)}"
        case Quantile():
            return f"heavy tail; ranks, median {fitted.fill:.4g}{_written(fitted)}"
        case Boolean():
            return ""
        case Standard():
            if fitted.spread == 1.0 and fitted.fill == fitted.centre:
                return "one value only: says nothing"
            return f"mean {fitted.centre:.4g}, deviation {fitted.spread:.4g}{_written(fitted)}"


def _written(fitted: Standard) -> str:
    return f"; with a decimal {fitted.mark}" if fitted.mark else ""
