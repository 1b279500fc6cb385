"""What to do with a column: chosen from its training rows, or as declared; then fitted on them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray

from colonnade.common.text import first_of, nearest
from colonnade.data.preprocessing import cells
from colonnade.data.preprocessing.cells import Column, Numbers
from colonnade.data.preprocessing.fitted import (
    AnyFitted,
    Boolean,
    Date,
    Drop,
    OneHot,
    Ordinal,
    Quantile,
    Standard,
    check_finite,
    days_of,
    level_words,
)
from colonnade.data.scaling import Scaler
from colonnade.errors import InputError

Treatment = Literal["standard", "quantile", "boolean", "onehot", "ordinal", "date", "drop"]
TREATMENTS: tuple[str, ...] = get_args(Treatment)

MOST = 64  # levels of a one-hot column; more are ranked
RARE = 0.002  # share of the training rows; rarer levels are joined, and those with fewer than 3
FEWEST = 3
FAR = 30.0  # deviations from the median that a heavy tail reaches, as the quartiles show them
NORMAL_QUARTILES = 1.349  # standard deviations between the quartiles of a normal distribution
LANDMARKS = 101


UNCLEAR = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")  # thousands, or a number below a thousand
CODES = 20  # different values that numbers and words together may have to be categories
# What most cells of a column that is left out may look like, and how it can be used.
TIMES = re.compile(r"([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d)?")
UNITS = re.compile(r"[+-]?\s*[%€$£¥]\s*[+-]?\d[\d.,'’\s]*|[+-]?\d[\d.,'’\s]*[%€$£¥]")
LOOKS = (
    (TIMES, "times", 'use them by prepare = "date:%H:%M" (with seconds "date:%H:%M:%S")'),
    (UNITS, "numbers with a unit", "take the unit off, in the file or with data.query"),
)
# The number of a row, as pandas writes it when it is not told index=False.
NAMELESS = re.compile(r"|Unnamed: \d+|__index_level_\d+__")


class Unfit(InputError):
    """A column that cannot be used as declared."""


def check_treatment(declared: str, key: str) -> None:
    """`date:%d/%m/%Y` says how dates are written, several ways with | between them;
    `standard:comma` how numbers are; `ordinal:low|mid|high` the order of levels."""
    kind, _, how = declared.partition(":")
    written = kind == "date" or (kind in ("standard", "quantile") and how in cells.WRITTEN)
    if kind == "ordinal" and how:
        levels = _declared_levels(how)
        written = True
        if len(levels) < 2 or not all(levels) or len(set(levels)) < len(levels):
            raise InputError(
                f'{key} = "{declared}": expected two levels or more, no two alike, from the lowest '
                'to the highest with | between them, e.g. "ordinal:low|mid|high".'
            )
    if kind not in TREATMENTS or (how and not written):
        raise InputError(
            f'{key} = "{declared}": is no treatment{nearest(kind, TREATMENTS)}; there are '
            f'{", ".join(TREATMENTS)}, "date:%d/%m/%Y" for dates in another order, '
            '"standard:comma" or "standard:point" for the decimal mark of numbers, and '
            '"ordinal:low|mid|high" for levels in an order.'
        )


def fit_column(
    name: str,
    values: Column,
    rows: NDArray[np.int64],
    source: str,
    declared: str | None = None,
) -> AnyFitted:
    """`values`: of the training rows only. `rows`: their numbers, for errors."""
    where = f"{source}: column {name!r}"
    if declared == "drop":
        return Drop(name=name, why="as declared")
    if isinstance(values, cells.Unusable):
        if declared is None:
            return Drop(name=name, why=values.what)
        raise values.refused()
    if declared is not None:
        known = cells.numbers(values)
        if known is not None:
            check_finite(known, source, name, rows)
        return _as_declared(name, values, declared, where)
    if cells.is_typed(values, "M"):
        return _date(name, values, "iso", where)
    if cells.is_typed(values, "b"):
        return _boolean(name, values, where)
    known = None if has_codes(values) else cells.numbers(values)
    if known is not None:
        check_finite(known, source, name, rows)
        return _usual_number(name, known)
    return _usual_words(name, values, rows, where)


def _as_declared(name: str, values: Column, declared: str, where: str) -> AnyFitted:
    kind, _, pattern = declared.partition(":")
    if not any(cells.words(values)):
        raise Unfit(f'{where} is empty in all training rows, but prepare says "{declared}".')
    if kind == "date":
        return _date(name, values, pattern or cells.pattern_of(values), where)
    if kind == "boolean":
        return _boolean(name, values, where)
    if kind == "ordinal" and pattern:
        return _ordered(name, values, _declared_levels(pattern), where)
    if kind in ("onehot", "ordinal"):
        return (_onehot if kind == "onehot" else _ordinal)(name, values)
    mark = pattern or ("" if cells.numbers(values) is not None else cells.mark_of(values) or "")
    known = cells.numbers(values, mark)
    if known is None:
        cell = values[cells.first_wrong(values, lambda cell: cells.number(cell, mark))]
        raise Unfit(
            f'{where} holds {str(cell)!r}, which is no number, but prepare says "{declared}".'
        )
    return (_quantile if kind == "quantile" else _standard)(name, known, mark)


def has_codes(values: Column) -> bool:
    """Numbers with leading zeros, such as 01234, are codes."""
    if isinstance(values, np.ndarray) and values.dtype.kind not in "US":
        return False
    texts = (str(cell).strip() for cell in values)
    return any(len(text) > 1 and text[0] == "0" and text.isdecimal() for text in texts)


# -- numbers --------------------------------------------------------------------------------------


def _usual_number(name: str, known: Numbers, mark: str = "") -> AnyFitted:
    filled = known[~np.isnan(known)]
    if not len(filled):
        return Drop(name=name, why="empty")
    if _named_id(name) and len(filled) > 1 and _all_different_wholes(filled):
        return Drop(name=name, why="ids: a different number in each row")
    if NAMELESS.fullmatch(name) and len(filled) > 1 and _all_different_wholes(filled):
        return Drop(name=name, why="no name, and a different number in each row: row numbers")
    plain = _standard(name, known, mark)
    low, middle, high = np.quantile(filled, (0.25, 0.5, 0.75))
    # By the quartiles: a value far out widens the standard deviation, so that of n values none is
    # further than √n of them.
    spread = (high - low) / NORMAL_QUARTILES or plain.spread
    far = np.abs(filled - middle).max() / spread
    heavy = far > FAR and len(np.unique(filled)) > FEWEST * 7
    return _quantile(name, known, mark) if heavy else plain


def _named_id(name: str) -> bool:
    words = name.replace("-", "_").replace(" ", "_").lower().split("_")
    return "id" in (words[0], words[-1]) or name.endswith(("ID", "Id"))


def _all_different_wholes(filled: Numbers) -> bool:
    return bool((filled == np.round(filled)).all()) and len(np.unique(filled)) == len(filled)


def _standard(name: str, known: Numbers, mark: str = "") -> Standard:
    return Standard(name=name, mark=mark, **_scale(known))


def _quantile(name: str, known: Numbers, mark: str = "") -> Quantile:
    filled = known[~np.isnan(known)]
    marks = np.quantile(filled, np.linspace(0, 1, min(LANDMARKS, len(filled))))
    return Quantile(name=name, mark=mark, **_scale(known), landmarks=marks.tolist())


class Scale(TypedDict):
    fill: float
    centre: float
    spread: float
    gaps: bool


def _scale(known: Numbers) -> Scale:
    """Gaps are filled first, so that the training rows as a whole have mean 0."""
    empty = np.isnan(known)
    fill = float(np.median(known[~empty]))
    scaler = Scaler.standardising(np.where(empty, fill, known)[:, None])
    centre, spread = float(scaler.centre[0]), float(scaler.spread[0])
    return {"fill": fill, "centre": centre, "spread": spread, "gaps": bool(empty.any())}


def _boolean(name: str, values: Column, where: str) -> Boolean:
    known = cells.truths(values)
    if known is None:
        cell = values[cells.first_wrong(values, cells.truth)]
        raise Unfit(f"{where} holds {str(cell)!r}; expected true or false, yes or no, 1 or 0.")
    if np.isnan(known).all():
        raise Unfit(f"{where} is empty in all training rows.")
    scale = _scale(known)
    scale["fill"] = float(scale["fill"] >= 0.5)
    return Boolean(name=name, **scale)


# -- words ----------------------------------------------------------------------------------------


def _usual_words(name: str, values: Column, rows: NDArray[np.int64], where: str) -> AnyFitted:
    texts = cells.words(values)
    counts = Counter(text for text in texts if text)
    filled = counts.total()
    if not filled:
        return Drop(name=name, why="empty")
    if len(counts) == 1 and filled == len(texts):
        return Drop(name=name, why=f"one value only: {next(iter(counts))!r}")
    if cells.truths(values) is not None:
        return _boolean(name, values, where)
    if (pattern := cells.pattern_of(values)) is not None:
        return _date(name, values, pattern, where)
    mark = None if has_codes(values) else cells.mark_of(values)
    if mark is not None and (known := cells.numbers(values, mark)) is not None:
        return _usual_number(name, known, mark)
    _refuse_mixture(counts, values, rows, where)
    _refuse_unclear_marks(counts, where)
    _refuse_unclear_dates(counts, where)
    if 2 * len(counts) > filled:
        return Drop(name=name, why=_why_left_out(counts, filled))
    kept, _ = _kept_and_rare(counts)
    if not kept:
        return Drop(name=name, why=f"{len(counts):,} values, all of them rare")
    return _onehot(name, values) if len(kept) <= MOST else _ordinal(name, values)


def _why_left_out(counts: Counter[str], filled: int) -> str:
    many = f"{len(counts):,} values in {filled:,} rows"
    for pattern, kind, advice in LOOKS:
        alike = [text for text in counts if pattern.fullmatch(text)]
        if 2 * len(alike) > len(counts):
            return f"{kind} such as {alike[0]!r}, {many}; {advice}"
    return f"ids or free text: {many}"


def _refuse_mixture(
    counts: Counter[str], values: Column, rows: NDArray[np.int64], where: str
) -> None:
    """Mostly numbers, and words among them. A few levels such as 0, 1, 2 and 3+ are categories."""
    wordy = [text for text in counts if not _is_number(text)]
    numeric = counts.total() - sum(counts[text] for text in wordy)
    if wordy and len(counts) > CODES and 2 * numeric > counts.total():
        row = rows[cells.words(values).index(wordy[0])] + 1
        raise Unfit(
            f"{where} mixes numbers and words: {numeric:,} of its {counts.total():,} training "
            f"cells are numbers, but not {wordy[0]!r} in data row {row}. Empty these cells, or say "
            'what they are: prepare = "onehot", "ordinal" or "drop" for this column.'
        )


def _refuse_unclear_marks(counts: Counter[str], where: str) -> None:
    """As categories, or left out as free text, the sizes of numbers would be lost."""
    unclear = [text for text in counts if UNCLEAR.fullmatch(text)]
    if len(counts) > CODES and 2 * sum(counts[text] for text in unclear) > counts.total():
        raise Unfit(
            f"{where} holds numbers such as {unclear[0]!r}, which may be thousands or have a "
            'decimal comma. Say which for this column: prepare = { NAME = "standard:comma" }, or '
            '"standard:point".'
        )


def _refuse_unclear_dates(counts: Counter[str], where: str) -> None:
    """Mostly dates: as categories, or left out as free text, they would say nothing."""
    like = sum(count for text, count in counts.items() if cells.looks_like_date(text))
    if len(counts) <= CODES or 2 * like <= counts.total():
        return
    usual = cells.OR.join(("iso", *cells.FORMATS))
    example = next(text for text in counts if not cells.fits(text, usual))
    raise Unfit(
        f"{where} holds dates, but what {example!r} means is not clear from its training cells; "
        'say how they are written, e.g. prepare = "date:%d/%m/%Y", in several ways "date:iso|'
        '%d/%m/%Y", or "drop" for this column.'
    )


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _levels(values: Column) -> tuple[Counter[str], bool, bool]:
    """The levels, whether they are numbers, and whether there are gaps."""
    numeric = not has_codes(values) and cells.numbers(values) is not None
    texts = level_words(values, numeric)
    return Counter(text for text in texts if text), numeric, "" in texts


def _kept_and_rare(counts: Counter[str]) -> tuple[list[str], list[str]]:
    """Levels in order: the most frequent first, equal ones by letters."""
    least = max(FEWEST, math.ceil(RARE * counts.total()))
    ordered = sorted(counts, key=lambda level: (-counts[level], level))
    kept = [level for level in ordered if counts[level] >= least]
    return kept, ordered[len(kept) :]


def _onehot(name: str, values: Column) -> OneHot:
    counts, numeric, gaps = _levels(values)
    kept, rare = _kept_and_rare(counts)
    kept, rare = kept[:MOST], kept[MOST:] + rare
    return OneHot(name=name, gaps=gaps, numeric=numeric, levels=sorted(kept), rare=sorted(rare))


def _ordinal(name: str, values: Column) -> Ordinal:
    counts, numeric, _ = _levels(values)
    levels = sorted(counts, key=lambda level: (-counts[level], level))
    places = {level: float(i) for i, level in enumerate(levels)}
    texts: Sequence[str] = level_words(values, numeric)
    scale = _scale(np.array([places.get(text, np.nan) for text in texts]))
    return Ordinal(name=name, levels=levels, numeric=numeric, **scale)


def _declared_levels(text: str) -> list[str]:
    return [level.strip() for level in text.split(cells.OR)]


def _ordered(name: str, values: Column, levels: list[str], where: str) -> Ordinal:
    """Levels in a declared order."""
    counts, numeric, gaps = _levels(values)
    levels = level_words(levels, numeric)
    places = {level: float(i) for i, level in enumerate(levels)}
    ranks = np.array([places.get(text, np.nan) for text in level_words(values, numeric)])
    if np.isnan(ranks).all():
        raise Unfit(
            f"{where} has none of the levels that prepare declares ({', '.join(levels)}); it holds "
            f"{first_of(sorted(counts), 5)}."
        )
    scale = _scale(ranks)
    scale["gaps"] = gaps
    return Ordinal(name=name, levels=levels, numeric=numeric, declared=True, **scale)


# -- dates ----------------------------------------------------------------------------------------


def _date(name: str, values: Column, pattern: str | None, where: str) -> AnyFitted:
    known = None if pattern is None else cells.dates(values, pattern)
    if pattern is None or known is None:
        raise Unfit(
            f"{where} holds cells that are no dates as 2025-01-31, 2025/01/31 or 31.01.2025; say "
            'how they are written, e.g. prepare = "date:%d/%m/%Y", or in several ways: "date:iso|'
            '%d/%m/%Y".'
        )
    if np.isnat(known).all():
        return Drop(name=name, why="empty")
    days = np.where(np.isnat(known), np.nan, days_of(known))
    clock = bool((days[~np.isnan(days)] % 1 != 0).any())
    return Date(name=name, pattern=pattern, clock=clock, **_scale(days))
