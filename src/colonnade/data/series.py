"""From a column of polars to cells, by its type."""

from __future__ import annotations

from typing import Any

from colonnade.data.preprocessing.cells import MICROSECONDS, Column

EXACT = 2**53  # float64 holds every whole number below this size
NESTED = {"List": "lists", "Array": "lists", "Struct": "records", "Map": "maps"}
OTHERS = {"Binary": "bytes", "Object": "Python objects"}


def no_cells(kind: Any) -> str | None:
    """What a column of this type holds, if it cannot be turned into cells; else None."""
    name = type(kind).__name__
    if kind.is_nested():
        return f"nested ({NESTED.get(name, name)})"
    return OTHERS.get(name)


def series_cells(series: Any) -> Column:
    """Numbers as float64, truth values and dates as such, durations in seconds, anything else as
    text. Whole numbers that float64 does not hold stay exact."""
    import polars

    kind = series.dtype
    if kind == polars.Boolean and not series.null_count():
        return series.to_numpy()
    if kind == polars.Duration:
        series = series.dt.total_microseconds() / 10**6
        kind = series.dtype
    if kind in (polars.Int64, polars.UInt64) and not series.null_count() and _beyond(series):
        return series.to_numpy()
    if (kind.is_numeric() or kind == polars.Boolean) and not _beyond(series):
        return series.cast(polars.Float64).to_numpy()
    if kind in (polars.Date, polars.Datetime):
        return series.cast(polars.Datetime("us")).to_numpy().astype(MICROSECONDS)
    return series.cast(polars.String).fill_null("").to_list()


def _beyond(series: Any) -> bool:
    """Whether two different whole numbers of a column may be one float64."""
    kind = series.dtype
    whole = kind.is_integer() or (kind.is_decimal() and not kind.scale)
    if not whole or series.null_count() == len(series):
        return False
    return max(-series.min(), series.max()) >= EXACT
