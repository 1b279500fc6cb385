"""The names of metrics, by goal, and their names in results; without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from colonnade.errors import InputError

GoalName = Literal["classes", "number"]  # what a label stands for
Weights = Literal["balanced"]
MetricName = Literal[
    "accuracy",
    "balanced_accuracy",
    "auc",
    "f1",
    "log_loss",
    "calibration_error",
    "rmse",
    "mae",
    "r2",
]
OF_CLASSES = ("accuracy", "balanced_accuracy", "auc", "f1", "log_loss", "calibration_error")
OF_NUMBERS = ("rmse", "mae", "r2")  # the first of each is the usual one
UNBOUNDED = ("log_loss", "rmse", "mae")  # may be above 1
WRITTEN = {"auc": "AUC", "f1": "F1", "rmse": "RMSE", "mae": "MAE", "r2": "R²"}  # for readers
LOWER = ("log_loss", "calibration_error", "rmse", "mae")  # a lower value is better


def key_of(metric: str) -> str:
    """What follows `test_` and `validation_` in results: the log loss is the loss of classes."""
    return "loss" if metric == "log_loss" else metric


def title_of(name: str) -> str:
    """A metric for readers, by its name in results: `test_auc` is "test AUC"."""
    part, _, metric = name.partition("_")
    return f"{part} {WRITTEN[metric]}" if metric in WRITTEN else name.replace("_", " ")


def metrics_of(classes: int) -> tuple[str, ...]:
    """The metrics of a label with so many classes; 0: the label is a number."""
    return OF_CLASSES if classes else OF_NUMBERS


def check_metric(metric: str | None, weights: str | None, classes: int, table: str) -> None:
    """Refuse a metric or class weights that do not fit the label. `table`: put before the keys in
    an error, such as "data."."""
    known = metrics_of(classes)
    what = "a class" if classes else "a number"
    if metric is not None and metric not in known:
        raise InputError(
            f'{table}metric = "{metric}": is not for this label, which is {what}; expected one of '
            f"{', '.join(known)}"
        )
    if weights is not None and not classes:
        raise InputError(
            f'{table}weights = "{weights}": weighs classes, but the label is a number; leave it out'
        )


def main_metric(chosen: str | None, measured: Sequence[str]) -> str:
    """The metric of a table, by its name in results: the chosen one, else the usual one of the
    goal, else the first that was measured."""
    wanted = [chosen, OF_CLASSES[0], OF_NUMBERS[0]]
    names = [f"test_{key_of(metric)}" for metric in wanted if metric is not None]
    found = [name for name in names if name in measured]
    return next(iter([*found, *measured]), names[0])


def decisive(metrics: Mapping[str, float], key: str) -> list[str]:
    """The values of the deciding metric on validation and test rows, as text. `key`: see
    `key_of`."""
    names = (f"validation_{key}", f"test_{key}")
    return [f"{name} {metrics[name]:.4f}" for name in names if name in metrics]
