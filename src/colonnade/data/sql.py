"""A table by SQL: DuckDB over a database file, or over CSV and Parquet files. It never writes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from colonnade.errors import InputError

DATABASES = (".duckdb", ".ddb", ".db")
KINDS = (*DATABASES, ".csv", ".parquet")
VIEW = "data"  # the name of a CSV or Parquet file in its query


@contextmanager
def result(path: Path, query: str) -> Iterator[Path]:
    """The rows of a query as a Parquet file, which exists within the block."""
    with tempfile.TemporaryDirectory(prefix="colonnade-") as folder:
        found = Path(folder) / "result.parquet"
        copy_result(path, query, found)
        yield found


def copy_result(path: Path, query: str, target: Path) -> None:
    """Write the rows of a query to a Parquet file. DuckDB needs no memory for all of them."""
    duckdb = _duckdb(path)
    text = _only_select(duckdb, query, path)
    try:
        with _opened(duckdb, path) as connection:
            connection.execute(f"COPY ({text}) TO {_quoted(target)} (FORMAT parquet)")
    except duckdb.Error as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{path}: data.query cannot be answered ({reason}).") from error


def _opened(duckdb: Any, path: Path) -> Any:
    database = path.suffix.lower() in DATABASES
    if not path.exists():
        raise InputError(f"{path}: cannot be read (No such file or directory); check the path.")
    connection = duckdb.connect(str(path), read_only=True) if database else duckdb.connect()
    # One thread: the order of rows is that of the query on every machine.
    connection.execute("SET threads = 1")
    connection.execute(f"SET file_search_path = {_quoted(path.parent.resolve())}")
    if not database:
        connection.execute(f"CREATE TEMP VIEW {VIEW} AS SELECT * FROM {_quoted(path.resolve())}")
    return connection


def _only_select(duckdb: Any, query: str, path: Path) -> str:
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
    return statements[0].query.strip().rstrip(";")


def _quoted(path: Path) -> str:
    text = str(path).replace("'", "''")
    return f"'{text}'"


def _duckdb(path: Path) -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise InputError(f"{path}: data.query needs duckdb: pip install colonnade[data]") from error
    return duckdb
