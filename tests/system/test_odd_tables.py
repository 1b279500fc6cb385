"""Tables as they come out of spreadsheets and databases: each party as a process, nothing declared
but the columns of keys and labels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.command_line import colonnade

pytest.importorskip("private_set_intersection")

FEDERATION = """
name = "odd"
[rows]
match = "private"
normalise = ["trim", "zeros"]
classes = ["not so ill", "very ill"]
[method]
algorithm = "splitnn"
epochs = 1
[[parties]]
name = "hospital"
roles = ["clients", "server"]
[[parties]]
name = "lab"
role = "clients"
"""
ROWS, PARTS = 60, ("hospital", "lab")


def write(folder: Path) -> None:
    (folder / "federation.toml").write_text(FEDERATION)
    rest = 'federation = "federation.toml"\nkeys = "keys"\n'
    for party, data in {
        "hospital": 'id = "Patient No."\nlabel = "Outcome"\n',
        "lab": 'id = "patient"\n',
    }.items():
        text = f'party = "{party}"\n{rest}[data]\npath = "{party}.csv"\n{data}'
        (folder / f"{party}.toml").write_text(text)
    lines = ["Patient No.;Cost;Smoker;Nothing;Remark;Outcome"] + [
        f"{i:05};{i * 3 % 47},5;{['TRUE', 'FALSE', ''][i % 3]};;remark {i};"
        f"{['very ill ', ' not so ill'][i % 2]}"
        for i in range(ROWS)
    ]
    (folder / "hospital.csv").write_text("\ufeff" + "\r\n".join(lines), encoding="utf-8")
    days = ("{:02}/02/2024", "2024-01-{:02}")
    lines = ["patient,price,drawn,note"] + [
        f'{i},"1,{i:03}.5",{days[i % 2].format(1 + i % 28)},{i}x' for i in range(5, ROWS + 5)
    ]
    (folder / "lab.csv").write_text("\n".join(lines) + "\n")


def test_tables_of_several_countries_are_matched_and_trained_on_as_they_are(tmp_path: Path) -> None:
    write(tmp_path)
    done = colonnade("up", "federation.toml", "--out", "out", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["notes"] == [
        "hospital: columns left out: Nothing (empty), Remark (ids or free text: 40 values in 40 "
        "rows)",
        "lab: columns left out: note (ids or free text: 40 values in 40 rows)",
    ]
    kept = {p: json.loads((tmp_path / "out" / p / "preprocessing.json").read_text()) for p in PARTS}
    treatments = {
        column["name"]: (column["treatment"], column.get("mark") or column.get("pattern"))
        for one in kept.values()
        for column in one["columns"]
    }
    assert {name: treatments[name] for name in ("Cost", "Smoker", "price", "drawn")} == {
        "Cost": ("standard", "comma"),
        "Smoker": ("boolean", None),
        "price": ("standard", "point"),
        "drawn": ("date", "iso|%d/%m/%Y"),
    }
    assert any("of 60 rows here, 55 at lab (of 60)" in note for note in told["result"]["notes"])
