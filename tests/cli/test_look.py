"""`colonnade look`: what would be done with a table, before anything is trained."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.command_line import colonnade, process

from colonnade.data import looking, table_files
from colonnade.data.looking import Wanted, look
from colonnade.data.preprocessing import Preprocessing
from colonnade.data.table_files import read_columns
from colonnade.errors import InputError

TABLE = "patient,age,city,seen,smoker,remark,const,outcome\n" + "".join(
    f"{100 + i},{'' if i % 9 == 0 else 20 + i % 50},{['Rome', 'Oslo', 'Bonn'][i % 3]},"
    f"2024-0{1 + i % 9}-11,{'yes' if i % 4 else 'no'},a remark of its own {i},same,{i % 2}\n"
    for i in range(90)
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "patients.csv").write_text(TABLE)
    return tmp_path


EXAMPLES = Path(__file__).parent.parent.parent / "examples"
KEYS = ("look", "patients.csv", "--label", "outcome", "--key", "patient")


def test_each_column_has_a_line_and_the_table_fits_a_terminal_of_80_columns(folder: Path) -> None:
    done = colonnade(*KEYS, folder=folder, COLUMNS="80")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    city = next(line.split() for line in lines if line.split()[:1] == ["city"])
    assert city[:5] == ["city", "category", "3", "onehot", "3"]
    age = next(line.split() for line in lines if line.split()[:1] == ["age"])
    assert age[:6] == ["age", "number", "10", "49", "standard", "2"]
    assert "5 columns become" not in done.stdout
    assert "4 columns become 11 numbers" in " ".join(done.stdout.split())


def test_as_json_for_programs(folder: Path) -> None:
    found = json.loads(colonnade(*KEYS, "--json", folder=folder).stdout)
    treatments = {one["name"]: (one["treatment"], one["width"]) for one in found["columns"]}
    assert treatments == {
        "patient": ("no feature", 0),
        "age": ("standard", 2),
        "city": ("onehot", 3),
        "seen": ("date", 5),
        "smoker": ("boolean", 1),
        "remark": ("left out", 0),
        "const": ("left out", 0),
        "outcome": ("no feature", 0),
    }
    assert (found["rows"], found["width"]) == (90, 11)


def test_a_treatment_can_be_tried(folder: Path) -> None:
    more = ("--prepare", "city=ordinal", "--prepare", "seen=drop", "--json")
    assert json.loads(colonnade(*KEYS, *more, folder=folder).stdout)["width"] == 4
    done = colonnade(*KEYS, "--prepare", "city=hot", folder=folder)
    assert done.returncode == 2
    assert "--prepare city" in done.stderr
    assert "'onehot'" in done.stderr


def test_a_column_that_would_be_refused_is_told_and_the_others_are_shown(folder: Path) -> None:
    rows = [f"{i},{i % 3}" for i in range(100)]
    (folder / "mixed.csv").write_text("a,b\n" + "\n".join([*rows, "broken,1"]) + "\n")
    done = colonnade("look", "mixed.csv", folder=folder)
    assert done.returncode == 0
    assert "refused" in done.stdout
    assert "column 'a' mixes numbers and words" in done.stdout
    assert "1 columns become 1 numbers" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gone.csv",), "gone.csv: cannot be read"),
        (("patients.csv", "--label", "outcom"), "no column 'outcom', which is named as the label"),
        (("patients.csv", "--query", "DROP TABLE data"), "must be one SELECT"),
    ],
)
def test_what_is_wrong_ends_with_exit_code_2(
    folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = colonnade("look", *arguments, folder=folder)
    assert done.returncode == 2
    assert message in done.stderr


PARTY = 'federation = "federation.toml"\nparty = "clinic"\n[data]\n'


def write_federation(folder: Path, algorithm: str, rows: str) -> None:
    several = algorithm == "cvfl"
    roles = '["clients", "active"]' if several else '["clients", "server"]'
    bureau = '[[parties]]\nname = "bureau"\nrole = "collaborator"\nendpoint = "localhost:3"\n'
    (folder / "federation.toml").write_text(
        f'name = "t"\n[rows]\n{rows}\nclasses = 2\n[method]\nalgorithm = "{algorithm}"\n'
        '[network]\ntransport = "tcp"\n'
        f'[[parties]]\nname = "clinic"\nroles = {roles}\nendpoint = "localhost:1"\n'
        '[[parties]]\nname = "lab"\nrole = "clients"\nendpoint = "localhost:2"\n' + bureau * several
    )


def test_a_party_file_shows_its_table_and_after_the_training_what_was_fitted(folder: Path) -> None:
    write_federation(folder, "splitnn", 'match = "private"')
    (folder / "clinic.toml").write_text(
        PARTY + 'path = "patients.csv"\n'
        'id = "patient"\nlabel = "outcome"\nprepare = { city = "ordinal", seen = "drop" }\n'
    )
    found = json.loads(colonnade("look", "clinic.toml", "--json", folder=folder).stdout)
    assert (found["width"], found["fitted"]) == (4, False)
    rows = np.arange(1, 9)  # of these, no age is empty
    columns = read_columns(folder / "patients.csv")
    fitted = Preprocessing.fit({"age": columns["age"]}, rows, "patients.csv")
    fitted.save(folder / "clinic" / "preprocessing.json")
    found = json.loads(colonnade("look", "clinic.toml", "--json", folder=folder).stdout)
    assert found["fitted"]
    assert {one["name"]: one["width"] for one in found["columns"]}["age"] == 1
    done = colonnade("look", "clinic.toml", "--label", "outcome", folder=folder)
    assert (done.returncode, "a party file says all of this" in done.stderr) == (2, True)


def test_keys_of_several_rows_and_classes_are_told(folder: Path) -> None:
    (folder / "twice.csv").write_text("patient,age,y\n1,3,a\n1,4,b\n2,5,a\n")
    found = colonnade("look", "twice.csv", "--key", "patient", "--label", "y", folder=folder).stdout
    assert "1 of them in more than one row" in found
    assert "a, b" in found


def test_columns_whose_types_are_no_cells_are_left_out(tmp_path: Path) -> None:
    """Also an INTERVAL, at which polars panics unless it is told otherwise."""
    duckdb = pytest.importorskip("duckdb")
    for name, more in {"table": "i * INTERVAL 1 DAY AS stay, i AS age", "tags": "i AS age"}.items():
        rows = f"SELECT [i] AS tags, {more} FROM range(9) t(i)"
        duckdb.connect().execute(f"COPY ({rows}) TO '{tmp_path}/{name}.parquet' (FORMAT parquet)")
    done = process("look", "table.parquet", "--json", folder=tmp_path)
    found = {one["name"]: one for one in json.loads(done.stdout)["columns"]}
    assert (found["tags"]["treatment"], found["tags"]["detail"]) == ("left out", "nested (lists)")
    assert found["stay"]["treatment"] == "left out"
    assert found["age"]["width"] == 1
    path = tmp_path / "tags.parquet"
    for wanted in (
        Wanted(path=path, key="tags"),
        Wanted(path=path, label="tags"),
        Wanted(path=path, only=["tags"]),
    ):
        with pytest.raises(InputError, match=r"column 'tags' holds .*nested"):
            look(wanted)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_of_a_large_table_a_sample_is_looked_at_and_the_command_says_so(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    polars = pytest.importorskip("polars")
    pytest.importorskip("duckdb")
    frame = polars.DataFrame({"age": list(range(500)), "town": ["Rome", "Oslo"] * 250})
    getattr(frame, f"write_{kind}")(tmp_path / f"table.{kind}")
    monkeypatch.setattr(table_files, "LARGE", 0)
    monkeypatch.setattr(looking, "SAMPLE", 40)
    done = colonnade("look", f"table.{kind}", folder=tmp_path)
    assert "500 rows; 2 columns become 3 numbers" in done.stdout
    assert "40 of its rows were looked at" in done.stdout
    age = next(line.split() for line in done.stdout.splitlines() if line.split()[:1] == ["age"])
    assert age[:3] == ["age", "number", "40"]


def test_rows_without_a_label_are_told_as_a_training_would_refuse_them(folder: Path) -> None:
    (folder / "gaps.csv").write_text("age,y\n3,a\n4,\n5,b\n6,\n")
    done = colonnade("look", "gaps.csv", "--label", "y", folder=folder)
    assert done.returncode == 0
    assert "label column 'y' is empty in 2 of 4 rows, first in data row 2" in done.stdout
    assert "refused" in done.stdout
    assert "with rows.match they may stay" in done.stdout


@pytest.mark.parametrize(
    ("algorithm", "rows", "told"),
    [
        ("splitnn", 'match = "private"', "2 rows without a label are not trained on, and may be"),
        ("splitnn", "aligned = 40", "2 rows without a label are not trained on, and may be asked"),
        ("cvfl", "aligned = 60", "2 rows without a label here may have one at another party"),
        ("splitnn", "aligned = 51", "column 'y' is empty in 1 of 51 rows, first in data row 51"),
        ("splitnn", "", "column 'y' is empty in 2 of 60 rows, first in data row 51"),
    ],
)
def test_of_a_party_the_federation_file_says_which_rows_need_a_label(
    algorithm: str, rows: str, told: str, folder: Path
) -> None:
    labels = ["" if i in (50, 51) else "ab"[i % 2] for i in range(60)]
    lines = "".join(f"p{i},{i % 7},{label}\n" for i, label in enumerate(labels))
    (folder / "clinic.csv").write_text("patient,age,y\n" + lines)
    write_federation(folder, algorithm, rows)
    (folder / "clinic.toml").write_text(
        PARTY + 'path = "clinic.csv"\nlabel = "y"\nid = "patient"\n'
    )
    found = json.loads(colonnade("look", "clinic.toml", "--json", folder=folder).stdout)
    label = {one["name"]: one for one in found["columns"]}["y"]
    assert told in label["detail"]
    assert (label["treatment"] == "refused") == ("is empty" in told)


def test_the_party_file_of_a_tutorial_shows_what_its_training_accepts(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "first-federation", tmp_path / "first")
    subprocess.run([sys.executable, "make_data.py"], cwd=tmp_path / "first", check=True)
    found = json.loads(
        colonnade("look", "hospital.toml", "--json", folder=tmp_path / "first").stdout
    )
    label = {one["name"]: one for one in found["columns"]}["diagnosis"]
    assert (label["gaps"], label["treatment"]) == (60, "no feature")
    assert "60 rows without a label are not trained on, and may be asked for" in label["detail"]


@pytest.mark.parametrize(("key", "told"), [((), True), (("--key", "member"), False)])
def test_numbers_with_leading_zeros_may_be_a_key(
    folder: Path, key: tuple[str, ...], told: bool
) -> None:
    rows = "".join(f"{i:06d},{i % 7}\n" for i in range(50))
    (folder / "members.csv").write_text("member,age\n" + rows)
    found = json.loads(colonnade("look", "members.csv", *key, "--json", folder=folder).stdout)
    details = {one["name"]: one["detail"] for one in found["columns"]}
    assert found["columns"][0]["kind"] == ("text" if told else "key")
    assert ("leading zeros: may be a key (--key member)" in details["member"]) == told
    assert "leading zeros" not in details["age"]
