"""Own files, good and bad. Complaints name file, column and row."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from colonnade.data import DataSpec, fits, load, table_files
from colonnade.data.preprocessing.cells import words
from colonnade.data.preprocessing.fitted import Standard
from colonnade.data.row_splits import SplitBy
from colonnade.data.table_files import read_columns
from colonnade.errors import InputError

GOOD = "age,sugar,city,outcome\n" + "".join(
    f"{20 + n},{n / 7},town{n % 3},{'ill' if n % 2 else 'well'}\n" for n in range(20)
)
HOLDERS = {"clinic": ["age"], "lab": ["sugar"]}


def complaint(**keys: object) -> str:
    with pytest.raises(InputError) as error:
        load(DataSpec(**keys), 0)  # pyright: ignore[reportArgumentType]
    return str(error.value)


def parquet(path: Path, columns: dict[str, object]) -> str:
    polars = pytest.importorskip("polars")
    polars.DataFrame(columns).write_parquet(path)
    return str(path)


def test_a_csv_file_with_text_labels_and_named_holders_is_loaded(csv) -> None:
    data = load(DataSpec(path=csv(GOOD), label="outcome", columns=HOLDERS), 0)
    assert (data.clients, data.classes, data.name) == (("clinic", "lab"), 2, "table")
    assert "classes in order: ill, well" in data.notes
    assert any("city" in note for note in data.notes)  # text that nobody holds does no harm
    [age] = data.scalers[0].columns  # pyright: ignore[reportAttributeAccessIssue]
    assert isinstance(age, Standard)
    ages = age.spread * data.train.x[0].numpy()[:, 0] + age.centre
    assert np.array_equal(ages.round().astype(int) % 2 == 0, data.train.y.numpy() == 1)


@pytest.mark.parametrize("kind", ["csv", "parquet", "query"])
def test_a_table_that_does_not_fit_into_memory_is_refused_before_it_is_read(
    kind: str, csv: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = csv(GOOD)
    keys: dict[str, Any] = {"path": path, "label": "outcome", "columns": HOLDERS}
    what, least = f"a CSV file of 0.0 MB, needs {5 * len(GOOD) / 1e6:.1f} MB", 5 * len(GOOD)
    if kind != "csv":
        columns: dict[str, object] = {n: list(c) for n, c in read_columns(Path(path)).items()}
        path, least = parquet(tmp_path / "table.parquet", columns), 20 * (4 * 8 + 3 * 12)
        keys["path"], what = path, "20 rows of 4 columns, needs 0.0 MB"
    if kind == "query":
        pytest.importorskip("duckdb")
        keys["query"] = "SELECT * FROM data"
    with monkeypatch.context() as small:
        small.setattr(fits, "available", lambda: least - 1)
        small.setattr(table_files, "read_csv", lambda _: pytest.fail("was read"))
        small.setattr(table_files.ParquetColumns, "whole", lambda _: pytest.fail("was read"))
        said = complaint(**keys)
    assert said.startswith(f"{path}: {what} of memory or more")
    assert "data.query" in said
    assert "colonnade join" in said
    monkeypatch.setattr(fits, "available", lambda: least)
    assert load(DataSpec(**keys), 0).widths == (1, 1)


def test_the_memory_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fits, "GROUP", tmp_path)
    whole = fits.available()
    assert whole is None or whole > 2**20
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("2000\n")
    (tmp_path / "memory.stat").write_text("anon 1100\nfile 900\n")
    assert fits.available() in (None, 3900)
    (tmp_path / "memory.max").write_text("max\n")
    assert fits.available() != 3900


def test_whole_number_labels_are_sorted_by_value_and_not_by_letter(csv) -> None:
    rows = "".join(f"{label}.5,{label}\n" for label in (10, 9, 100) for _ in range(5))
    data = load(DataSpec(path=csv("x,y\n" + rows), label="y", parties=1, test=0.0), 0)
    x = data.train.x[0][:, 0]
    assert data.classes == 3
    assert x[data.train.y == 0].max() < x[data.train.y == 1].min()
    assert x[data.train.y == 1].max() < x[data.train.y == 2].min()


def test_csv_and_parquet_give_the_same_data(csv, tmp_path: Path) -> None:
    columns = {
        "age": [20 + n for n in range(20)],
        "sugar": [n / 7 for n in range(20)],
        "outcome": ["ill" if n % 2 else "well" for n in range(20)],
    }
    path = parquet(tmp_path / "table.parquet", columns)
    one = load(DataSpec(path=path, label="outcome", columns=HOLDERS), 0)
    two = load(DataSpec(path=csv(GOOD), label="outcome", columns=HOLDERS), 0)
    assert [x.tolist() for x in one.train.x] == [x.tolist() for x in two.train.x]
    assert one.train.y.tolist() == two.train.y.tolist()


def test_a_file_that_changed_is_read_again(npz) -> None:
    x, y = np.arange(20.0).reshape(10, 2), np.arange(10) % 2
    load(DataSpec(path=npz(x=x, y=y)), 0)
    path = npz(x=x, y=np.arange(10) % 5)
    os.utime(path, ns=(1, 1))
    assert load(DataSpec(path=path), 0).classes == 5


@pytest.mark.parametrize(
    ("text", "columns", "words"),
    [
        ("a,b,y\n1,2,0\n-inf,3,1\n", None, ["column 'a'", "data row 2 is infinite"]),
        ("a,b,y\n1,2,0\n2,3\n", None, ["data row 2 has 2 values", "3 columns"]),
        (
            "a,b,y\n1,2,0\n2,3,\n",
            None,
            ["label column 'y' is empty in 1 of 2 rows, first in data row 2"],
        ),
        ("a,b,y\n1,2,0\n2,3,0\n", None, ["label column 'y'", "one class only"]),
        ("a,b,z\n1,2,0\n2,3,1\n", None, ["no column 'y'", "data.label", "nearest"]),
        ("y\n0\n1\n", None, ["no column beside the label"]),
        ("1,2,0\n2,3,1\n", None, ["the first line holds numbers"]),
        ("a,a,y\n1,2,0\n", None, ["column 'a' twice"]),
        ("", None, ["is empty"]),
        ("a,b,y\n", None, ["is empty"]),
        ("a,b,y\n1,2,0\n", {"p": ["a", "bb"]}, ["no column 'bb'", "'p'", "nearest is 'b'"]),
        ("a,b,y\n1,2,0\n", {"p": ["a"], "q": ["a"]}, ["'a'", "two parties, 'p' and 'q'"]),
        ("a,b,y\n1,2,0\n", {"p": ["a", "a"]}, ["'a'", "party 'p' twice"]),
        ("a,b,y\n1,2,0\n", {"p": ["y"]}, ["'y' is the label", "party 'p'", "feature"]),
        ("a,b,y\n1,2,0\n", {"p": []}, ["data.columns.p", "no columns"]),
        ("a,b,y\n1,2,0\n", {"../p": ["a"]}, ["'../p' cannot name a party"]),
    ],
)
def test_a_bad_table_is_refused_in_one_sentence(csv: Callable, text, columns, words) -> None:
    message = complaint(path=csv(text), label="y", columns=columns)
    for word in words:
        assert word in message
    assert "\n" not in message
    assert "table.csv" in message or "data.columns" in message
    assert not re.search(r"data row \d", message) or "data rows count from 1" in message


def test_a_table_without_a_label_key_says_so(csv) -> None:
    assert "data.label" in complaint(path=csv(GOOD))


def test_a_file_that_is_not_there_or_of_another_kind_is_named(tmp_path: Path) -> None:
    assert "gone.csv: cannot be read (No such file" in complaint(
        path=str(tmp_path / "gone.csv"), label="y"
    )
    folder = tmp_path / "folder.npz"
    folder.mkdir()
    assert "folder.npz: cannot be read" in complaint(path=str(folder))
    assert "'.xlsx'; data.path takes .npz, .csv, .parquet" in complaint(path="book.xlsx")


@pytest.mark.parametrize("name", ["bad.npz", "bad.csv", "bad.parquet"])
@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00garbage", b"PK\x03\x04 cut off", b"PAR1xxxxPAR1"]
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    message = complaint(path=str(path), **({} if name == "bad.npz" else {"label": "y"}))
    assert name in message
    assert "\n" not in message


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
@pytest.mark.parametrize("large", [False, True])
def test_a_csv_file_in_another_encoding_says_what_to_do(
    encoding: str, large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(GOOD.replace("town1", "Zürich").encode(encoding))
    if large:
        pytest.importorskip("duckdb")
        monkeypatch.setattr(table_files, "LARGE", 0)
    with (
        pytest.raises(InputError, match=r"table.csv: .*save it as UTF-8\)\.$") as error,
        table_files.opened(path, None, tmp_path / "copy") as columns,
    ):
        columns["city"]
    assert "codec" not in str(error.value)


def test_pickled_objects_are_never_loaded_nor_advised(tmp_path: Path) -> None:
    path = tmp_path / "trap.npz"
    np.savez(path, x=np.array([{"a": 1}, None], dtype=object), y=np.array([0, 1]))
    message = complaint(path=str(path))
    assert "trap.npz" in message
    assert "never loaded" in message
    assert "allow_pickle" not in message


X, Y = np.ones((4, 2)), np.array([0, 1, 0, 1])
HOLE = np.array([[1.0, 2.0], [3.0, np.nan], [np.inf, 4.0], [5.0, 6.0]])


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": HOLE, "y": Y}, ["'x'", "column 2", "data row 2 is nan"]),
        ({"x": HOLE, "y": Y, "feature_names": np.array(["a", "b"])}, ["column 'b'", "data row 2"]),
        ({"x_train": X, "y_train": Y, "x_test": HOLE, "y_test": Y}, ["'x_test'", "data row 2"]),
        ({"x": X.astype(str), "y": Y}, ["'x'", "not numbers"]),
        ({"x": X}, ["'y' is missing"]),
        ({"x_train": X, "y_train": Y}, ["'x_test' is missing"]),
        ({"x_train": X, "y_train": Y, "x_test": X[:, :1], "y_test": Y}, ["x_test", "equal"]),
        ({"x_train": X, "y_train": Y[:3], "x_test": X, "y_test": Y}, ["4 rows", "y_train 3"]),
        ({"view0": X, "view2": X, "y": Y}, ["'view1' is missing"]),
        ({"view0": X, "view1": X[:3], "y": Y}, ["different numbers of rows", "3, 4"]),
        ({"features": X, "y": Y}, ["needs the arrays", "features"]),
        ({"x": X, "y": Y[:3]}, ["different numbers of rows"]),
        ({"x": X[:0], "y": Y[:0]}, ["'x' is empty"]),
        ({"x": X[:, 0], "y": Y}, ["'x' has shape (4,)"]),
        ({"x": X, "y": np.zeros(4)}, ["one class only"]),
        (
            {"x": X, "y": np.array([0, 1, np.nan, 0])},
            ["'y' is empty in 1 of 4 rows, first in data row 3"],
        ),
        ({"x": X, "y": Y, "feature_names": np.array(["a"])}, ["feature_names", "2 different"]),
    ],
)
def test_bad_arrays_are_refused_by_name(npz: Callable, arrays, words) -> None:
    message = complaint(path=npz(**arrays))
    for word in ["mine.npz", *words]:
        assert word in message


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"a": [1.0, 2.0, 3.0], "y": [0, 1, None]}, ["label column 'y'", "data row 3"]),
        (
            {"a": [1.0, 2.0], "y": ["u", None]},
            ["label column 'y' is empty in 1 of 2 rows, first in data row 2"],
        ),
        ({"a": [], "y": []}, ["is empty"]),
    ],
)
def test_a_bad_parquet_file_is_refused_with_column_and_row(tmp_path: Path, columns, words) -> None:
    message = complaint(path=parquet(tmp_path / "table.parquet", columns), label="y")
    for word in ["table.parquet", *words]:
        assert word in message


def test_parquet_without_polars_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = parquet(tmp_path / "table.parquet", {"a": [1.0, 2.0], "y": [0, 1]})
    monkeypatch.setitem(sys.modules, "polars", None)
    assert "pip install colonnade[data]" in complaint(path=path, label="y")


def labelled(folder: Path, labels: Sequence[object]) -> Path:
    path = folder / "own.csv"
    lines = ["a,b,target", *(f"{i},{i % 7},{label}" for i, label in enumerate(labels))]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_many_whole_numbers_as_labels_are_classes_with_a_caution(tmp_path: Path) -> None:
    ages = labelled(tmp_path, [18 + i % 80 for i in range(400)])
    data = load(DataSpec(path=str(ages), label="target"), 0)
    assert data.classes == 80
    [caution] = data.cautions
    assert "'target' holds 80 different whole numbers (18 to 97)" in caution
    assert 'set goal = "number"' in caution
    assert caution in data.notes, "the report shows it as well"


@pytest.mark.parametrize(
    "labels",
    [[i % 10 for i in range(400)], [f"word{i % 47}" for i in range(400)]],
    ids=["few numbers", "many words"],
)
def test_few_numbers_and_many_words_are_classes_without_a_caution(
    tmp_path: Path, labels: list[object]
) -> None:
    assert load(DataSpec(path=str(labelled(tmp_path, labels)), label="target"), 0).cautions == ()


@pytest.mark.parametrize("labels", [range(1000, 1400), [f"id{i}" for i in range(400)]])
def test_an_id_as_label_is_refused(tmp_path: Path, labels: Sequence[object]) -> None:
    path = labelled(tmp_path, labels)
    with pytest.raises(InputError, match="400 different values in 400 rows: that is an id or an"):
        load(DataSpec(path=str(path), label="target"), 0)


def test_fractions_as_labels_are_numbers_to_predict(tmp_path: Path) -> None:
    path = labelled(tmp_path, [0.5 * i for i in range(400)])
    data = load(DataSpec(path=str(path), label="target"), 0)
    assert data.classes == 0
    everything = torch.cat([part.y for part in (data.train, data.validation, data.test)])
    assert sorted(everything.tolist()) == [0.5 * i for i in range(400)]
    with pytest.raises(InputError, match=r"data row 2 is no class but a fraction.*goal = .number."):
        load(DataSpec(path=str(path), label="target", goal="classes"), 0)


def test_whole_numbers_are_numbers_to_predict_if_the_user_says_so(tmp_path: Path) -> None:
    path = labelled(tmp_path, [18 + i % 80 for i in range(400)])
    data = load(DataSpec(path=str(path), label="target", goal="number"), 0)
    assert (data.classes, data.cautions, data.train.y.dtype) == (0, (), torch.float64)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["1.5", "high", "2.5"], ["'target', data row 2 is no number", "'high'"]),
        (["1.5", "", "2.5"], ["'target' is empty in 1 of 3 rows, first in data row 2"]),
        (["7", "7", "7"], ["'target' holds one number only (7)"]),
    ],
)
def test_labels_that_are_no_numbers_are_named(
    tmp_path: Path, labels: list[str], words: list[str]
) -> None:
    path = labelled(tmp_path, labels)
    message = complaint(path=str(path), label="target", goal="number")
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("labels", "keys", "message"),
    [
        ([0, 1] * 20, {"metric": "rmse"}, r'data\.metric = "rmse": .* accuracy, balanced_accuracy'),
        ([0.5, 1] * 20, {"metric": "auc"}, r'data\.metric = "auc": .* one of rmse, mae, r2'),
        ([0.5, 1] * 20, {"weights": "balanced"}, r'data\.weights = "balanced": .* a number'),
    ],
)
def test_a_metric_that_is_not_for_the_label_is_refused_with_those_that_are(
    tmp_path: Path, labels: list[float], keys: dict[str, Any], message: str
) -> None:
    path = labelled(tmp_path, labels)
    with pytest.raises(InputError, match=message):
        load(DataSpec(path=str(path), label="target", **keys), 0)


@pytest.mark.parametrize("between", [";", "\t", "|"])
def test_values_may_be_separated_as_spreadsheets_of_many_countries_do(between: str, csv) -> None:
    rows = [["age", "cost", "y"], *([str(20 + n), f"{n},5", "ab"[n % 2]] for n in range(30))]
    path = csv("\ufeff" + "\r\n".join(between.join(row) for row in rows) + "\r\n")
    assert read_columns(Path(path))["cost"][:2] == ("0,5", "1,5")
    assert load(DataSpec(path=path, label="y", parties=2), 0).widths == (1, 1)


def nested(path: Path) -> str:
    """A table with columns whose types are no cells."""
    polars = pytest.importorskip("polars")
    columns: dict[str, Any] = {
        "tags": [[n] for n in range(20)],
        "place": [{"north": n} for n in range(20)],
        "photo": [b"\xff"] * 20,
        "stay": polars.Series([n * 1_500_000 for n in range(20)], dtype=polars.Duration("us")),
        "age": list(range(20)),
        "outcome": [n % 2 for n in range(20)],
    }
    fixed = polars.Series([[n, n] for n in range(20)], dtype=polars.Array(polars.Int64, 2))
    return parquet(path, {**columns, "pair": fixed})


def test_columns_whose_types_are_no_cells_are_left_out_and_named(tmp_path: Path) -> None:
    path = nested(tmp_path / "table.parquet")
    data = load(DataSpec(path=path, label="outcome", parties=1), 0)
    assert data.widths == (2,), "stay in seconds, and age"
    (note,) = (note for note in data.notes if "left out" in note)
    for told in ("tags (nested (lists))", "place (nested (records))", "photo (bytes)"):
        assert told in note
    stay, _ = (one for one in data.scalers[0].columns if one.width)  # pyright: ignore
    assert isinstance(stay, Standard)
    assert 0 < stay.centre < 20 * 1.5


@pytest.mark.parametrize(
    "asked",
    [
        {"columns": {"clinic": ["age", "tags"]}, "label": "outcome"},
        {"label": "tags"},
        {"label": "outcome", "prepare": {"tags": "onehot"}},
        {"label": "outcome", "split_by": SplitBy(group="tags")},
    ],
)
def test_a_column_of_lists_that_is_asked_for_by_name_is_refused(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    message = complaint(path=nested(tmp_path / "table.parquet"), **asked)
    assert re.search(r"table\.parquet: column 'tags' .* nested \(lists\).*data\.query", message)


def test_a_type_that_polars_cannot_read_is_told_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    polars = pytest.importorskip("polars")
    path = nested(tmp_path / "table.parquet")

    def panic(_: object) -> None:
        raise polars.exceptions.PanicException("called `Result::unwrap()` on an `Err` value")

    monkeypatch.setattr(polars, "read_parquet_schema", panic)
    assert re.search(r"type that polars cannot read.*data\.query", complaint(path=path, label="y"))


def test_whole_numbers_of_64_bits_stay_exact_as_labels_and_ids(tmp_path: Path) -> None:
    """2^53 and 2^53 + 1 are one float64."""
    polars = pytest.importorskip("polars")
    large = [2**53, 2**53 + 1, 2**63 - 1]
    columns = {
        "signed": large,
        "gaps": [*large[:2], None],
        "unsigned": polars.Series([2**64 - 1, 2**64 - 2, 0], dtype=polars.UInt64),
        "wide": polars.Series([2**70, 2**70 + 1, 0], dtype=polars.Int128),
        "small": [1, 2, None],
    }
    found = read_columns(Path(parquet(tmp_path / "table.parquet", columns)))
    assert words(found["signed"]) == [str(n) for n in large]
    assert words(found["gaps"]) == [str(2**53), str(2**53 + 1), ""]
    assert words(found["unsigned"]) == [str(2**64 - 1), str(2**64 - 2), "0"]
    assert words(found["wide"]) == [str(2**70), str(2**70 + 1), "0"]
    assert words(found["small"]) == ["1", "2", ""]


def test_a_large_csv_file_has_the_cells_of_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Separators, quotes, line breaks in cells, leading zeros, spaces and gaps."""
    pytest.importorskip("duckdb")
    path = tmp_path / "table.csv"
    lines = ['\ufeffwho;"what; is"', '1;"x;\ny"', "007; spaces ", '3;"says ""no"""', "NA;", ""]
    path.write_text("\n".join(lines), encoding="utf-8")
    small = {name: list(column) for name, column in read_columns(path).items()}
    monkeypatch.setattr(table_files, "LARGE", 0)
    with table_files.opened(path, None, tmp_path / "party") as columns:
        assert isinstance(columns, table_files.ParquetColumns)
        assert {name: list(columns[name]) for name in columns} == small
    assert not list((tmp_path / "party").iterdir())
    for content, why in {
        b"a,b\n1,2\n3\n": r"Line: 3: Expected Number of Columns: 2 Found: 1",
        b"a,b\n1,\xff\n": r"another encoding, such as Latin-1.*save it as UTF-8",
        b"a,a\n1,2\n": "names column 'a' twice",
    }.items():
        path.write_bytes(content)
        with (
            pytest.raises(InputError, match=rf"table\.csv: .*{why}") as told,
            table_files.opened(path, None, tmp_path / "party"),
        ):
            pass
        assert "\n" not in str(told.value)


def test_gigabytes_of_text_count_as_large_and_few_rows_are_read_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By cells of 8 bytes the table would be small."""
    rng = np.random.default_rng(0)
    texts = [rng.bytes(500).hex() for _ in range(300)]
    path = Path(parquet(tmp_path / "table.parquet", {"note": texts, "x": list(range(300))}))
    monkeypatch.setattr(table_files, "LARGE", 300 * 2 * 8)
    monkeypatch.setattr(table_files, "CHUNK", 2**14)
    with table_files.opened(path, None, tmp_path) as columns:
        assert isinstance(columns, table_files.ParquetColumns)
        assert columns.part(["note"]) * 500 <= 2**14
        rows = rng.permutation(300)[:50]
        assert columns.take("note", rows) == [texts[row] for row in rows]
        parts = [part["note"] for part in columns.chunks(["note", "x"])]
        assert [text for part in parts for text in part] == texts
