"""Tables by SQL: over a database, over files; and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from colonnade.data import DataSpec, load, sql
from colonnade.data.sql import Query
from colonnade.data.table_files import read_columns
from colonnade.errors import InputError
from colonnade.experiments.config import parse_experiment

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
    found = read_columns(tmp_path / "a.csv", Query(query))
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
        read_columns(warehouse, Query(query))
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
        read_columns(warehouse, Query(query))
    assert "\n" not in str(error.value)


def test_a_database_needs_a_query_and_a_query_a_table(warehouse: Path) -> None:
    with pytest.raises(InputError, match=r"\.duckdb.*it is read with data\.query"):
        load(DataSpec(path=str(warehouse), label="y"), 0)
    with pytest.raises(InputError, match=r"data\.query: is for a table"):
        DataSpec(dataset="wine", query="SELECT 1")
    with pytest.raises(InputError, match=r"none\.duckdb: cannot be read"):
        load(DataSpec(path=str(warehouse.parent / "none.duckdb"), query="SELECT 1", label="y"), 0)


@pytest.mark.parametrize("end", ["-- the newest", "; -- the newest", ";;", "/* all */ ;"])
def test_a_query_may_end_in_a_comment(warehouse: Path, end: str) -> None:
    assert len(read_columns(warehouse, Query(f"SELECT age FROM visits {end}"))["age"]) == 60


def test_other_databases_are_attached_by_name_and_only_read(warehouse: Path) -> None:
    registry = warehouse.parent / "registry.duckdb"
    with duckdb.connect(str(registry)) as connection:
        connection.execute("CREATE TABLE people AS SELECT i AS id, i * 3 AS pay FROM range(9) t(i)")
    before = registry.read_bytes()
    query = "SELECT pay FROM visits JOIN registry.people USING (id) ORDER BY id"
    table = {"path": warehouse.name, "query": query, "attach": {"registry": "registry.duckdb"}}
    methods = [{"name": "splitnn", "algorithm": "splitnn"}]
    whole = {"name": "x", "data": {**table, "label": "pay"}, "methods": methods}
    spec = parse_experiment(whole, "x.toml", warehouse.parent).data
    found = read_columns(Path(spec.path or ""), spec.sql)
    assert found["pay"].tolist() == [3 * i for i in range(9)]  # pyright: ignore
    (warehouse.parent / "x.csv").write_text("id\n1\n2\n")
    over_csv = Query("SELECT pay FROM data JOIN registry.people USING (id)", spec.sql.attach)  # pyright: ignore
    assert len(read_columns(warehouse.parent / "x.csv", over_csv)["pay"]) == 2
    assert registry.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"SQLite format 3\0" + b"\0" * 100, r"is an SQLite database.*CSV, Parquet or a DuckDB"),
        (b"id,x\n1,2\n", "is no DuckDB database"),
        (None, "cannot be read"),
    ],
)
def test_what_cannot_be_attached_is_told_in_one_sentence(
    warehouse: Path, content: bytes | None, message: str
) -> None:
    other = warehouse.parent / "other.db"
    if content is not None:
        other.write_bytes(content)
    with pytest.raises(InputError, match=rf"data\.attach\.other: .*other\.db: {message}"):
        read_columns(warehouse, Query("SELECT 1", (("other", str(other)),)))
    if content is not None:
        with pytest.raises(InputError, match=rf"other\.db: {message}"):
            read_columns(other, Query("SELECT 1"))


def test_attach_is_for_a_query_and_takes_names() -> None:
    with pytest.raises(InputError, match=r"data\.attach: is for data\.query"):
        DataSpec(path="a.csv", attach={"b": "b.duckdb"})
    for name in ("data", "a b", "x;DROP"):
        with pytest.raises(InputError, match=rf"data\.attach\.{name}: is no name"):
            DataSpec(path="a.csv", query="SELECT 1", attach={name: "b.duckdb"})


def test_types_that_parquet_lacks_are_text_or_seconds(warehouse: Path) -> None:
    query = """SELECT uuid() AS who, '{"a": 1}'::JSON AS note, INTERVAL 2 MINUTE AS stay, [i] AS l,
        'a"b' AS "odd ""name" FROM range(3) t(i) ORDER BY i DESC -- newest first"""
    found = read_columns(warehouse, Query(query))
    assert len(set(found["who"])) == 3
    assert {len(str(one)) for one in found["who"]} == {36}
    assert list(found["note"]) == ['{"a": 1}'] * 3
    assert list(found["stay"]) == [120.0] * 3
    assert list(found['odd "name']) == ['a"b'] * 3


def test_a_query_that_needs_too_much_memory_is_told_so(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "MEMORY", "8MB")
    query = Query("SELECT list(i) AS l FROM range(3000000) t(i)")
    with pytest.raises(InputError, match=r"data\.query needs more than 8MB of memory"):
        read_columns(warehouse, query)


def test_a_sort_that_does_not_fit_into_memory_goes_to_files(
    warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "MEMORY", "24MB")
    target = tmp_path / "out" / "result.parquet"
    target.parent.mkdir()
    query = Query("SELECT i, repeat('x', 50) AS t FROM range(400000) t(i) ORDER BY hash(i)")
    sql.copy_result(warehouse, query, target)
    assert list(target.parent.iterdir()) == [target]


def test_a_file_that_a_query_joins_and_that_changes_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,x\n" + "".join(f"{i},{i}\n" for i in range(9)))
    (tmp_path / "b.csv").write_text("id,y\n" + "".join(f"{i},{i % 2}\n" for i in range(9)))
    query = "SELECT x, y FROM data JOIN 'b*.csv' b USING (id) ORDER BY id"
    spec = DataSpec(path=str(tmp_path / "a.csv"), query=query, label="y", parties=1)
    assert load(spec, 0).classes == 2
    (tmp_path / "b.csv").write_text("id,y\n" + "".join(f"{i},{i % 3}\n" for i in range(9)))
    assert load(spec, 0).classes == 3
