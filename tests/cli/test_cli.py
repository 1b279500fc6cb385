"""The command line, as a user meets it: exit codes, messages, files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.command_line import colonnade, process

EXPERIMENT = """
name = "quick"
[data]
dataset = "wine"
[[methods]]
name = "split"
algorithm = "splitnn"
epochs = 3
"""

CSV = """
name = "own table"
[data]
path = "table.csv"
label = "outcome"
columns = { clinic = ["age", "weight"], lab = ["sugar"] }
[[methods]]
algorithm = "splitnn"
epochs = 2
"""


def patients(rows: int = 60) -> list[list[str]]:
    header = [["age", "weight", "sugar", "outcome"]]
    return header + [
        [str(30 + i), str(60 + i % 7), str(i % 2), "sick" if i % 2 else "well"] for i in range(rows)
    ]


def save(path: Path, rows: list[list[str]]) -> None:
    path.write_text("\n".join(",".join(row) for row in rows) + "\n")


def test_run_prints_a_table_writes_the_folder_and_goes_on_when_called_again(tmp_path: Path) -> None:
    (tmp_path / "quick.toml").write_text(EXPERIMENT)
    first = process("run", "quick.toml", folder=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "split" in first.stdout
    assert "Test accuracy" in first.stdout
    folder = tmp_path / "runs" / "quick"
    assert {p.name for p in folder.iterdir()} == {
        "config.toml", "results.jsonl", "history", "ledger", "course", "curves", "models",
        "report.html",
    }  # fmt: skip
    before = (folder / "results.jsonl").read_bytes()
    assert colonnade("run", "quick.toml", folder=tmp_path).returncode == 0
    assert (folder / "results.jsonl").read_bytes() == before
    (folder / "report.html").unlink()
    assert colonnade("report", str(folder), folder=tmp_path).returncode == 0
    assert (folder / "report.html").exists()


def test_json_is_one_document_on_standard_output(tmp_path: Path) -> None:
    (tmp_path / "quick.toml").write_text(EXPERIMENT)
    done = process("run", "quick.toml", "--json", "--set", "seeds=[3]", folder=tmp_path)
    document = json.loads(done.stdout)
    assert [result["seed"] for result in document["results"]] == [3]
    listing = json.loads(colonnade("datasets", "--json", folder=tmp_path).stdout)
    assert {"digits", "mnist", "handwritten"} <= {entry["name"] for entry in listing["datasets"]}


def test_own_tables_run(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(CSV)
    save(tmp_path / "table.csv", patients())
    done = colonnade("run", "own.toml", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    ledger = next((tmp_path / "runs" / "own-table" / "ledger").iterdir()).read_text()
    assert '"sender":"clinic"' in ledger


def test_datasets_says_what_is_there_and_where_it_looked(tmp_path: Path) -> None:
    shown = colonnade("datasets", folder=tmp_path, COLONNADE_DATA=str(tmp_path)).stdout
    assert "digits" in shown
    assert "embedded" in shown


def test_reproduce_lists_what_there_is_and_how_long_it_takes(tmp_path: Path) -> None:
    shown = colonnade("reproduce", folder=tmp_path).stdout
    entries = json.loads(colonnade("reproduce", "--json", folder=tmp_path).stdout)["reproductions"]
    assert {"dvfl-table1", "dvfl-redundancy", "dvfl-period"} <= {e["name"] for e in entries}
    for entry in entries:
        assert entry["name"] in shown
        assert set(entry["takes"]) == {"smoke", "quick", "full"}


def test_reproduce_puts_our_figures_beside_the_papers_and_goes_on_when_called_again(
    tmp_path: Path,
) -> None:
    command = ("reproduce", "dvfl-period", "--scale", "smoke", "--jobs", "1")
    first = colonnade(*command, folder=tmp_path, COLONNADE_DATA=str(tmp_path))
    assert first.returncode == 0, first.stderr
    for text in ("paper", "97.30", "substitute for MNIST", "to the byte", "holds", "Report: "):
        assert text in first.stdout
    out = tmp_path / "runs" / "dvfl-period-smoke"
    assert {p.name for p in out.iterdir()} == {"period", "reproduction.json", "report.html"}
    before = (out / "period" / "results.jsonl").read_bytes()
    again = colonnade(*command, "--json", folder=tmp_path, COLONNADE_DATA=str(tmp_path))
    document = json.loads(again.stdout)
    assert document == json.loads((out / "reproduction.json").read_text())
    assert document["sheets"][0]["cells"][0]["paper"] == 0.973
    assert (out / "period" / "results.jsonl").read_bytes() == before
    (out / "report.html").unlink()
    assert colonnade("report", str(out), folder=tmp_path).returncode == 0
    assert (out / "report.html").exists()


def test_a_misspelt_reproduction_is_refused_with_the_nearest_and_the_list(tmp_path: Path) -> None:
    done = colonnade("reproduce", "dvfl-tabel1", folder=tmp_path)
    refused(done, "dvfl-tabel1", "nearest is 'dvfl-table1'", "dvfl-widths")
    assert not (tmp_path / "runs").exists()
    assert colonnade("reproduce", "dvfl-table1", "--scale", "huge", folder=tmp_path).returncode == 2


def test_help_names_every_command(tmp_path: Path) -> None:
    shown = colonnade("--help", folder=tmp_path).stdout
    for command in ("demo", "run", "reproduce", "report", "datasets"):
        assert command in shown


TABLE_MISTAKES = {
    "text among numbers": (3, 0, "young", r"table.csv", "age", "data row 3"),
    "not finite": (2, 0, "inf", r"table.csv", "age", "is infinite"),
}


@pytest.mark.parametrize("name", TABLE_MISTAKES)
def test_a_bad_value_is_found_by_file_column_and_row(tmp_path: Path, name: str) -> None:
    row, column, value, *mentioned = TABLE_MISTAKES[name]
    table = patients()
    table[row][column] = value
    (tmp_path / "own.toml").write_text(CSV)
    save(tmp_path / "table.csv", table)
    refused(colonnade("run", "own.toml", folder=tmp_path), *mentioned)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("old", "new", "mentioned"),
    [
        ("quick.toml", "missing.toml", ["missing.toml", "cannot be read"]),
        ("epochs = 3", "epoch = 3", ["methods[0].epoch", "epochs"]),
        ("epochs = 3", 'epochs = "3"', ["methods[0].epochs", "a whole number"]),
        ('"wine"', '"wien"', ["wien", "wine"]),
        ('dataset = "wine"', 'dataset = "wine"\nparties = 14', ["parties", "13"]),
        ('name = "quick"', 'name = "quick"\nseeds = []', ["seeds"]),
        (
            "[[methods]]",
            '[[faults]]\nname="f"\nkind="client"\ndown=2.0\n[[methods]]',
            ["faults[0].down", "0 to 1"],
        ),
        ('dataset = "wine"', 'dataset = "caltech7"', ["caltech7", "COLONNADE_DATA"]),
        ('"wine"', '"[/x]"', ["[/x]"]),
        ("[[methods]]", "[methods]", ["[[methods]]"]),
        ('"splitnn"', '["splitnn"]', ["methods[0].algorithm"]),
        (
            "[[methods]]",
            '[[faults]]\nname="f"\nkind="trace"\npath="no.npz"\n[[methods]]',
            ["no.npz"],
        ),
    ],
)
def test_bad_input_exits_with_2_and_says_what_is_wrong(
    tmp_path: Path, old: str, new: str, mentioned: list[str]
) -> None:
    (tmp_path / "quick.toml").write_text(EXPERIMENT.replace(old, new))
    file = new if new.endswith(".toml") else "quick.toml"
    done = colonnade("run", file, folder=tmp_path, COLONNADE_DATA=str(tmp_path / "data"))
    refused(done, file, *mentioned)


@pytest.mark.parametrize(
    ("change", "mentioned"),
    [
        (
            lambda rows: [[*row[:3], "sick" if i else "outcome"] for i, row in enumerate(rows)],
            ["one class"],
        ),
        (lambda rows: [], ["table.csv", "empty"]),
    ],
)
def test_labels_of_one_class_and_empty_files_are_refused(
    tmp_path: Path, change: object, mentioned: list[str]
) -> None:
    (tmp_path / "own.toml").write_text(CSV)
    save(tmp_path / "table.csv", change(patients()))  # pyright: ignore[reportCallIssue]
    refused(colonnade("run", "own.toml", folder=tmp_path), *mentioned)


def test_a_column_of_two_parties_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(CSV.replace('["sugar"]', '["sugar", "age"]'))
    save(tmp_path / "table.csv", patients())
    refused(colonnade("run", "own.toml", folder=tmp_path), "age", "clinic", "lab")


def test_another_experiments_folder_and_a_report_of_nothing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "quick.toml").write_text(EXPERIMENT)
    assert colonnade("run", "quick.toml", "--out", "out", folder=tmp_path).returncode == 0
    other = colonnade("run", "quick.toml", "--out", "out", "--set", "seeds=[7]", folder=tmp_path)
    refused(other, "out", "another experiment", "--fresh")
    refused(colonnade("report", "nowhere", folder=tmp_path), "nowhere")


def test_a_lost_party_exits_with_1_and_names_it(tmp_path: Path) -> None:
    gone = '[[faults]]\nname = "gone"\nkind = "client"\ndown = 0.5\nup = 0.0\n'
    gone += '[[methods]]\nmissing = "wait"'
    (tmp_path / "quick.toml").write_text(EXPERIMENT.replace("[[methods]]", gone))
    done = colonnade("run", "quick.toml", folder=tmp_path)
    assert done.returncode == 1
    assert "is out of reach" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def refused(done: subprocess.CompletedProcess[str], *mentioned: str) -> None:
    assert done.returncode == 2, done.stderr
    for text in mentioned:
        assert text in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_the_version_is_told(tmp_path: Path) -> None:
    told = colonnade("--version", folder=tmp_path)
    assert told.returncode == 0
    assert told.stdout == f"colonnade {version('colonnade')}\n"


@pytest.mark.parametrize("command", ["datasets", "reproduce"])
def test_the_lists_fit_a_terminal_of_80_columns_in_a_few_lines_an_entry(
    command: str, tmp_path: Path
) -> None:
    told = colonnade(command, folder=tmp_path, COLUMNS="80")
    assert told.returncode == 0
    lines = told.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    body = lines[1 : lines.index("")]
    entries = [line for line in body if not line.startswith(" ")]
    assert len(entries) > 10
    assert len(body) <= 3 * len(entries)


FEDERATION = """
name = "quick"
[data]
dataset = "wine"
[method]
algorithm = "splitnn"
epochs = 3
"""

WRONG = {
    "unknown-key.toml": EXPERIMENT + "[date]\n",
    "unknown-set.toml": EXPERIMENT.replace("wine", "whine"),
    "method-key.toml": EXPERIMENT.replace("epochs", "epochz"),
    "method-type.toml": EXPERIMENT.replace("3", '"3"'),
    "method-limit.toml": EXPERIMENT.replace("3", "0"),
    "no-algorithm.toml": EXPERIMENT.replace("splitnn", "splitn"),
    "federation-key.toml": FEDERATION.replace("epochs", "epochz"),
    "federation-limit.toml": FEDERATION.replace("3", "0"),
    "federation-algorithm.toml": FEDERATION.replace("splitnn", "splitn"),
    "no-file.toml": CSV,
    "no-set.toml": EXPERIMENT.replace("wine", "caltech7"),
    "no-module.toml": EXPERIMENT + 'encoder = "nope:Tower"\n',
    "federation-network.toml": FEDERATION + "[network]\nsilence = -1\n",
    "federation-pooled.toml": FEDERATION.replace("splitnn", "centralised"),
    "federation-no-file.toml": FEDERATION.replace('dataset = "wine"', 'path = "nofile.npz"'),
    "federation-party.toml": 'federation = "federation-key.toml"\nparty = "client0"\n',
}

LIGHT = {
    "the help": (["--help"], 0),
    "the version": (["--version"], 0),
    "the data sets": (["datasets"], 0),
    "the reproductions": (["reproduce"], 0),
    "a reproduction that is not known": (["reproduce", "dvfl-table9"], 2),
    "keys": (["keys", "authority", "test"], 0),
    "a file that is not there": (["run", "missing.toml"], 2),
    "an unknown key": (["run", "unknown-key.toml"], 2),
    "an unknown data set": (["run", "unknown-set.toml"], 2),
    "an unknown key of a method": (["run", "method-key.toml"], 2),
    "a value of a wrong type": (["run", "method-type.toml"], 2),
    "a value outside its limits": (["run", "method-limit.toml"], 2),
    "an unknown algorithm": (["run", "no-algorithm.toml"], 2),
    "an unknown key of a compared method": (["compare", "method-key.toml"], 2),
    "an unknown algorithm to compare": (["compare", "no-algorithm.toml"], 2),
    "an unknown key, set": (["run", "experiment.toml", "--set", "methods.0.epochz=3"], 2),
    "an unknown key of a federation's method": (["up", "federation-key.toml"], 2),
    "a federation's value outside its limits": (["up", "federation-limit.toml"], 2),
    "an unknown algorithm of a federation": (["up", "federation-algorithm.toml"], 2),
    "no federation file": (["up", "missing.toml"], 2),
    "an experiment for up": (["up", "experiment.toml"], 2),
    "an unknown key of the federation's method, joined": (["join", "federation-party.toml"], 2),
    "an unknown key of the federation's method, aligned": (["align", "federation-party.toml"], 2),
    "no party file": (["join", "missing.toml"], 2),
    "a party that is not there": (["predict", "missing.toml"], 2),
    "data that cannot be read": (["run", "no-file.toml"], 2),
    "data that cannot be read, audited": (["audit", "no-file.toml"], 2),
    "a data set that is not there": (["run", "no-set.toml"], 2),
    "a model whose module is not there": (["run", "no-module.toml"], 2),
    "a federation's network outside its limits": (["up", "federation-network.toml"], 2),
    "a method that cannot be federated": (["up", "federation-pooled.toml"], 2),
    "a federation's data that cannot be read": (["up", "federation-no-file.toml"], 2),
    "no run to explain": (["explain", "missing"], 2),
    "no run to audit": (["audit", "missing"], 2),
    "an empty folder to audit": (["audit", "empty"], 2),
    "no run to report": (["report", "missing"], 2),
}


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[object]]:
    """For each of LIGHT, in one process: the exit code, and whether torch was imported by then."""
    folder = tmp_path_factory.mktemp("light")
    (folder / "experiment.toml").write_text(EXPERIMENT)
    (folder / "empty").mkdir()
    for name, text in WRONG.items():
        (folder / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, json.dumps(LIGHT)],
        cwd=folder,
        env=os.environ | {"COLUMNS": "80", "COLONNADE_DATA": "data"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return json.loads(done.stdout.splitlines()[-1])


WITHOUT_TORCH = """
import json, sys
from contextlib import redirect_stdout
from colonnade.cli import main
found = {}
for name, (words, _) in json.loads(sys.argv[1]).items():
    sys.argv, code = ["colonnade", *words], 0
    try:
        with redirect_stdout(sys.stderr):
            main()
    except SystemExit as end:
        code = end.code or 0
    found[name] = (code, "torch" in sys.modules)
print(json.dumps(found))
"""


@pytest.mark.parametrize("name", LIGHT)
def test_what_computes_nothing_does_not_wait_for_torch(
    name: str, imported: dict[str, list[object]]
) -> None:
    assert imported[name] == [LIGHT[name][1], False]


@pytest.mark.parametrize("cell", ["", "nan", "NA"])
def test_a_cell_without_a_number_is_filled_and_the_table_trains(cell: str, tmp_path: Path) -> None:
    table = patients()
    table[4][2] = table[2][1] = cell
    (tmp_path / "own.toml").write_text(CSV)
    save(tmp_path / "table.csv", table)
    done = colonnade("run", "own.toml", folder=tmp_path)
    assert done.returncode == 0, done.stderr
