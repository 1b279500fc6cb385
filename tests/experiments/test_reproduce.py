"""Reproductions: what papers' files declare fits together, runs, and is told honestly."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from colonnade.common.results import read_results
from colonnade.errors import InputError
from colonnade.experiments import report
from colonnade.experiments import reproduce as reproduce_package
from colonnade.experiments.config import parse_experiment
from colonnade.experiments.reproduce import registry, run
from colonnade.experiments.reproduce.claims import Claim, Fact, judge
from colonnade.experiments.reproduce.fedvs import accuracy_time
from colonnade.experiments.reproduce.mags import table2
from colonnade.experiments.reproduce.run import read_reproduction, reproduce
from colonnade.experiments.reproduce.study import (
    SCALES,
    Column,
    Part,
    Place,
    Reproduction,
    Scale,
    Sheet,
    Study,
    printed,
    row,
)


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path / "data"))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", registry())
def test_every_cell_and_claim_speaks_of_something_that_runs(name: str, scale: Scale) -> None:
    study = registry()[name].study(scale)
    runs = set()
    for part in study.parts:
        experiment = parse_experiment(part.experiment, name)
        methods, faults = experiment.methods, experiment.faults
        runs |= {Place(part.name, m.name, f.name) for m in methods for f in faults}
    for sheet in study.sheets:
        shown = {entry.ours for row in sheet.rows for entry in row.entries} - {None}
        assert shown <= runs
        places = {(row.name, column.name) for row in sheet.rows for column in sheet.columns}
        for claim in sheet.claims:
            assert {at for fact in claim.facts for at in fact.places} <= places, claim.text
        assert all(len(row.entries) == len(sheet.columns) for row in sheet.rows)
    shown = {e.ours for sheet in study.sheets for row in sheet.rows for e in row.entries}
    assert runs <= shown, "runs that no sheet shows"


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", registry())
def test_no_text_of_a_study_has_words_left_to_fill_in(name: str, scale: Scale) -> None:
    study = registry()[name].study(scale)
    assert not re.search(r"\{[^}'\"]*\}", repr(study)), "as in: {last}"
    assert all(" " in note for note in study.notes), "a key where a note should be"


@pytest.mark.parametrize("name", registry())
def test_only_scale_full_uses_all_rows_and_five_seeds_and_the_others_say_so(name: str) -> None:
    words = {scale: registry()[name].study(scale).sheets[0].data for scale in SCALES}
    assert "substitute" in words["smoke"]
    if "MNIST" in words["full"]:
        assert "all 60,000" in words["full"]
        assert "of 60,000 training rows" in words["quick"]
    for part in registry()[name].study("full").parts:
        assert len(part.experiment["seeds"]) == 5
        assert "rows" not in part.experiment["data"]


@pytest.fixture
def plain_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts' own reports take as long as the runs, and have tests of their own."""

    def write(folder: Path) -> Path:
        path = folder / "report.html"
        path.write_text("<!DOCTYPE html>")
        return path

    monkeypatch.setattr(report, "write_report", write)


Smoke = Callable[[str], run.Reproduced]


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Smoke:
    """Each reproduction at scale smoke, once for all who look at it."""

    @cache
    def run_once(name: str) -> run.Reproduced:
        return reproduce(name, "smoke", tmp_path_factory.mktemp("smoke") / name)

    return run_once


@pytest.mark.parametrize("name", registry())
@pytest.mark.usefixtures("plain_reports")
def test_at_scale_smoke_everything_runs_without_a_data_folder(name: str, smoke: Smoke) -> None:
    done = smoke(name)
    out = done.folder
    assert not done.failures
    assert set(done.absent) <= {"caltech7"}
    told = json.loads((out / "reproduction.json").read_text())
    assert told == json.loads(json.dumps(done.document()))
    cells = [cell for sheet in told["sheets"] for cell in sheet["cells"]]
    for cell in cells:
        here = cell["part"] and cell["part"] not in done.absent
        if here:
            assert cell["seeds"] == 1, cell
        if cell["metric"] != "messages_per_prediction":  # they do not depend on the data
            assert cell["substitute"] or not here, cell
            assert cell["difference"] is None, "a difference from other data"
    for sheet in told["sheets"]:
        missing = {(c["row"], c["column"]) for c in sheet["cells"] if c["ours"] is None}
        for judgement, claim in zip(sheet["claims"], done_claims(done, sheet), strict=True):
            unknown = any(at in missing for fact in claim.facts for at in fact.places)
            assert (judgement["verdict"] == "not measured") == unknown
            judged = judgement["verdict"] in ("holds", "does not hold")
            assert judged == (claim.any_scale and not unknown), "a smoke run says nothing about it"
    page = (out / "report.html").read_text()
    assert page.count("substitute") > 1
    for part in done.study.parts:
        assert (f'href="{part.name}/report.html"' in page) == (part.name not in done.absent)


