"""Tables, reports and targets of experiments whose figure is not the accuracy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import colonnade as cn
from colonnade.cli import app
from colonnade.common.metric_names import OF_CLASSES, OF_NUMBERS, key_of, title_of
from colonnade.common.results import read_history
from colonnade.errors import InputError
from colonnade.experiments.findings import PLAIN, verdict
from colonnade.experiments.report import write_report
from colonnade.experiments.table import Metric, Plan, planned, summarise
from colonnade.learning.metrics import METRICS

GOOD = {"name": "good", "algorithm": "splitnn", "epochs": 20, "lr": 1e-2}
BAD = {"name": "bad", "algorithm": "splitnn", "epochs": 2, "lr": 1e-6}


def experiment(dataset: str, *methods: dict[str, Any], **more: Any) -> dict[str, Any]:
    data = {"dataset": dataset, **more.pop("data", {})}
    return {"name": "goals", "seeds": [0, 1], "data": data, "methods": list(methods), **more}


def test_of_errors_the_lower_is_the_better(tmp_path: Path) -> None:
    outcome = cn.run(experiment("diabetes", BAD, GOOD), out=tmp_path)
    summary = summarise(outcome.results, planned(tmp_path))
    assert summary.metric.name == "test_rmse"
    told = "Test RMSE, mean ± 2 sd over 2 seeds; lower is better; best mean in bold."
    assert summary.caption() == told
    assert summary.winners("none") == ["good"]
    assert [method for method, _ in summary.ranking("none")] == ["good", "bad"]
    assert verdict(summary, "none", PLAIN).startswith("Without faults, good (5")
    page = write_report(tmp_path).read_text()
    assert "validation RMSE" in page
    assert "Test R², mean" in page, "other metrics"
    assert "accuracy" not in page.split("Configuration")[0]


@pytest.mark.parametrize("metric", ["auc", "f1", "balanced_accuracy", "log_loss"])
def test_the_chosen_metric_is_the_figure_of_table_report_and_curve(
    metric: Any, tmp_path: Path
) -> None:
    table = experiment("breast_cancer", GOOD, data={"metric": metric})
    outcome = cn.run(table, out=tmp_path)
    name = summarise(outcome.results, planned(tmp_path)).metric.name
    assert name == ("test_loss" if metric == "log_loss" else f"test_{metric}")
    first = read_history(tmp_path, outcome.results[0].run)[0]
    assert name.replace("test", "validation") in first
    title = title_of(name.replace("test_", "validation_"))
    assert title in write_report(tmp_path).read_text()


def test_folders_without_a_metric_show_what_they_did_before() -> None:
    assert Plan.of({"data": {"dataset": "digits"}}).metric is None
    assert summarise([], Plan()).metric.name == "test_accuracy"


def test_a_target_of_an_error_is_reached_from_above(tmp_path: Path) -> None:
    outcome = cn.run(experiment("diabetes", GOOD, BAD, target=65.0), out=tmp_path)
    for result in outcome.results:
        rounds, curve = result.cost["rounds_to_target"], read_history(tmp_path, result.run)
        reached = [point["round"] for point in curve if point["validation_rmse"] <= 65]
        assert rounds == (reached[0] if reached else None)
    assert [result.cost["rounds_to_target"] is None for result in outcome.results][2:] == [True] * 2


def test_a_run_may_stop_at_its_target_and_one_that_never_reaches_it_says_so(
    tmp_path: Path,
) -> None:
    table = experiment("digits", GOOD, BAD, target=0.8, stop_at_target=True)
    good, _, bad, _ = cn.run(table, out=tmp_path).results
    assert good.method == "good"
    assert good.cost["rounds"] == good.cost["rounds_to_target"]
    assert len(read_history(tmp_path, good.run)) < GOOD["epochs"]
    sent, rounds = good.cost["bytes"], good.cost["rounds"]
    assert sent is not None
    assert rounds
    assert good.cost["bytes_per_round"] == sent / rounds
    assert bad.cost["rounds_to_target"] is None
    assert bad.metrics["test_accuracy"] is not None, "the run is kept"
    assert "bad: the target of 0.8 was not reached" in bad.notes
    assert not any("target" in note for note in good.notes)
    page = write_report(tmp_path).read_text()
    assert "the target of 0.8 was not reached" in page
    with pytest.raises(InputError, match="stop_at_target: there is no target"):
        cn.run(experiment("digits", GOOD, stop_at_target=True))


def test_a_target_must_be_one_that_the_metric_can_reach() -> None:
    with pytest.raises(InputError, match=r"target = 3: expected an accuracy above 0, at most 1"):
        cn.run(experiment("digits", GOOD, target=3.0))
    with pytest.raises(InputError, match=r"target = 3: expected a value of r2 above 0, at most 1"):
        cn.run(experiment("diabetes", GOOD, target=3.0, data={"metric": "r2"}))


def test_an_unknown_metric_is_told_with_those_that_there_are() -> None:
    with pytest.raises(InputError, match=r"data\.metric.*roc"):
        cn.run(experiment("digits", GOOD, data={"metric": "roc"}))
    with pytest.raises(InputError, match=r'data\.metric = "r2": .* one of accuracy'):
        cn.run(experiment("digits", GOOD, data={"metric": "r2"}))


def test_the_command_line_tells_the_figure(tmp_path: Path) -> None:
    file = tmp_path / "diabetes.toml"
    file.write_text(
        'name = "d"\n[data]\ndataset = "diabetes"\nmetric = "mae"\n'
        '[[methods]]\nalgorithm = "splitnn"\nepochs = 2\n'
    )
    words = ["run", str(file), "--out", str(tmp_path / "out"), "--jobs", "1"]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    assert "Test MAE, one seed" in shown.output
    told = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert {"test_rmse", "test_mae", "test_r2", "test_loss"} == set(told["results"][0]["metrics"])


@pytest.mark.parametrize("name", [*OF_CLASSES, *OF_NUMBERS])
def test_tables_and_trainings_agree_on_which_way_is_better(name: str) -> None:
    assert Metric(f"test_{key_of(name)}").higher_is_better == METRICS[name].higher


def test_a_table_of_one_s_own_with_numbers_may_have_a_target_and_no_note_on_classes(
    tmp_path: Path,
) -> None:
    lines = [f"{i},{i % 7},{i / 7 + 0.5:.2f}" for i in range(60)]
    (tmp_path / "own.csv").write_text("\n".join(["a,b,y", *lines]))
    data = {"path": str(tmp_path / "own.csv"), "label": "y", "parties": 2}
    table = {"name": "own", "data": data, "methods": [GOOD], "target": 5.0}
    (result,) = cn.run(table, out=tmp_path / "out").results
    assert "rounds_to_target" in result.cost
    assert not any("classes in order" in note for note in result.notes)


def test_test_rows_of_one_class_come_with_a_note_on_their_auc(tmp_path: Path) -> None:
    x, y = np.arange(80.0).reshape(40, 2), np.arange(32) % 2
    np.savez(tmp_path / "own.npz", x_train=x[:32], y_train=y, x_test=x[32:], y_test=np.ones(8, int))
    data = {"path": str(tmp_path / "own.npz"), "parties": 2}
    brief = GOOD | {"epochs": 1}
    (result,) = cn.run(
        {"name": "own", "data": data, "methods": [brief]}, out=tmp_path / "o"
    ).results
    assert result.metrics["test_auc"] == 0.5
    [note] = [note for note in result.notes if "AUC" in note]
    assert note.startswith("the 8 test rows hold one class only")
    assert note in write_report(tmp_path / "o").read_text()


def test_without_test_rows_no_metric_is_named(tmp_path: Path) -> None:
    brief = GOOD | {"epochs": 1}
    outcome = cn.run(experiment("diabetes", brief, data={"test": 0.0}), out=tmp_path)
    summary = summarise(outcome.results, planned(tmp_path))
    assert summary.caption() == "Nothing was measured on test rows."
    assert "accuracy" not in write_report(tmp_path).read_text().split("Configuration")[0]
