"""Files with columns: CSV, Parquet, `.npz`, results of SQL queries. Errors name the file."""

from __future__ import annotations

import csv
import lzma
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.data import sql
from colonnade.data.preprocessing.cells import MICROSECONDS, Column
from colonnade.data.raw import COUNTING, Array, columns_of
from colonnade.errors import InputError

KINDS = {".npz": "NumPy", ".csv": "CSV", ".parquet": "Parquet"}
LARGE = 2**28  # bytes of a table in memory; Parquet files of more are read in parts
CHUNK = 2**24  # bytes of such a part
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


def read_columns(path: Path, query: str | None = None) -> dict[str, Column]:
    """The columns of a file by name, unchanged. For an `.npz` file see `columns_of`. `query`: SQL
    over the file, whose result is the table."""
    if query is not None:
        with sql.result(path, query) as found:
            return read_parquet(found, str(path))
    stamp(path)
    match path.suffix.lower():
        case ".csv":
            return read_csv(path)
        case ".parquet":
            return read_parquet(path)
        case _:
            return {**columns_of(read_arrays(path), str(path))}


def stamp(path: Path, query: str | None = None) -> int:
    """When the file was last changed; refuses a file of another kind, or that cannot be read."""
    kinds = (*KINDS, *sql.KINDS) if query is not None else tuple(KINDS)
    if path.suffix.lower() not in kinds:
        advice = " with data.query" if path.suffix.lower() in sql.KINDS else ""
        raise InputError(
            f"{path}: unknown kind of file {path.suffix!r}{advice and '; it is read' + advice}; "
            f"data.path takes {', '.join(kinds)}."
        )
    try:
        path.open("rb").close()
        return path.stat().st_mtime_ns
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path.") from error


def read_arrays(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except NOT_NPZ as error:
        # NumPy's own text would advise to unpickle the file.
        why = "it is damaged, or holds Python objects, which are never loaded"
        raise InputError(_unreadable(path, "an .npz file of plain arrays", why)) from error


def read_csv(path: Path) -> dict[str, Column]:
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
    if all(_is_finite(name) for name in header):
        raise InputError(f"{path}: the first line holds numbers; it must name the columns.")
    if len(header) == 1 and (other := next((c for c in ";\t|" if c in header[0]), None)):
        raise InputError(
            f"{path}: the header is one column, {header[0]!r}; is {other!r} the separator? Values "
            "must be separated by commas."
        )
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


def read_parquet(path: Path, called: str | None = None) -> dict[str, Column]:
    """`called`: the name for errors, where the file is a copy."""
    polars = needed("polars", called or str(path), "reading Parquet")
    try:
        frame = polars.read_parquet(path)
    except (OSError, polars.exceptions.PolarsError) as error:
        raise InputError(_unreadable(called or path, "a Parquet file", error)) from error
    if not frame.height:
        raise InputError(f"{called or path}: is empty; expected data rows.")
    return {series.name: series_cells(series) for series in frame.get_columns()}


class ParquetColumns(Mapping[str, Column]):
    """The columns of a Parquet file that is not read as a whole: one column at a time, or some rows
    of several."""

    def __init__(self, path: Path, called: str | None = None) -> None:
        self.path, self.called = path, called or str(path)
        self._polars = needed("polars", self.called, "reading Parquet")
        self.names = tuple(self._read(lambda: self._polars.read_parquet_schema(path)))
        counted = self._polars.scan_parquet(path).select(self._polars.len())
        self.rows = int(self._read(lambda: counted.collect().item()))
        if not self.rows:
            raise InputError(f"{self.called}: is empty; expected data rows.")

    @property
    def large(self) -> bool:
        """Whether it should not be read as a whole."""
        return self.rows * len(self.names) * 8 > LARGE

    def __getitem__(self, name: str) -> Column:
        if name not in self.names:
            raise KeyError(name)
        frame = self._read(lambda: self._polars.read_parquet(self.path, columns=[name]))
        return series_cells(frame.to_series(0))

    def take(self, name: str, rows: NDArray[np.int64]) -> Column:
        """Some cells of a column; only these become Python objects."""
        frame = self._read(lambda: self._polars.read_parquet(self.path, columns=[name]))
        return series_cells(frame.to_series(0).gather(rows))

    def chunks(self, names: Sequence[str]) -> Iterator[dict[str, Column]]:
        """These columns, some rows at a time, from the first to the last."""
        size = max(1, CHUNK // (8 * max(1, len(names))))
        scan = self._polars.scan_parquet(self.path).select(list(names))
        for start in range(0, self.rows, size):
            part = scan.slice(start, size)
            frame = self._read(part.collect)
            yield {one.name: series_cells(one) for one in frame.get_columns()}

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def _read(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (OSError, self._polars.exceptions.PolarsError) as error:
            raise InputError(_unreadable(self.called, "a Parquet file", error)) from error


@contextmanager
def opened(path: Path, query: str | None, folder: Path) -> Iterator[Mapping[str, Column]]:
    """The columns of a file; those of a large Parquet file, or of a large result of a query, are
    read when they are asked for. `folder`: for the result of a query, within the block."""
    stamp(path, query)
    source = path
    if query is not None:
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / "query.parquet"
        sql.copy_result(path, query, source)
    try:
        if source.suffix.lower() != ".parquet":
            yield read_columns(source)
            return
        lazy = ParquetColumns(source, str(path))
        yield lazy if lazy.large else read_parquet(source, str(path))
    finally:
        if query is not None:
            source.unlink(missing_ok=True)


def row_count(columns: Mapping[str, Column]) -> int:
    if isinstance(columns, ParquetColumns):
        return columns.rows
    return len(next(iter(columns.values())))


def series_cells(series: Any) -> Column:
    """A polars series with its type: numbers as float64, truth values and dates as such."""
    import polars

    kind = series.dtype
    if kind == polars.Boolean and not series.null_count():
        return series.to_numpy()
    if kind.is_numeric() or kind == polars.Boolean:
        return series.cast(polars.Float64).to_numpy()
    if kind in (polars.Date, polars.Datetime):
        return series.cast(polars.Datetime("us")).to_numpy().astype(MICROSECONDS)
    return series.cast(polars.String).fill_null("").to_list()


def needed(module: str, what: str, job: str) -> Any:
    """A module of the extra `data`."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"{what}: {job} needs {module}: pip install colonnade[data]") from error


def _is_finite(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _unreadable(path: object, expected: str, why: object) -> str:
    reason = str(why).partition("\n")[0]  # libraries add advice for programmers
    return f"{path}: cannot be read as {expected} ({reason})."
