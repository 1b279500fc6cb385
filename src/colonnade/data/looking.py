"""What would be done with each column of a table: `colonnade look`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np

from colonnade.common.text import first_of, nearest
from colonnade.data.preprocessing import cells
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
from colonnade.data.preprocessing.fitting import Unfit, fit_column
from colonnade.data.table_files import opened, row_count
from colonnade.errors import InputError

SHOWN = 5  # levels that are named


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


def look(
    path: Path,
    query: str | None = None,
    *,
    label: str | None = None,
    key: str | None = None,
    declared: Mapping[str, str] | None = None,
) -> Looked:
    """All rows count here; in a training, the treatment is chosen from the training rows."""
    with (
        tempfile.TemporaryDirectory(prefix="colonnade-") as folder,
        opened(path, query, Path(folder)) as columns,
    ):
        for option, name in (("--label", label), ("--key", key)):
            if name is not None and name not in columns:
                near = nearest(name, list(columns))
                raise InputError(f"{path}: no column {name!r}, which {option} names{near}.")
        known = {label: "label", key: "key"}
        rows = np.arange(row_count(columns))
        found = list(_looks(columns, rows, str(path), known, declared or {}))
    width = sum(one.width for one in found)
    return Looked(path=str(path), rows=len(rows), width=width, columns=found)


def _looks(
    columns: Mapping[str, Column],
    rows: np.ndarray,
    source: str,
    known: Mapping[str | None, str],
    declared: Mapping[str, str],
) -> Iterator[Look]:
    for name in columns:
        values = columns[name]
        texts = cells.words(values)
        counts = len({text for text in texts if text})
        facts = {"name": name, "values": counts}
        if name in known:
            empty = sum(not text for text in texts)
            yield Look(**facts, kind=known[name], gaps=empty, treatment="no feature", width=0)
            continue
        try:
            fitted = fit_column(name, values, rows, source, declared.get(name))
        except Unfit as error:
            yield Look(
                **facts,
                kind="mixed",
                gaps=sum(not text for text in texts),
                treatment="refused",
                width=0,
                detail=str(error).removeprefix(f"{source}: "),
            )
            continue
        yield Look(
            **facts,
            kind=kind_of(fitted, values),
            gaps=_gaps(fitted, values, texts),
            treatment="left out" if isinstance(fitted, Drop) else fitted.treatment,
            width=fitted.width,
            detail=detail_of(fitted),
        )


def _gaps(fitted: AnyFitted, values: Column, texts: list[str]) -> int:
    """In columns of words an empty cell; in others words for it, such as NA, as well."""
    if isinstance(fitted, OneHot | Ordinal | Drop):
        return sum(not text for text in texts)
    if cells.is_typed(values, "M"):
        return int(np.isnat(np.asarray(values)).sum())
    return sum(text.lower() in cells.MARKS for text in texts)


def kind_of(fitted: AnyFitted, values: Column) -> str:
    if isinstance(fitted, Drop):
        return "number" if cells.numbers(values) is not None and fitted.why != "empty" else "text"
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
        case Ordinal():
            return f"{len(fitted.levels):,} levels by frequency, {first_of(fitted.levels, 2)}"
        case Date():
            parts = "days, time of year, day of week"
            return parts + (", time of day" if fitted.clock else "")
        case Quantile():
            return f"heavy tail; ranks, median {fitted.fill:.4g}"
        case Boolean():
            return ""
        case Standard():
            if fitted.spread == 1.0 and fitted.fill == fitted.centre:
                return "one value only: says nothing"
            return f"mean {fitted.centre:.4g}, deviation {fitted.spread:.4g}"
