"""What a task is for decides loss, outputs, metrics and the best version, for every algorithm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from colonnade.algorithms.method_table import parse_method
from colonnade.data import DataSpec, VerticalData, load
from colonnade.errors import InputError
from colonnade.experiments.run import build, drive
from colonnade.learning.checkpoint import Checkpoint
from colonnade.learning.goal import balanced, goal_of
from colonnade.learning.settings import Settings
from colonnade.learning.training import Point
from colonnade.models.layers import cross_entropy
from colonnade.network.faults import Client
from colonnade.testing.engines import difference, live, projected, stacked

METHODS: dict[str, dict[str, Any]] = {
    "splitnn": {},
    "fedonce": {"client_epochs": 1},
    "dvfl": {"client_epochs": 1, "aggregator_epochs": 2, "aggregators": 2},
    "mags": {"gossip": 1},
    "mags alone": {"algorithm": "mags", "objective": "autoencoder", "encoder_epochs": 1},
    "centralised": {},
}
EVERY = pytest.mark.parametrize("name", METHODS)
FAULT = Client(name="client", down=0.3, up=0.3, when="always")


def method(name: str, epochs: int = 3) -> Settings:
    table = {"algorithm": name, **METHODS[name], "epochs": epochs, "batch": 32}
    return parse_method(table, "method")


def diabetes(**keys: Any) -> VerticalData:
    return load(DataSpec(dataset="diabetes", rows=200, **keys), 0)


# -- numbers --------------------------------------------------------------------------------------


@EVERY
def test_a_number_is_predicted_better_than_by_its_mean(name: str) -> None:
    trained = stacked(method(name, epochs=60), load(DataSpec(dataset="diabetes"), 0))
    assert trained.metrics["test_r2"] > 0.3
    assert 0 < trained.metrics["test_mae"] < trained.metrics["test_rmse"] < 70
    assert trained.metrics["test_loss"] < 1, "the mean has a loss of 1"


@EVERY
def test_all_engines_train_the_same_model_of_a_number(name: str) -> None:
    fault = FAULT if name != "centralised" else None
    facts: dict[str, Any] = {} if fault is None else {"fault": fault}
    one = stacked(method(name), diabetes(), **facts)
    each = projected(method(name), diabetes(), **facts)
    assert difference(one, each) < 1e-6
    told = [trained.metrics for trained in each.values() if trained.metrics]
    assert told == [pytest.approx(one.metrics, rel=1e-5)]
    whole = stacked(method(name), diabetes())
    assert difference(whole, live(method(name), diabetes())) < 1e-5


@EVERY
def test_the_scale_of_the_label_is_kept_in_checkpoints(name: str, tmp_path: Path) -> None:
    """After a crash in the second epoch all weights, and the scale, are what they would be."""
    whole = stacked(method(name), diabetes())
    algorithm, net = build(method(name), diabetes(), 0)
    kept = Checkpoint(algorithm, tmp_path)

    def watch(round: int) -> None:
        if (restart := net.restart_round(round)) == round:
            kept.keep(net, restart, {})
            if round >= whole.net.rounds_begun // 2:
                raise Outage

    net.watch = watch
    with pytest.raises(Outage):
        drive(algorithm.train(net))
    again, new = build(method(name), diabetes(), 0)
    again.stacks["label"][1].load_member_state(0, {"mean": torch.ones(1), "scale": torch.ones(1)})
    assert Checkpoint(again, tmp_path).resume(new) is not None
    drive(again.train(new))
    for party, tensors in again.tensors(new).items():
        for key, value in tensors.items():
            assert torch.equal(value, whole.weights[party][key]), f"{party}: {key}"


class Outage(Exception):
    """All parties crash."""


def test_a_saved_model_answers_in_the_unit_of_the_label(tmp_path: Path) -> None:
    trained = stacked(method("splitnn"), diabetes())
    trained.algorithm.save(tmp_path, trained.net)
    data = diabetes()
    shifted = replace(data, train=replace(data.train, y=data.train.y * 0 + 7))
    fresh = stacked(method("splitnn", epochs=1), shifted)
    fresh.algorithm.load(tmp_path, fresh.net)
    assert drive(fresh.algorithm.evaluate(fresh.net)) == trained.metrics
    assert {"label.mean", "label.scale"} <= set(trained.weights["server"])


def test_labels_that_are_all_equal_do_not_divide_by_zero() -> None:
    data = diabetes()
    same = replace(data, train=replace(data.train, y=data.train.y * 0 + 7))
    trained = stacked(method("splitnn"), same)
    assert trained.algorithm.label_scale == (7, 1)
    assert trained.metrics["test_rmse"] < 1000


# -- the metric that decides ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["splitnn", "dvfl", "fedonce", "mags", "centralised"])
@pytest.mark.parametrize(
    ("data", "metric", "best"),
    [
        ("breast_cancer", "auc", max),
        ("breast_cancer", "log_loss", min),
        ("breast_cancer", "calibration_error", min),
        ("wine", "f1", max),
        ("diabetes", "mae", min),
        ("diabetes", "r2", max),
    ],
)
def test_the_version_that_is_kept_is_the_best_by_the_metric(
    name: str, data: str, metric: Any, best: Any
) -> None:
    spec = DataSpec(dataset=data, rows=150, validation=0.3, metric=metric)
    algorithm, net = build(method(name, epochs=8), load(spec, 0), 0)
    points: list[Point] = []
    algorithm.training.watch = points.append
    drive(algorithm.train(net))
    key = f"validation_{algorithm.task.goal.deciding.key}"
    found = drive(algorithm.validate(net.within("validation")))
    if name == "mags":  # the mean over the aggregators
        now = float(found[:, 1].mean())
    else:
        now = algorithm.measure(found, algorithm.data.validation.y, "validation")[key]
    assert now == pytest.approx(best(point.metrics[key] for point in points), rel=1e-5)


def test_the_usual_metric_chosen_by_name_changes_nothing() -> None:
    data = load(DataSpec(dataset="digits", rows=200), 0)
    usual, named = (stacked(method("splitnn"), replace(data, metric=m)) for m in (None, "accuracy"))
    assert usual.metrics == named.metrics
    for party, tensors in usual.weights.items():
        assert all(torch.equal(v, named.weights[party][key]) for key, v in tensors.items())


def test_a_validation_tells_the_usual_and_the_deciding_metric_and_a_test_all() -> None:
    data = load(DataSpec(dataset="breast_cancer", rows=150, metric="auc"), 0)
    algorithm, net = build(method("splitnn"), data, 0)
    points: list[Point] = []
    algorithm.training.watch = points.append
    drive(algorithm.train(net))
    told = ("accuracy", "loss", "auc")
    assert set(points[0].metrics) == {"train_loss", *(f"validation_{name}" for name in told)}
    more = ("balanced_accuracy", "f1", "calibration_error")
    assert set(drive(algorithm.evaluate(net))) == {f"test_{name}" for name in (*told, *more)}


def test_a_goal_refuses_metrics_of_another() -> None:
    with pytest.raises(InputError, match="rmse, mae, r2"):
        goal_of(0, "accuracy")
    with pytest.raises(InputError, match="accuracy, balanced_accuracy, auc, f1"):
        goal_of(3, "r2")
    names = [goal_of(classes).name for classes in (0, 2, 3)]
    assert names == ["regression", "binary", "multi-class"]
    assert [goal_of(classes).outputs for classes in (0, 2, 3)] == [1, 2, 3]


# -- weights --------------------------------------------------------------------------------------


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    y = torch.tensor([0] * 7 + [1] * 2 + [3])
    theirs = compute_class_weight("balanced", classes=y.unique().numpy(), y=y.numpy())
    assert balanced(y, 4)[[0, 1, 3]].tolist() == pytest.approx(theirs.tolist())
    assert float(balanced(y, 4)[y].sum()) == pytest.approx(len(y)), "all rows as without weights"


def test_every_class_counts_the_same_in_a_balanced_loss() -> None:
    """Of rows of the same loss each class has the same share, however rare it is."""
    y = torch.tensor([0] * 9 + [1])
    loss = goal_of(2, weights="balanced").training_loss(y)
    logits = torch.zeros(1, 10, 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(logits, y).sum(), logits)
    assert float(gradient[0, :9, 0].sum()) == pytest.approx(float(gradient[0, 9, 1]))
    assert torch.allclose(loss(logits, y), cross_entropy(logits, y))


def test_weights_of_classes_that_occur_equally_often_change_nothing() -> None:
    data = load(DataSpec(dataset="digits", rows=200), 0)
    rows = torch.cat([(data.train.y == c).nonzero()[:10, 0] for c in range(10)])
    even = replace(data.train, x=tuple(x[rows] for x in data.train.x), y=data.train.y[rows])
    data = replace(data, train=even)
    plain, weighted = (
        stacked(method("splitnn"), replace(data, weights=weights)) for weights in (None, "balanced")
    )
    assert plain.metrics == weighted.metrics