def done_claims(done: run.Reproduced, told: dict[str, Any]) -> tuple[Claim, ...]:
    return next(sheet.claims for sheet in done.study.sheets if sheet.title == told["title"])


@pytest.mark.parametrize("name", ["fedvs-accuracy-time", "fedvs-partitions", "fedvs-privacy"])
@pytest.mark.usefixtures("plain_reports")
def test_what_the_papers_delays_cost_does_not_depend_on_the_data(name: str, smoke: Smoke) -> None:
    """What FedVS claims about time holds for these figures, too: few partitions under delays, many
    where computing takes long, and more colluders, more time. But a smoke run claims nothing: a few
    rounds with delays that were drawn once are no evidence."""
    *_, seconds = [s for s in smoke(name).assessments if "seconds" in s.sheet.title]
    assert seconds.judgements
    for judgement in seconds.judgements:
        assert judgement.verdict == "not judged"
        assert judge(judgement.claim, judgement.figures).verdict == "holds", judgement.claim.text


@pytest.mark.parametrize("here", [True, False])
def test_two_data_sets_of_fedvs_are_run_where_they_are_present(
    here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colonnade.data.present", lambda name: here)
    study = registry()["fedvs-accuracy-time"].study("quick")
    parts = {part.name: part for part in study.parts}
    known = accuracy_time.TABLE.extra
    assert [*parts] == [name for name in known if here or name not in ("emnist", "caltech7")]
    for sheet in study.sheets:
        assert [column.name for column in sheet.columns] == [*parts]
    for part in parts.values():
        assert parse_experiment(dict(part.experiment), part.name).methods


@pytest.mark.usefixtures("plain_reports")
def test_a_client_of_dvfl_sends_what_the_papers_formula_says_to_the_byte(smoke: Smoke) -> None:
    *_, sheet = smoke("dvfl-period").assessments
    [judgement] = sheet.judgements
    assert judgement.verdict == "holds"
    aggregators, epochs, rows, width, number = 4, 20, 180, 16, 4
    once = aggregators * rows * width * number
    sent = {column: cell.mean for (_, column), cell in judgement.figures.items()}
    assert sent == {f"K = {k}": once * (epochs // k) for k in (1, 5, 10, 20)}


@pytest.mark.usefixtures("plain_reports")
def test_in_mags_only_aggregators_gossip_and_every_round_costs_as_many_messages(
    smoke: Smoke,
) -> None:
    _, sheet = smoke("mags-table2").assessments
    sent = {method: sheet.ours.cells[method, "complete"].mean for method in table2.TABLE.methods}
    assert sent["MVFL"] == pytest.approx(16 * 15 * 0.7, rel=0.05)
    assert sent["MVFL-G4"] == pytest.approx(5 * sent["MVFL"])
    gossip = sent["4-MVFL-G2"] - sent["4-MVFL"]
    assert gossip == pytest.approx(2 * 4 * 3 * 0.7, rel=0.3)  # few links, few batches
    assert sheet.difference(("MVFL", "complete")) is not None, "messages do not depend on the data"


# -- a small reproduction of our own ---------------------------------------------------------------


def small(dataset: str = "wine", broken: bool = False) -> Reproduction:
    """Two parts of one method and two seeds each."""

    def part(name: str, dataset: str) -> Part:
        lr = 1e30 if broken else 1e-2
        method = {"name": "split", "algorithm": "splitnn", "epochs": 2, "lr": lr}
        method |= {"optimizer": "sgd"}
        data = {"dataset": dataset}
        return Part(name, {"name": name, "seeds": [0, 1], "data": data, "methods": [method]})

    def study(scale: Scale) -> Study:
        columns = (Column("first", "On the first"), Column("second", "On the second"))
        rows = (row("split", [Place("a", "split"), Place("b", "split")], printed("90.00 80.00")),)
        easier = Fact((("split", "first"),), (("split", "second"),))
        claims = (Claim("the first is easier", (easier,)),)
        sheet = Sheet("Two tables", "wine", columns, rows, claims)
        return Study((part("a", "wine"), part("b", dataset)), (sheet,), ["Small."])

    return Reproduction("small", "Small", "us", "us", dict.fromkeys(SCALES, "1 s"), study)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, Reproduction]:
    entries = {"small": small()}
    for place in (reproduce_package, run):
        monkeypatch.setattr(place, "registry", lambda: entries)
    return entries


class Watch:
    """Counts, and loses patience after some runs."""

    def __init__(self, patience: int = 99) -> None:
        self.patience = patience
        self.begun: list[tuple[int, int]] = []

    def begin(self, total: int, done: int) -> None:
        self.begun.append((total, done))

    def advance(self, run: str, share: float) -> None: ...

    def finish(self, run: str) -> None:
        self.patience -= 1
        if not self.patience:
            raise KeyboardInterrupt


@pytest.mark.usefixtures("known", "plain_reports")
def test_interrupted_it_goes_on_where_it_stopped_with_one_count_over_all_parts(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        reproduce("small", "quick", out, observer=Watch(patience=3))
    kept = [*read_results(out / "a"), *read_results(out / "b")]
    assert len(kept) == 3
    with pytest.raises(InputError, match="not finished"):
        read_reproduction(out)
    first = json.loads((out / "reproduction.json").read_text())["seconds"]
    assert first > 0
    watch = Watch()
    done = reproduce("small", "quick", out, observer=watch)
    assert done.seconds > first, "both commands count"
    assert watch.begun == [(4, 2), (4, 3)]
    assert [*done.evidence["a"].results, *done.evidence["b"].results][:3] == kept
    assert done.assessments[0].difference(("split", "second")) is not None
    before = (out / "reproduction.json").read_bytes()
    (out / "report.html").unlink()
    assert read_reproduction(out).write().exists()
    assert (out / "reproduction.json").read_bytes() == before
    reproduce("small", "quick", out)
    assert (out / "reproduction.json").read_bytes() == before, "nothing was run, nothing is added"


@pytest.mark.usefixtures("plain_reports")
def test_a_part_without_data_is_marked_and_the_others_go_on(
    known: dict[str, Reproduction], tmp_path: Path
) -> None:
    known["small"] = small("caltech7")
    done = reproduce("small", "quick", tmp_path / "out")
    assert list(done.absent) == ["b"]
    first, second = done.document()["sheets"][0]["cells"]
    assert first["ours"] is not None
    assert (second["ours"], second["reason"]) == (None, "no data")
    assert "Get it from" in done.notes[0]
    assert done.document()["sheets"][0]["claims"][0]["verdict"] == "not measured"
    assert "not run" in (tmp_path / "out" / "report.html").read_text()


def test_without_any_data_there_is_an_error_and_no_folder(
    known: dict[str, Reproduction], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def absent(name: str) -> None:
        raise InputError(f"{name} is not here. Get it from: a friend.")

    monkeypatch.setattr(run, "load_raw", absent)
    with pytest.raises(InputError, match=r"no part can run.*a friend"):
        reproduce("small", "quick", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("plain_reports")
def test_runs_that_fail_are_told_and_leave_their_cells_empty(
    known: dict[str, Reproduction], tmp_path: Path
) -> None:
    known["small"] = small(broken=True)
    done = reproduce("small", "quick", tmp_path / "out")
    assert len(done.failures) == 4
    assert all("smaller lr" in reason for reason in done.failures.values())
    cells = done.document()["sheets"][0]["cells"]
    assert [cell["reason"] for cell in cells] == ["failed", "failed"]


@pytest.mark.usefixtures("known", "plain_reports")
def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("important")
    with pytest.raises(InputError, match="holds no reproduction"):
        reproduce("small", "quick", tmp_path / "thesis")
    reproduce("small", "quick", tmp_path / "out")
    with pytest.raises(InputError, match="holds small at scale quick"):
        reproduce("small", "full", tmp_path / "out", fresh=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        reproduce("small", "quick", tmp_path / "file")
