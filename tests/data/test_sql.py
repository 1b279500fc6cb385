"""Tables by SQL: over a database, over files; and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from colonnade.data import DataSpec, load
from colonnade.data.table_files import read_columns
from colonnade.errors import InputError

duckdb = pytest.importorskip("duckdb")


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    path = tmp_path / "warehouse.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE visits AS SELECT i AS id, i % 7 AS age, 'town' || i % 3 AS town,"
            " DATE '2024-01-01' + i::INT AS day, i % 2 = 0 AS smoker FROM range(60) t(i)"
        )
        connection.execute("CREATE TABLE ends AS SELECT i AS id, i % 2 AS y FROM range(60) t(i)")
    return path


QUERY = "SELECT age, town, day, smoker, y FROM visits JOIN ends USING (id) ORDER BY id"


def test_a_query_over_a_database_is_a_table(warehouse: Path) -> None:
    data = load(DataSpec(path=str(warehouse), query=QUERY, label="y", parties=2), 0)
    assert data.widths == (1 + 3, 5 + 1)
    assert len(data.train) + len(data.validation) + len(data.test) == 60


def test_a_query_over_files_finds_them_beside_the_first_one(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,x\n1,5\n2,\n")
    (tmp_path / "b.csv").write_text("id,y\n1,yes\n2,no\n")
    query = "SELECT x, y FROM data JOIN 'b.csv' b USING (id) ORDER BY id;"
    found = read_columns(tmp_path / "a.csv", query)
    assert list(found) == ["x", "y"]
    assert str(found["x"]) == "[ 5. nan]"


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM visits",
        "SELECT 1; DROP TABLE visits",
        "COPY visits TO 'stolen.csv'",
        "ATTACH 'other.duckdb'",
        "INSERT INTO ends VALUES (1, 1)",
        "SET threads = 8",
    ],
)
def test_a_query_that_does_anything_but_read_is_refused(warehouse: Path, query: str) -> None:
    before = warehouse.read_bytes()
    with pytest.raises(InputError, match=r"data\.query must be one SELECT"):
        read_columns(warehouse, query)
    assert warehouse.read_bytes() == before
    assert not (warehouse.parent / "stolen.csv").exists()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELEC 1", r"data\.query is no SQL"),
        ("SELECT * FROM visit", r"data\.query cannot be answered .*visit"),
        ("SELECT * FROM visits WHERE age > 99", "is empty; expected data rows"),
    ],
)
def test_a_query_that_fails_is_told_in_one_sentence(
    warehouse: Path, query: str, message: str
) -> None:
    with pytest.raises(InputError, match=rf"warehouse\.duckdb: {message}") as error:
        read_columns(warehouse, query)
    assert "\n" not in str(error.value)


def test_a_database_needs_a_query_and_a_query_a_table(warehouse: Path) -> None:
    with pytest.raises(InputError, match=r"\.duckdb.*it is read with data\.query"):
        load(DataSpec(path=str(warehouse), label="y"), 0)
    with pytest.raises(InputError, match=r"data\.query: is for a table"):
        DataSpec(dataset="wine", query="SELECT 1")
    with pytest.raises(InputError, match=r"none\.duckdb: cannot be read"):
        load(DataSpec(path=str(warehouse.parent / "none.duckdb"), query="SELECT 1", label="y"), 0)
