"""Files with columns: CSV, Parquet, `.npz`, results of SQL queries. Errors name the file."""

from __future__ import annotations

import csv
import lzma
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.data import sql
from colonnade.data.preprocessing.cells import Column, Unusable
from colonnade.data.raw import COUNTING, Array, columns_of
from colonnade.data.series import no_cells, series_cells
from colonnade.errors import InputError

KINDS = {".npz": "NumPy", ".csv": "CSV", ".parquet": "Parquet"}
SEPARATORS = (",", ";", "\t", "|")  # the first, where none is in the header
LARGE = 2**28  # bytes of a table in memory, or of its file; those of more are read in parts
CHUNK = 2**24  # bytes of such a part
CSV = "a CSV file in UTF-8"
TEXT = 64  # bytes of a cell of text in memory, beside the text itself
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


def read_columns(path: Path, query: sql.Query | None = None) -> Mapping[str, Column]:
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


def stamp(path: Path, query: sql.Query | None = None) -> tuple[int, ...]:
    """When the file was last changed, and those that a query names. Refuses a file of another kind,
    or that cannot be read."""
    kinds = (*KINDS, *sql.KINDS) if query is not None else tuple(KINDS)
    if path.suffix.lower() not in kinds:
        advice = " with data.query" if path.suffix.lower() in sql.KINDS else ""
        raise InputError(
            f"{path}: unknown kind of file {path.suffix!r}{advice and '; it is read' + advice}; "
            f"data.path takes {', '.join(kinds)}."
        )
    try:
        path.open("rb").close()
        files = [path, *(() if query is None else query.files(path))]
        return tuple(file.stat().st_mtime_ns for file in files)
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
            between = _separator(file.readline())
            file.seek(0)
            lines = list(csv.reader(file, delimiter=between, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(_unreadable(path, CSV, _why_no_csv(error))) from error
    while lines and not lines[-1]:
        lines.pop()
    if len(lines) < 2:
        raise InputError(f"{path}: is empty; expected a header row and data rows.")
    header, rows = _header(lines[0], path), lines[1:]
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise InputError(
                f"{path}: data row {number} has {len(row)} values, the header names "
                f"{len(header)} columns ({COUNTING})."
            )
    return dict(zip(header, zip(*rows, strict=True), strict=True))


def _why_no_csv(error: Exception) -> object:
    if not isinstance(error, UnicodeDecodeError) and "nvalid unicode" not in str(error):
        return error
    return "its letters are in another encoding, such as Latin-1 or UTF-16: save it as UTF-8"


def _header(line: Sequence[str], path: Path) -> list[str]:
    header = [name.strip() for name in line]
    if all(_is_finite(name) for name in header):
        raise InputError(f"{path}: the first line holds numbers; it must name the columns.")
    if len(set(header)) < len(header):
        repeated = next(name for name in header if header.count(name) > 1)
        raise InputError(f"{path}: the header names column {repeated!r} twice.")
    return header


def _large_csv(path: Path) -> bool:
    return path.suffix.lower() == ".csv" and path.stat().st_size > LARGE


def copy_csv(path: Path, target: Path) -> None:
    """Write a CSV file to a Parquet file of texts, in bounded memory."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            between = _separator(file.readline())
            file.seek(0)
            header = _header(next(csv.reader(file, delimiter=between, strict=True)), path)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(_unreadable(path, CSV, _why_no_csv(error))) from error
    try:
        sql.copy_csv(path, target, header, between)
    except ValueError as error:
        raise InputError(_unreadable(path, CSV, _why_no_csv(error))) from error


def _separator(header: str) -> str:
    """What is between the values of a CSV file: the most frequent of these in its first line."""
    return max(SEPARATORS, key=header.count)


def read_parquet(path: Path, called: str | None = None) -> Frame:
    """`called`: the name for errors, where the file is a copy."""
    return ParquetColumns(path, called).whole()


class Frame(Mapping[str, Column]):
    """Columns in memory. The cells of a column are made when it is asked for first."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = dict(columns)  # cells, or what polars calls a series

    def __getitem__(self, name: str) -> Column:
        found = self._columns[name]
        if not isinstance(found, Sequence | np.ndarray):
            found = self._columns[name] = series_cells(found)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


class ParquetColumns(Mapping[str, Column]):
    """The columns of a Parquet file that is not read as a whole: one column at a time, or some rows
    of several."""

    def __init__(self, path: Path, called: str | None = None) -> None:
        self.path, self.called = path, called or str(path)
        # Otherwise polars ends with a panic at an INTERVAL; it reads this when it is imported.
        os.environ.setdefault("POLARS_IMPORT_INTERVAL_AS_STRUCT", "1")
        self._polars = needed("polars", self.called, "reading Parquet")
        self._kinds = dict(self._read(lambda: self._polars.read_parquet_schema(path)))
        self.names = tuple(self._kinds)
        counted = self._polars.scan_parquet(path).select(self._polars.len())
        self.rows = int(self._read(lambda: counted.collect().item()))
        if not self.rows:
            raise InputError(f"{self.called}: is empty; expected data rows.")

    def whole(self) -> Frame:
        """All columns that can be turned into cells."""
        usable = [name for name in self.names if no_cells(self._kinds[name]) is None]
        frame = self._read(lambda: self._polars.read_parquet(self.path, columns=usable))
        return Frame({n: frame[n] if n in usable else self._unusable(n) for n in self.names})

    def _unusable(self, name: str, rows: int | None = None) -> Unusable:
        what = no_cells(self._kinds[name]) or ""
        return Unusable(name, what, self.called, self.rows if rows is None else rows)

    @property
    def large(self) -> bool:
        """Whether it should not be read as a whole."""
        return max(self.rows * len(self.names) * 8, self.path.stat().st_size) > LARGE

    def part(self, names: Sequence[str]) -> int:
        """How many rows of these columns are read at a time."""
        text = sum(self._kinds[name] == self._polars.String for name in names)
        row = max(8 * len(names) + TEXT * text, self.path.stat().st_size // self.rows)
        return max(1, CHUNK // row)

    def __getitem__(self, name: str) -> Column:
        return self.take(name)

    def take(self, name: str, rows: NDArray[np.int64] | None = None) -> Column:
        """Some cells of a column, or all; only these become Python objects."""
        if name not in self._kinds:
            raise KeyError(name)
        if no_cells(self._kinds[name]) is not None:
            return self._unusable(name, self.rows if rows is None else len(rows))
        if rows is None:
            frame = self._read(lambda: self._polars.read_parquet(self.path, columns=[name]))
            return series_cells(frame.to_series(0))
        order = np.argsort(rows, kind="stable")
        sought, found = rows[order], []
        for start, frame in self._parts([name]):
            first, last = np.searchsorted(sought, (start, start + frame.height))
            found.append(frame.to_series(0).gather(sought[first:last] - start))
        return series_cells(self._polars.concat(found).gather(np.argsort(order)))

    def chunks(self, names: Sequence[str]) -> Iterator[dict[str, Column]]:
        """These columns, some rows at a time, from the first to the last."""
        for _, frame in self._parts(names):
            yield {
                one.name: self._unusable(one.name, len(one))
                if no_cells(one.dtype)
                else series_cells(one)
                for one in frame.get_columns()
            }

    def _parts(self, names: Sequence[str]) -> Iterator[tuple[int, Any]]:
        """The first row of each part, and the part."""
        size = self.part(names)
        scan = self._polars.scan_parquet(self.path).select(list(names))
        for start in range(0, self.rows, size):
            yield start, self._read(scan.slice(start, size).collect)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def _read(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (OSError, self._polars.exceptions.PolarsError) as error:
            raise InputError(_unreadable(self.called, "a Parquet file", error)) from error
        except self._polars.exceptions.PanicException as error:
            why = "a column has a type that polars cannot read; choose others with data.query"
            raise InputError(_unreadable(self.called, "a Parquet file", why)) from error


@contextmanager
def opened(path: Path, query: sql.Query | None, folder: Path) -> Iterator[Mapping[str, Column]]:
    """The columns of a file; those of a large file, or of a large result of a query, are read when
    they are asked for. `folder`: for the result of a query, or a copy of a large CSV file, within
    the block."""
    stamp(path, query)
    source = path
    if query is not None or _large_csv(path):
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / "query.parquet"
        if query is None:
            copy_csv(path, source)
        else:
            sql.copy_result(path, query, source)
    try:
        if source.suffix.lower() != ".parquet":
            yield read_columns(source)
            return
        lazy = ParquetColumns(source, str(path))
        yield lazy if lazy.large else read_parquet(source, str(path))
    finally:
        if source != path:
            source.unlink(missing_ok=True)


def row_count(columns: Mapping[str, Column]) -> int:
    if isinstance(columns, ParquetColumns):
        return columns.rows
    return len(next(iter(columns.values())))


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
