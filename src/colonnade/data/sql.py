"""A table by SQL: DuckDB over database files, or over CSV and Parquet files. It never writes.

A query is bounded: it has `MEMORY`, and a folder for what does not fit into it.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colonnade.errors import InputError

DATABASES = (".duckdb", ".ddb", ".db")
KINDS = (*DATABASES, ".csv", ".parquet")
VIEW = "data"  # the name of a CSV or Parquet file in its query
RESULT = "colonnade_result"
MEMORY = "512MB"
GROUP = 2**26  # bytes of rows that are written to a Parquet file at a time, at 8 bytes a cell
FEWEST, MOST = 2048, 122_880  # rows of such a part
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TAKEN = (VIEW, "main", "temp", "system", "memory")
SQLITE, DUCKDB = b"SQLite format 3\0", b"DUCK"
LITERAL = re.compile(r"'((?:[^']|'')+)'|\"([^\"]+)\"")
# Types that Parquet, or a reader of it, lacks.
CASTS = {"UUID": "CAST({} AS VARCHAR)", "JSON": "CAST({} AS VARCHAR)", "INTERVAL": "epoch({})"}


@dataclass(frozen=True)
class Query:
    """One SELECT. `attach`: the names that it has for other databases, and their files."""

    text: str
    attach: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, text: str | None, attach: Mapping[str, str]) -> Query | None:
        """What a `[data]` table says."""
        if text is None:
            if attach:
                raise InputError("data.attach: is for data.query; leave it out.")
            return None
        for name in attach:
            if not NAME.fullmatch(name) or name.lower() in TAKEN:
                raise InputError(
                    f"data.attach.{name}: is no name for a database in a query; take letters, "
                    f"digits and _, and none of {', '.join(TAKEN)}."
                )
        return cls(text, tuple(attach.items()))

    def files(self, path: Path) -> list[Path]:
        """Files that it reads beside `path`, as far as its text shows: those that are attached, and
        those that it names."""
        named = (one.replace("''", "'") or other for one, other in LITERAL.findall(self.text))
        found = {Path(file).expanduser() for _, file in self.attach}
        for name in named:
            pattern = any(c in name for c in "*?[") and not name.startswith("/")
            found |= set(path.parent.glob(name)) if pattern else {path.parent / name}
        return sorted(file for file in found if file.is_file())


@contextmanager
def result(path: Path, query: Query) -> Iterator[Path]:
    """The rows of a query as a Parquet file, which exists within the block."""
    with tempfile.TemporaryDirectory(prefix="colonnade-") as folder:
        found = Path(folder) / "result.parquet"
        copy_result(path, query, found)
        yield found


def copy_result(path: Path, query: Query, target: Path) -> None:
    """Write the rows of a query to a Parquet file. DuckDB needs no memory for all of them."""
    duckdb = _duckdb(path)
    _check_select(duckdb, query.text, path)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="query-", dir=target.parent) as overflow,
            _opened(duckdb, path, query, Path(overflow)) as connection,
        ):
            _copy(duckdb, connection, query.text, target)
    except duckdb.OutOfMemoryException as error:
        raise InputError(
            f"{path}: data.query needs more than {MEMORY} of memory at a time; select fewer "
            "columns, or sort and join less."
        ) from error
    except duckdb.Error as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{path}: data.query cannot be answered ({reason}).") from error


def copy_csv(path: Path, target: Path, header: Sequence[str], separator: str) -> None:
    """Write a CSV file to a Parquet file, every cell as text. ValueError says what is wrong."""
    duckdb = _duckdb(path, f"a CSV file of {path.stat().st_size >> 20:,} MB")
    columns = ", ".join(f"{_quoted(name)}: 'VARCHAR'" for name in header)
    text = (
        f"SELECT * FROM read_csv({_quoted(path)}, auto_detect = false, header = true, "
        f"delim = {_quoted(separator)}, quote = '\"', escape = '\"', columns = {{{columns}}})"
    )
    try:
        with (
            tempfile.TemporaryDirectory(prefix="csv-", dir=target.parent) as overflow,
            duckdb.connect() as connection,
        ):
            _bound(connection, Path(overflow))
            _copy(duckdb, connection, text, target)
    except duckdb.Error as error:
        first, *more = str(error).splitlines()
        why = next((line for line in more[:3] if line.startswith(("Expected", "Invalid"))), "")
        raise ValueError(": ".join(filter(None, (first, why)))) from error


def _copy(duckdb: Any, connection: Any, text: str, target: Path) -> None:
    # A view takes a query as it is, with whatever comment at its end.
    connection.execute(f"CREATE TEMP VIEW {RESULT} AS {text}")
    columns = connection.execute(f"DESCRIBE {RESULT}").fetchall()
    copy = f"COPY (SELECT {_readable(columns)} FROM {RESULT}) TO {_quoted(target)}"
    rows = min(max(GROUP // (8 * len(columns)), FEWEST), MOST)
    try:
        connection.execute(f"{copy} (FORMAT parquet, ROW_GROUP_SIZE {rows})")
    except duckdb.OutOfMemoryException:  # long texts: DuckDB holds so many rows before it writes
        connection.execute(f"{copy} (FORMAT parquet, ROW_GROUP_SIZE {FEWEST})")


def _readable(columns: list[tuple[Any, ...]]) -> str:
    """All columns, in types that can be read from Parquet."""
    names = {name: '"' + name.replace('"', '""') + '"' for name, *_ in columns}
    casts = [
        f"{CASTS[kind].format(names[name])} AS {names[name]}"
        for name, kind, *_ in columns
        if kind in CASTS
    ]
    return f"* REPLACE ({', '.join(casts)})" if casts else "*"


def _opened(duckdb: Any, path: Path, query: Query, overflow: Path) -> Any:
    database = path.suffix.lower() in DATABASES
    if not path.exists():
        raise InputError(f"{path}: cannot be read (No such file or directory); check the path.")
    if database:
        _check_database(path, str(path))
    connection = duckdb.connect(str(path), read_only=True) if database else duckdb.connect()
    _bound(connection, overflow)
    connection.execute(f"SET file_search_path = {_quoted(path.parent.resolve())}")
    for name, file in query.attach:
        other = Path(file).expanduser()
        _check_database(other, f"data.attach.{name}: {other}")
        connection.execute(f"ATTACH {_quoted(other.resolve())} AS {name} (READ_ONLY)")
    if not database:
        connection.execute(f"CREATE TEMP VIEW {VIEW} AS SELECT * FROM {_quoted(path.resolve())}")
    return connection


def _bound(connection: Any, overflow: Path) -> None:
    # One thread: the order of rows is that of the query on every machine.
    connection.execute("SET threads = 1")
    connection.execute(f"SET memory_limit = '{MEMORY}'")
    connection.execute(f"SET temp_directory = {_quoted(overflow)}")


def _check_database(path: Path, called: str) -> None:
    """Refuse what is no DuckDB database, before DuckDB tries to download something for it."""
    try:
        with path.open("rb") as file:
            start = file.read(len(SQLITE))
    except OSError as error:
        raise InputError(f"{called}: cannot be read ({error.strerror}); check the path.") from error
    if start == SQLITE:
        raise InputError(
            f"{called}: is an SQLite database, which DuckDB reads only with an extension that is "
            "downloaded; write its tables to CSV, Parquet or a DuckDB database first."
        )
    if start[8:12] != DUCKDB:
        raise InputError(f"{called}: is no DuckDB database.")


def _check_select(duckdb: Any, query: str, path: Path) -> None:
    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{path}: data.query is no SQL ({reason}).") from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise InputError(
            f"{path}: data.query must be one SELECT; a query that writes, attaches or sets "
            "anything is refused."
        )


def _quoted(path: Path | str) -> str:
    text = str(path).replace("'", "''")
    return f"'{text}'"


def _duckdb(path: Path, what: str = "data.query") -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise InputError(f"{path}: {what} needs duckdb: pip install colonnade[data]") from error
    return duckdb
