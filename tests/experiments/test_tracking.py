"""A researcher looks at runs in TensorBoard and in MLflow."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.command_line import colonnade

import colonnade as cn
from colonnade.common.results import Result, read_history
from colonnade.common.tracking import Tracked, Tracking, check_trackers, mlflow_client
from colonnade.errors import InputError

EXPERIMENT = {
    "name": "tracked <runs>",
    "data": {"dataset": "digits", "rows": 150, "parties": 2},
    "faults": [{"name": "none"}, {"name": "late", "kind": "device", "rate": 0.3}],
    "methods": [{"name": "SplitNN", "algorithm": "splitnn", "epochs": 2, "lr": 0.003}],
}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Both faults at prediction, so that both runs share one training."""
    table = {**EXPERIMENT, "faults": [f | {"when": "inference"} for f in EXPERIMENT["faults"][1:]]}
    table["faults"] = [{"name": "none"}, *table["faults"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        folder = tmp_path_factory.mktemp("tracked") / "out"
        return cn.run(table, out=folder, track=["tensorboard", "mlflow"])


def figures(result: Result) -> dict[str, float]:
    named = {f"{result.method} · {result.faults}/{k}": v for k, v in result.metrics.items()}
    return {key: value for key, value in named.items() if value is not None}


def test_tensorboard_has_the_curve_the_settings_and_the_figures(outcome: Any) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    first = outcome.results[0]
    [folder] = (outcome.folder / "tensorboard").iterdir()
    assert folder.name == first.run
    events = EventAccumulator(str(folder))
    events.Reload()
    curve = read_history(outcome.folder, first.run)
    for key in ("validation_accuracy", "train_loss", "bytes"):
        told = [(event.step, event.value) for event in events.Scalars(key)]
        assert told == [(p["round"], pytest.approx(p[key])) for p in curve]
    for result in outcome.results:
        for key, value in figures(result).items():
            assert events.Scalars(key)[-1].value == pytest.approx(value)
    text = events.Tensors("settings/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "| method.lr | 0.003 |" in text


def test_mlflow_has_one_run_for_a_training_with_curve_settings_and_figures(outcome: Any) -> None:
    client = mlflow_client(outcome.folder)
    experiment = client.get_experiment_by_name("tracked <runs>")
    [run] = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "SplitNN · none · seed 0"
    assert run.data.params["method.lr"] == "0.003"
    assert run.data.params["data.dataset"] == "digits"
    assert run.data.metrics["cost/bytes"] == outcome.results[0].cost["bytes"]
    history = client.get_metric_history(run.info.run_id, "validation_accuracy")
    curve = read_history(outcome.folder, outcome.results[0].run)
    assert [(m.step, m.value) for m in history] == [
        (point["round"], point["validation_accuracy"]) for point in curve
    ]
    told = run.data.metrics
    for result in outcome.results:
        accuracy = result.metrics["test_accuracy"]
        assert told[f"SplitNN _ {result.faults}/test_accuracy"] == pytest.approx(accuracy)


def test_a_tracker_that_is_not_installed_is_named_with_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(InputError, match=r'pip install "colonnade\[track\]"'):
        check_trackers(["mlflow"])


def test_an_unknown_tracker_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file.toml").write_text(
        'name = "x"\n[data]\ndataset = "digits"\n[[methods]]\nname = "a"\nalgorithm = "splitnn"\n'
    )
    done = colonnade("run", "file.toml", "--track", "tensorbord", folder=tmp_path)
    assert done.returncode == 2
    assert "--track tensorbord: expected tensorboard or mlflow" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_tracker_that_fails_is_told_and_does_not_end_the_training(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mlflow").write_text("a file where MLflow wants a folder")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with caplog.at_level(logging.WARNING):
        tracking = Tracking(["mlflow"], Tracked(tmp_path, "x", "run", "a run"))
        tracking.point({"round": 1, "train_loss": 0.5})
        tracking.end({"test_accuracy": 1.0})
    assert "tracking with mlflow has stopped" in caplog.text


def test_a_training_that_fails_is_failed_in_mlflow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    tracking = Tracking(["mlflow"], Tracked(tmp_path, "x", "run", "a run", {"lr": 1e30}))
    tracking.point({"round": 1, "train_loss": float("nan")})
    tracking.end({}, "the loss is not a number any more")
    tracking.end({"test_accuracy": 1.0})  # the first end counts
    client = mlflow_client(tmp_path)
    [run] = client.search_runs([client.get_experiment_by_name("x").experiment_id])
    assert run.info.status == "FAILED"
    assert run.data.tags["failed"] == "the loss is not a number any more"
    assert run.data.metrics == {}
