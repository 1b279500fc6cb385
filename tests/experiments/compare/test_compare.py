"""`colonnade compare`: methods are tuned on validation rows and compared under the same faults; the
advice follows from the figures."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from tests.browser import browse, needs_browser
from typer.testing import CliRunner

from colonnade.cli import app
from colonnade.common.results import Result, read_history, read_results
from colonnade.errors import InputError
from colonnade.experiments.compare import study
from colonnade.experiments.compare.advice import Field, advice
from colonnade.experiments.compare.contenders import contenders, scaled
from colonnade.experiments.compare.present import Shown, learns_alone, markdown, write_html
from colonnade.experiments.compare.search import Trial, at_the_edge, best_of
from colonnade.experiments.compare.source import experiment_of, read_source, usual_faults
from colonnade.experiments.compare.study import compare
from colonnade.experiments.config import parse_experiment
from colonnade.experiments.page import write_page
from colonnade.experiments.runner import run_experiment
from colonnade.experiments.table import Grid, Plan, summarise

SMALL = """
name = "small"
seeds = [0, 1]
[data]
dataset = "digits"
rows = 200
parties = 3
[[faults]]
name = "none"
[[faults]]
name = "50 % of parties, prediction"
kind = "device"
rate = 0.5
when = "inference"
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A file, and the folder of its comparison."""
    folder = tmp_path_factory.mktemp("compare")
    file = folder / "small.toml"
    file.write_text(SMALL)
    done = compare(file, folder / "out", epochs=4, only=["fdml", "SplitNN zeros", "centralised"])
    write_html(Shown(done))
    return file, folder / "out"


def test_the_setting_with_the_best_validation_is_taken(small: tuple[Path, Path]) -> None:
    document = json.loads((small[1] / study.DOCUMENT).read_text())
    for method in document["methods"]:
        last = [t for t in document["trials"] if t["method"] == method["name"] and t["stage"] == 1]
        best = max(last, key=lambda trial: trial["score"])
        assert {key: method[key] for key in best["values"]} == best["values"]
    folder = small[1] / "search-2"
    for result in read_results(folder):
        score, _, _ = best_of(read_history(folder, result.run), "accuracy")
        told = [t["score"] for t in document["trials"] if t["stage"] == 1]
        assert score in told
    assert {result.faults for result in read_results(folder)} == {"none"}


def test_half_of_the_trials_go_on(small: tuple[Path, Path]) -> None:
    document = json.loads((small[1] / study.DOCUMENT).read_text())
    for name in ("SplitNN zeros", "FDML"):
        stages = [t["stage"] for t in document["trials"] if t["method"] == name]
        assert stages == [0, 0, 0, 1, 1]


def test_the_same_command_goes_on_and_trains_nothing_again(
    small: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_results(small[1] / study.FINAL)

    def trains(*_: Any) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr("colonnade.experiments.engine.train_and_test", trains)
    only = ["fdml", "SplitNN zeros", "centralised"]
    done = compare(small[0], small[1], epochs=4, only=only)
    assert done.outcome.results == before
    assert not done.outcome.failures


def test_the_page_says_which_one_to_choose_and_never_the_yardstick(
    small: tuple[Path, Path],
) -> None:
    done = compare(small[0], small[1], epochs=4, only=["fdml", "SplitNN zeros", "centralised"])
    shown = Shown(replace(done, commit="abc1234"))
    page = markdown(shown)
    assert "at commit abc1234" in page
    assert "Data: digits: 3 parties with " in page
    assert "; 180 training, 20 validation, 359 test rows (a cap: `data.rows = 200`)" in page
    chosen = page.split("## Which one to choose")[1].split("##")[0]
    assert "Without faults: " in chosen
    assert "centralised" not in chosen
    assert "| centralised |" in page
    html = (small[1] / "report.html").read_text()
    assert "Which one to choose" in html
    assert 'href="final/report.html"' in html
    assert "http://" not in html.replace("http://www.w3.org", "")


def test_a_page_names_the_commit_of_the_trainings_not_that_of_the_page(
    small: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    only = ["fdml", "SplitNN zeros", "centralised"]
    trained_at = compare(small[0], small[1], epochs=4, only=only).commit
    monkeypatch.setattr("colonnade.experiments.markdown.commit", lambda: "later")
    assert compare(small[0], small[1], epochs=4, only=only).commit == trained_at
    results = small[1] / study.FINAL / "results.jsonl"
    lines = results.read_bytes().splitlines(keepends=True)
    results.write_bytes(b"".join(lines[:-1]))
    assert compare(small[0], small[1], epochs=4, only=only).commit == "later"


def test_every_setting_has_paired_differences_from_the_best_method_that_may_be_advised(
    small: tuple[Path, Path],
) -> None:
    done = compare(small[0], small[1], epochs=4, only=["fdml", "SplitNN zeros", "centralised"])
    shown = Shown(done)
    grid = shown.paired_grid()
    assert grid.header == ("method", *shown.plan.faults)
    assert [row[0] for row in grid.rows] == list(shown.plan.methods)
    for column, fault in enumerate(shown.plan.faults, 1):
        best = shown.field.ranking(fault)[0][0]
        told = {row[0]: row[column] for row in grid.rows}
        assert best != "centralised"
        assert [m for m, text in told.items() if text == "best"] == [best]
        assert all(" ± " in text for m, text in told.items() if m != best)
        bold = {grid.rows[row][0] for row, at in grid.best if at == column}
        unclear = {m for m, how in shown.field.compared(fault).items() if how != "clear"}
        assert bold == {best} | unclear
    assert "## Differences" in markdown(shown)


def test_a_caption_tells_only_of_columns_that_are_there_and_of_one_seed_as_one(
    small: tuple[Path, Path],
) -> None:
    done = compare(small[0], small[1], epochs=4, only=["fdml", "SplitNN zeros", "centralised"])
    shown = Shown(done)
    assert "ε" not in shown.cost_grid().caption
    shown.plan = replace(shown.plan, seeds=(0,))
    assert all("one seed" in grid.caption for grid in shown.means_grids())
    assert not any("1 seeds" in grid.caption for grid in shown.means_grids())


@needs_browser
def test_a_table_of_nine_settings_fits_a_window_of_1200_pixels(tmp_path: Path) -> None:
    faults = [str(fault["name"]) for fault in usual_faults()]
    row = ("SplitNN dropout", *["−61.84 ± 44.83"] * len(faults))
    wide = Grid(("method", *faults), (row,), "Figures.")
    words = Grid(("method", "a column holder sends"), (("FedVS", "a share of it; " * 40),), "", 2)
    facts: dict[str, Any] = dict.fromkeys(("name", "command", "data", "link"), "x")
    facts |= dict.fromkeys(("advice", "pictures", "finals", "notes", "seeds", "search"), ())
    facts |= {key: {} for key in ("styles", "left_out", "failures")}
    facts |= {"figures": wide, "differences": wide, "costs": wide, "leaves": words}
    page = write_page(tmp_path, "comparison.html", **facts)
    text = re.sub("<meta http-equiv[^>]*>", "", page.read_text())
    measure = "[...document.querySelectorAll('.scroll')].every(e => e.scrollWidth <= e.clientWidth)"
    script = f"<script>document.title = {measure} ? 'all fit' : 'some are cut off'</script>"
    page.write_text(text.replace("</body>", f"{script}</body>"))
    shown = browse(page.as_uri(), tmp_path / "profile", "--window-size=1200,900", "--dump-dom")
    assert b"<title>all fit</title>" in shown


def results(
    figures: Mapping[str, Mapping[str, Sequence[float]]], **megabytes: float
) -> list[Result]:
    """Method → setting → accuracy by seed."""
    return [
        Result(m, f, seed, "", {"test_accuracy": x}, {"bytes": 1e6 * megabytes.get(m, 1.0)})
        for m, settings in figures.items()
        for f, values in settings.items()
        for seed, x in enumerate(values)
    ]


def asked(found: list[Result], **reveals: bool) -> list[str]:
    return asked_without(found, (), **reveals)


def asked_without(found: list[Result], untimed: Sequence[str], **reveals: bool) -> list[str]:
    plan = Plan(
        methods=tuple(dict.fromkeys(r.method for r in found)),
        faults=tuple(dict.fromkeys(r.faults for r in found)),
        seeds=(0, 1, 2),
    )
    return advice(Field(summarise(found, plan), found, reveals, untimed))


def test_who_learns_alone_is_not_the_quickest_because_nothing_was_sent() -> None:
    found = results({"alone": {"none": [0.95] * 3}, "together": {"none": [0.95] * 3}})
    for result in found:
        result.cost["virtual_seconds"] = 0.03 if result.method == "alone" else 40.0
    timed = asked(found, alone=True, together=True)
    assert any(said.startswith("Where time matters: alone") for said in timed)
    said = asked_without(found, ["alone"], alone=True, together=True)
    quickest = [sentence for sentence in said if "time" in sentence]
    assert len(quickest) == 1
    assert quickest[0].startswith("Where time matters: together, 40 virtual s")
    methods = ("splitnn", "dvfl", "fedonce", "vim")
    table = {
        "name": "x",
        "data": {"dataset": "digits"},
        "methods": [{"algorithm": m} for m in methods],
    }
    experiment = parse_experiment(table, "x")
    assert [m for m in methods if learns_alone(m, experiment)] == ["dvfl", "fedonce"]


def test_advice_follows_from_the_figures() -> None:
    found = results(
        {
            "fragile": {"none": [0.95, 0.96, 0.97], "half gone": [0.50, 0.51, 0.52]},
            "steady": {"none": [0.94, 0.955, 0.96], "half gone": [0.90, 0.92, 0.91]},
            "pooled": {"none": [0.99, 0.99, 0.99], "half gone": [0.99, 0.99, 0.99]},
        },
        fragile=10.0,
        steady=2.0,
    )
    calm, half, cheap, hidden, unsure = asked(found, fragile=True, steady=False)
    assert calm.startswith("Without faults: fragile (96.00")
    assert half.startswith("With half gone: steady (91.00")
    assert "40.00 points ahead of fragile" in half
    assert cheap == (
        "Where bytes matter: steady, 2 MB for 95.17\u00a0%, 0.83 points behind fragile, which "
        "takes 5 times as much."
    )
    assert hidden.endswith("steady (95.17\u00a0%).")
    assert "steady; it is at most 0.83 points behind" in unsure
    assert not any("pooled" in sentence for sentence in asked(found, fragile=True, steady=False))


def test_a_method_that_waits_for_absent_parties_is_not_advised_for_their_absence() -> None:
    figures = {
        "waits": {"none": [0.9, 0.9, 0.9], "half gone": [0.9, 0.9, 0.9]},
        "answers": {"none": [0.8, 0.8, 0.8], "half gone": [0.7, 0.7, 0.7]},
        "guesses": {"none": [0.7, 0.7, 0.7], "half gone": [0.6, 0.6, 0.6]},
    }
    found = [
        msgspec.structs.replace(r, cost={**r.cost, "waits": 3})
        if (r.method, r.faults) == ("waits", "half gone")
        else r
        for r in results(figures)
    ]
    sentences = asked(found, waits=True, answers=True, guesses=True)
    assert sentences[0].startswith("Without faults: waits")
    assert sentences[1].startswith("With half gone: answers (70.00")
    assert sentences[1].endswith("waits (90.00\u00a0%) waits until enough parties are back.")
    assert "If you do not know what will fail: answers" in sentences[-1]


def test_answers_of_shares_wait_for_enough_parties_and_the_result_says_so(tmp_path: Path) -> None:
    gone = {"name": "gone", "kind": "device", "rate": 0.5, "when": "inference"}
    table = {
        "name": "shares",
        "data": {"dataset": "digits", "rows": 200},
        "faults": [{"name": "none"}, gone],
        "methods": [
            {"algorithm": "fedvs", "epochs": 1},
            {"algorithm": "splitnn", "epochs": 1},
        ],
    }
    found = run_experiment(parse_experiment(table, "shares"), tmp_path).results
    waited = {(r.method, r.faults): r.cost.get("waits", 0) for r in found}
    assert waited.pop(("fedvs", "gone"))
    assert not any(waited.values())
    [note] = [note for r in found for note in r.notes if "waited" in note]
    assert note.startswith("fedvs · gone: answers of the test waited")


def test_methods_that_change_places_with_the_seed_are_level() -> None:
    found = results({"a": {"none": [0.9, 0.8, 0.9]}, "b": {"none": [0.8, 0.9, 0.89]}})
    assert "which are level" in asked(found, a=True, b=True)[0]


def test_all_methods_that_are_level_are_named() -> None:
    values = {"a": [0.9, 0.8, 0.9], **{m: [0.8, 0.9, 0.89] for m in "bcdef"}}
    found = results({m: {"none": x} for m, x in values.items()})
    first = asked(found, **dict.fromkeys(values, True))[0]
    assert all(f"{m} (86." in first for m in values)
    assert first.endswith("which are level.")


def test_a_method_that_is_behind_at_every_seed_may_be_so_by_chance() -> None:
    """The differences of `doubtful` are 1, 1 and 7 points, and their 95 % interval holds 0; those
    of `behind` are 5, 5 and 6."""
    values = {
        "best": [0.90, 0.90, 0.97],
        "doubtful": [0.89, 0.89, 0.90],
        "behind": [0.85, 0.85, 0.91],
    }
    found = results({m: {"none": x} for m, x in values.items()})
    first = asked(found, best=True, doubtful=True, behind=True)[0]
    assert "level" not in first
    assert first.endswith(
        "Behind the best at every seed, but that may be chance: doubtful (89.33\u00a0%)."
    )


def test_with_one_seed_the_advice_says_so() -> None:
    found = results({"a": {"none": [0.9], "gone": [0.8]}, "b": {"none": [0.8], "gone": [0.7]}})
    calm, *_, unsure = asked(found, a=True, b=True)
    assert calm.endswith("With one seed, that may be chance.")
    assert unsure.endswith("With one seed, that may be chance.")


def test_a_cheap_method_is_named_if_one_that_is_level_with_the_best_is_further_behind() -> None:
    """As on digits: FedOnce is a little behind at every seed, FDML further, but only on average."""
    values = {
        "best": [0.981, 0.981, 0.981],
        "middle": [0.975, 0.976, 0.974],
        "once": [0.965, 0.963, 0.964],
        "level": [0.983, 0.950, 0.955],
        "poor": [0.90, 0.90, 0.90],
    }
    found = results(
        {m: {"none": x} for m, x in values.items()},
        best=30.0,
        middle=10.0,
        once=0.3,
        level=13.0,
        poor=0.1,
    )
    _, cheap = asked(found, **dict.fromkeys(values, True))
    assert cheap == (
        "Where bytes matter: once, 300 kB for 96.40\u00a0%, 1.70 points behind best, which takes "
        "100 times as much. Within a point of the best: middle, 10 MB."
    )


def test_who_does_about_as_well_whatever_fails_is_named_too() -> None:
    """The largest distances are 10 points and 11 ± 12; that of `poor` is 40 at each seed."""
    found = results(
        {
            "steady": {"none": [0.80, 0.80, 0.80], "gone": [0.80, 0.80, 0.80]},
            "unsteady": {"none": [0.90, 0.90, 0.90], "gone": [0.74, 0.64, 0.69]},
            "poor": {"none": [0.50, 0.50, 0.50], "gone": [0.40, 0.40, 0.40]},
        }
    )
    unsure = asked(found, steady=True, unsteady=True, poor=True)[-1]
    assert "steady; it is at most 10.00 points behind the best in each of these 2" in unsure
    assert unsure.endswith("rule out that these do as well: unsteady (at most 11.00 points).")


def test_a_method_of_the_file_keeps_its_values_and_is_tuned_in_the_others() -> None:
    [one] = contenders([{"algorithm": "vim", "lr": 0.2, "name": "ours"}])
    assert one.table["lr"] == 0.2
    assert list(one.search) == ["tau"]
    assert [trial["name"] for trial in one.trials()] == ["ours #1", "ours #2"]
    assert scaled(one.table, 0.25)["epochs"] == 5


def test_rates_of_one_group_are_tuned_and_the_others_stay() -> None:
    dvfl, fedonce = (next(c for c in contenders(None) if c.name == m) for m in ("DVFL", "FedOnce"))
    rates = {(t["lr"]["clients"], t["lr"]["aggregators"], t["lr"]["owner"]) for t in dvfl.trials()}
    assert rates == {(2e-3, 2e-3, owner) for owner in (0.03, 0.08, 0.2)}
    assert {trial["lr"]["server"] for trial in fedonce.trials()} == {0.03, 0.08, 0.2}
    assert dvfl.values(dvfl.trials()[0]) == {"aggregators": 0, "lr.owner": 0.03}
    [same] = contenders([{"algorithm": "dvfl"}])
    assert len(same.trials()) == len(dvfl.trials())
    [own] = contenders([{"algorithm": "dvfl", "lr": 0.1}])
    assert {trial["lr"] for trial in own.trials()} == {0.1}
    assert list(own.search) == ["aggregators"]


def test_a_setting_at_the_edge_of_what_was_tried_is_told() -> None:
    values = [{"lr": rate, "aggregators": count} for count in (0, 4) for rate in (0.1, 0.3, 1.0)]
    first = [Trial("steep", 0, value, 0.5, 0.5) for value in values]
    inside = Trial("steep", 1, {"lr": 0.3, "aggregators": 0}, 0.9, 0.9)
    assert at_the_edge([*first, inside]) == {}  # there is nothing below 0
    outside = Trial("steep", 1, {"lr": 1.0, "aggregators": 4}, 0.9, 0.9)
    assert at_the_edge([*first, outside, inside]) == {"steep": {"lr": 1.0, "aggregators": 4}}
    words = [Trial("told", k, {"objective": word}, 1.0, 1.0) for k, word in enumerate("ab")]
    assert at_the_edge(words) == {}


def test_the_page_tells_of_the_edge_of_the_search(small: tuple[Path, Path]) -> None:
    done = compare(small[0], small[1], epochs=4, only=["fdml", "SplitNN zeros", "centralised"])
    trials = [Trial("FDML", stage, {"lr": rate}, 1, 1) for stage in (0, 1) for rate in (3, 1)]
    shown = Shown(replace(done, found=replace(done.found, trials=trials)))
    assert "Best at the edge of what was tried, beyond which may be better ones: FDML: lr 3." in (
        markdown(shown)
    )


def test_faults_are_0_30_and_50_percent_of_parties_and_links_in_training_and_prediction() -> None:
    faults = usual_faults()
    assert len(faults) == 9
    assert {fault.get("rate") for fault in faults} == {None, 0.3, 0.5}
    assert {fault.get("when") for fault in faults} == {None, "training", "inference"}


def test_a_method_that_does_not_suit_the_data_is_left_out_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "numbers.toml"
    text = 'name = "numbers"\nseeds = [0]\n[[faults]]\nname = "none"\n'
    file.write_text(text + '[data]\ndataset = "diabetes"\nrows = 100\nparties = 2\n')
    done = compare(file, tmp_path / "out", epochs=1, only=["cvfl", "fdml"])
    assert list(done.left_out) == ["CVFL"]
    assert "learns classes" in done.left_out["CVFL"]
    assert {result.method for result in done.outcome.results} == {"FDML"}


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        ("", {"only": ["fdmm"]}, "--only fdmm: no such method; the nearest is 'fdml'"),
        ("", {"epochs": 0}, "--epochs 0: expected 1 or more"),
        ("validation = 0\n", {}, "there are no validation rows"),
        ("parteis = 3\n", {}, "parteis"),
    ],
)
def test_bad_input_is_told(change: str, options: dict[str, Any], said: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(SMALL.replace("rows = 200\n", f"rows = 200\n{change}"))
    with pytest.raises(InputError) as error:
        compare(file, tmp_path / "out", **{"only": ["fdml"], **options})
    assert said in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_method_of_the_file_that_cannot_run_is_an_error_as_in_run(tmp_path: Path) -> None:
    """Those that nobody asked for are left out."""
    file = tmp_path / "own.toml"
    own = '[[methods]]\nname = "{}"\nalgorithm = "fdml"\n'
    cuda = own.format("second") + 'device = "cuda"\n'
    file.write_text(f"{SMALL}{own.format('first')}{cuda}")
    with pytest.raises(InputError) as error:
        compare(file, tmp_path / "out", epochs=1)
    said = f'{file}: methods[1] (second): device = "cuda": there is no CUDA device here'
    assert str(error.value).startswith(said)
    assert not (tmp_path / "out").exists()
    done = compare(file, tmp_path / "out", epochs=1, only=["first"])
    assert not done.left_out


def test_an_empty_list_of_methods_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "none.toml"
    file.write_text(f"methods = []\n{SMALL}")
    with pytest.raises(InputError, match="methods: none given; add a"):
        compare(file, tmp_path / "out", epochs=1)


def test_a_file_that_is_no_experiment_is_refused_by_the_command(tmp_path: Path) -> None:
    file = tmp_path / "party.toml"
    file.write_text('federation = "f.toml"\nparty = "lab"\n')
    found = CliRunner().invoke(app, ["compare", str(file)])
    assert isinstance(found.exception, InputError)
    assert "a party file" in str(found.exception)


@pytest.mark.parametrize(
    "file",
    sorted((Path(__file__).parents[3] / "examples" / "compare").glob("*.toml")),
    ids=lambda file: file.stem,
)
def test_the_files_of_the_published_comparisons_are_complete(file: Path) -> None:
    source = read_source(file)
    methods = [one.trials()[0] for one in contenders(None)]
    experiment = experiment_of(source, file, "check", methods)
    assert len(experiment.methods) == 13
    assert len(experiment.faults) == 9
    assert len(experiment.seeds) == 3
