"""`colonnade audit`: of a file and of a run, of several seeds, interrupted, and with bad input."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.command_line import colonnade

from colonnade.errors import InputError
from colonnade.experiments.audit import measure
from colonnade.experiments.audit.defences import DEFENCES, with_defences
from colonnade.experiments.config import parse_experiment

FILE = """
name = "who"
seeds = [0, 1]
[data]
dataset = "breast_cancer"
parties = 2
[[methods]]
name = "SplitNN"
algorithm = "splitnn"
epochs = 1
[[methods]]
name = "SplitNN + hide_labels"
algorithm = "splitnn"
epochs = 1
hide_labels = 16
[[methods]]
name = "all"
algorithm = "centralised"
epochs = 1
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a file, and its audit."""
    folder = tmp_path_factory.mktemp("audit")
    (folder / "file.toml").write_text(FILE)
    words = ["--jobs", "1", "--markdown", "docs/page.md"]
    done = colonnade("audit", "file.toml", *words, folder=folder, COLUMNS="80")
    assert done.returncode == 0, done.stderr
    (folder / "shown.txt").write_text(done.stdout)
    return folder


def test_the_table_fits_80_columns_and_breaks_no_word(place: Path) -> None:
    shown = (place / "shown.txt").read_text()
    assert max(map(len, shown.splitlines())) <= 80
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert any(line.endswith(": labels, AUC") for line in lines)
    assert any(line.startswith("server: columns of client") for line in lines)
    for attack in ("norm", "direction", "100 known labels", "model completion"):
        assert any(re.match(rf"{attack} [\d.–]+ 1 0\.\d\d", line) for line in lines), attack


def test_every_epoch_may_be_attacked(place: Path) -> None:
    """Epoch 5 of six is not among those that are attacked otherwise; of the attacks on single
    epochs, none does worse with more to choose from."""
    found = {}
    for name, words in (("some", []), ("every", ["--every-epoch"])):
        options = ["--method", "SplitNN", "--seed", "0", "--set", "methods.*.epochs=6"]
        done = colonnade("audit", "file.toml", *options, *words, "--out", name, folder=place)
        assert done.returncode == 0, done.stderr
        findings = json.loads((place / name / "audit.json").read_text())["findings"]
        found[name] = {one["attack"]: one for one in findings if one["group"] == "clients"}
    for attack in ("norm", "direction"):
        assert found["every"][attack]["success"] >= found["some"][attack]["success"]
    words = ["--method", "SplitNN", "--seed", "0", "--set", "methods.*.epochs=6", "--out", "some"]
    done = colonnade("audit", "file.toml", *words, "--every-epoch", folder=place)
    assert done.returncode == 2
    assert "was audited by other attacks, or in other epochs" in done.stderr


def test_each_defence_that_suits_is_tried_and_the_others_are_told(place: Path) -> None:
    words = ["--defences", "--method", "SplitNN", "--seed", "0", "--out", "defended"]
    done = colonnade("audit", "file.toml", *words, folder=place, COLUMNS="80")
    assert done.returncode == 0, done.stderr
    document = json.loads((place / "defended" / "audit.json").read_text())
    changed = {one["defence"]: one for one in document["changes"]}
    assert [*changed] == [*DEFENCES]
    sent = {name: one["MB"].split(" → ") for name, one in changed.items()}
    assert float(sent["int8"][1]) < 0.5 * float(sent["int8"][0])
    assert sent["noise 0.1"][0] == sent["noise 0.1"][1]
    assert re.fullmatch(r"– → [\d,]+", changed["noise 0.1"]["ε"])
    assert changed["label_privacy 1"]["ε"] == "– → 1 of labels"
    assert changed["int8"]["ε"] == "–"
    shown = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert f"MB {changed['int8']['MB']}" in shown
    assert "ε – → 1 of labels" in shown
    assert "ε –" not in shown, "where there is none, nothing is told"
    digits = ["--set", "data.dataset=digits", "--set", "data.parties=4", "--attack", "norm"]
    done = colonnade("audit", "file.toml", *words[:-2], *digits, folder=place)
    assert done.returncode == 2, "norm is for two classes"


def test_defences_that_do_not_suit_are_left_out_with_the_reason() -> None:
    methods = [{"algorithm": "splitnn"}, {"algorithm": "dvfl"}]
    data = {"dataset": "digits", "parties": 4}
    experiment = parse_experiment({"name": "t", "data": data, "methods": methods}, "t")
    found, told = with_defences(experiment)
    names = [one.name for one in found.methods]
    assert "splitnn + hide_labels 40" in names
    assert "splitnn + Marvell 8" not in names
    assert not [name for name in names if name.startswith("dvfl + hide_labels")]
    assert any("Marvell 8: not for splitnn" in one and "two classes" in one for one in told)
    with pytest.raises(InputError, match="or all have them already"):
        with_defences(found)


def test_a_file_is_run_and_the_worst_of_all_seeds_counts(place: Path) -> None:
    folder = place / "runs" / "who-audit"
    document = json.loads((folder / "audit.json").read_text())
    [worst] = [
        one
        for one in document["findings"]
        if (one["method"], one["attack"]) == ("SplitNN", "direction")
    ]
    by_seed = []
    for seed in (0, 1):
        single = json.loads((folder / "audit" / f"splitnn.none.{seed}.json").read_text())
        by_seed += [one for one in single["findings"] if one["attack"] == "direction"]
    assert worst["success"] == max(one["success"] for one in by_seed)
    assert worst["least"] == min(one["success"] for one in by_seed)
    assert worst["control"] == max(one["control"] for one in by_seed)
    assert "all: One party holds all columns, so that nothing is sent." in document["sayings"]
    for page in ("audit.html", "report.html"):
        assert "SplitNN: client" in (folder / page).read_text()
    assert len((folder / "results.jsonl").read_text().splitlines()) == 6


def test_the_page_shows_a_defence_beside_the_method_without_it(place: Path) -> None:
    page = (place / "docs" / "page.md").read_text()
    assert "Made by `colonnade audit file.toml`" in page
    _, changes = page.split("## What defences change")
    [row] = [line for line in changes.splitlines() if line.startswith("| SplitNN | hide_labels |")]
    before, after = (float(one) for one in row.split("|")[5].split("→"))
    assert before > 0.9
    assert after < before - 0.2
    leaks = [
        line for line in page.splitlines() if line.startswith("| SplitNN") and "chance" in line
    ]
    assert len(leaks) == 2


def test_the_terminal_and_the_document_show_it_too(place: Path) -> None:
    folder = place / "runs" / "who-audit"
    [change] = json.loads((folder / "audit.json").read_text())["changes"]
    assert (change["method"], change["defence"]) == ("SplitNN", "hide_labels")
    shown = (place / "shown.txt").read_text()
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    at = lines.index(
        "SplitNN + hide_labels", lines.index("what the defence changes before → after")
    )
    for key in ("labels, none known", "labels, 100 known labels", "columns"):
        assert f"{key} {change[key]}" in lines[at:]


def test_an_interrupted_audit_goes_on_and_trains_only_what_is_missing(place: Path) -> None:
    folder = shutil.copytree(place / "runs" / "who-audit", place / "cut")
    lines = (folder / "results.jsonl").read_text().splitlines()
    (folder / "results.jsonl").write_text("\n".join(lines[:-3]) + "\n")
    with patch.object(measure, "findings", wraps=measure.findings) as attacks:
        done = colonnade("audit", "file.toml", "--out", str(folder), "--jobs", "1", folder=place)
    assert done.returncode == 0, done.stderr
    assert attacks.call_count == 1  # seed 1 of the second method; the third has nothing to attack
    whole = (place / "runs" / "who-audit" / "audit.json").read_bytes()
    assert (folder / "audit.json").read_bytes() == whole


def test_a_folder_that_was_run_without_audit_is_audited(place: Path) -> None:
    """With a training as long as it was, also where it stopped at a target."""
    words = ["file.toml", "--jobs", "1", "--set", "methods.*.epochs=4"]
    words += ["--set", "target=0.8", "--set", "stop_at_target=true"]
    assert colonnade("run", *words, "--out", "plain", folder=place).returncode == 0
    results = (place / "plain" / "results.jsonl").read_bytes()
    found = []
    for out in ("plain", "fresh"):
        done = colonnade("audit", *words, "--out", out, folder=place)
        assert done.returncode == 0, done.stderr
        found.append(json.loads((place / out / "audit.json").read_text()))
    assert found[0] == found[1]
    epochs = {one["epoch"] for one in found[0]["findings"] if one["method"] == "SplitNN"}
    assert epochs < {1, 2, 3, 4}, "the target was missed"
    assert (place / "plain" / "results.jsonl").read_bytes() == results


def test_the_attack_on_columns_by_all_epochs_may_be_chosen(place: Path) -> None:
    words = ["--method", "SplitNN", "--seed", "0", "--set", "methods.*.epochs=2", "--json"]
    name = "ridge, all epochs"
    done = colonnade("audit", "file.toml", *words, "--attack", name, "--out", "one", folder=place)
    assert done.returncode == 0, done.stderr
    assert {one["attack"] for one in json.loads(done.stdout)["findings"]} == {name}


def test_a_damaged_audit_that_was_deleted_is_made_again(place: Path) -> None:
    folder = shutil.copytree(place / "runs" / "who-audit", place / "damaged")
    one = folder / "audit" / "splitnn.none.1.json"
    one.write_text(one.read_text()[:100])
    words = ["file.toml", "--out", str(folder), "--jobs", "1"]
    done = colonnade("audit", *words, folder=place)
    assert done.returncode == 2
    assert "delete it, and audit the run again" in " ".join(done.stderr.split())
    one.unlink()
    with patch.object(measure, "findings", wraps=measure.findings) as attacks:
        assert colonnade("audit", *words, folder=place).returncode == 0
    assert attacks.call_count == 1
    whole = (place / "runs" / "who-audit" / "audit.json").read_bytes()
    assert (folder / "audit.json").read_bytes() == whole


def test_ctrl_c_while_the_report_is_written_says_how_to_go_on(place: Path) -> None:
    with patch("colonnade.experiments.report.write_report", side_effect=KeyboardInterrupt):
        done = colonnade("audit", "file.toml", "--jobs", "1", folder=place)
    assert done.returncode == 1
    assert (
        "Stopped; finished runs are kept in runs/who-audit. The same command goes on."
        in " ".join(done.stdout.split())
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "nowhere"),
        (["file.toml", "--method", "DVFL"], "--method DVFL: there are SplitNN, "),
        (["file.toml", "--attack", "guess"], "--attack 'guess': there are 'norm', 'direction'"),
        (["file.toml", "--attack", "clusters"], "is for more than two classes, and file.toml has "),
        (["file.toml", "--attack", "norm"], "was audited by other attacks"),
        (["runs/who-audit", "--seed", "7"], "--seed 7: runs/who-audit has 0, 1"),
        (["file.toml", "--seed", "7"], "--seed 7: file.toml has 0, 1"),
        (["runs/who-audit", "--set", "seeds=[1]"], "a run is audited as it was"),
        (["party"], "party: belongs to a real federation. An audit plays every receiver"),
        (["up"], "up: belongs to a real federation"),
        (["clinic.toml"], "clinic.toml: belongs to a real federation"),
        (["empty"], "not an output folder (no config.toml)"),
    ],
)
def test_bad_input_is_told(words: list[str], said: str, place: Path) -> None:
    for folder in ("party", "up/clinic", "empty"):
        (place / folder).mkdir(parents=True, exist_ok=True)
    for folder in ("party", "up/clinic"):
        (place / folder / "config.toml").write_text('[method]\nalgorithm = "splitnn"\n')
    (place / "clinic.toml").write_text('federation = "federation.toml"\nparty = "clinic"\n')
    done = colonnade("audit", *words, folder=place)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with a table and a run of it."""
    place = tmp_path_factory.mktemp("run")
    rows = [f"{k % 7},{k % 5},{k % 2}" for k in range(400)]
    (place / "table.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
    data = '[data]\npath = "table.csv"\nlabel = "y"\ncolumns = { one = ["a"], two = ["b"] }\n'
    method = '[[methods]]\nname = "SplitNN"\nalgorithm = "splitnn"\nepochs = 1\n'
    (place / "file.toml").write_text('name = "x"\n' + data + method)
    assert colonnade("run", "file.toml", "--out", "run", folder=place).returncode == 0
    return place


def test_a_run_is_audited_without_its_models_and_its_report_says_so(run: Path) -> None:
    """The training is repeated, so that stored models are not needed."""
    folder = run / "run"
    results = (folder / "results.jsonl").read_bytes()
    shutil.rmtree(folder / "models")
    words = ["--method", "SplitNN", "--attack", "direction", "--json", "--jobs", "1"]
    done = colonnade("audit", "run", *words, folder=run)
    assert done.returncode == 0, done.stderr
    assert {one["attack"] for one in json.loads(done.stdout)["findings"]} == {"direction"}
    page = (folder / "report.html").read_text()
    assert "What receivers can infer" in page
    assert "Only these attacks were made: direction." in page
    assert "Only SplitNN was audited" in page
    assert (folder / "results.jsonl").read_bytes() == results
    with patch.object(measure, "drive", side_effect=AssertionError("nothing is trained again")):
        (folder / "report.html").unlink()
        assert colonnade("audit", "run", *words, folder=run).returncode == 0
        assert "SplitNN: " in (folder / "report.html").read_text()


@pytest.mark.parametrize("changed", [True, False])
def test_a_run_whose_data_is_gone_or_another_is_not_audited(changed: bool, run: Path) -> None:
    table = run / "table.csv"
    text = table.read_text()
    if changed:
        table.write_text(text.replace("\n6,", "\n5,"))
    else:
        table.unlink()
    done = colonnade("audit", "run", "--jobs", "1", folder=run)
    table.write_text(text)
    assert done.returncode == 2
    said = "run: the data has changed since this run" if changed else "table.csv"
    assert said in " ".join(done.stderr.split())
