"""`colonnade look`: what would be done with a table, before anything is trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.command_line import colonnade

TABLE = "patient,age,city,seen,smoker,remark,const,outcome\n" + "".join(
    f"{100 + i},{'' if i % 9 == 0 else 20 + i % 50},{['Rome', 'Oslo', 'Bonn'][i % 3]},"
    f"2024-0{1 + i % 9}-11,{'yes' if i % 4 else 'no'},a remark of its own {i},same,{i % 2}\n"
    for i in range(90)
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "patients.csv").write_text(TABLE)
    return tmp_path


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
        (("patients.csv", "--label", "outcom"), "no column 'outcom', which --label names"),
        (("patients.csv", "--query", "DROP TABLE data"), "must be one SELECT"),
    ],
)
def test_what_is_wrong_ends_with_exit_code_2(
    folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = colonnade("look", *arguments, folder=folder)
    assert done.returncode == 2
    assert message in done.stderr
