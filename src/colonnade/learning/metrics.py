"""Metrics of predictions, computed with torch: scikit-learn takes seconds to import.

`answers` are [rows, classes] logits or log-probabilities, or [rows, 1] numbers in the unit of the
label; `y` is [rows]. Every metric has a defined value for any rows, at least one: where a class is
missing, the metric's docstring says what then counts. The tests hold each metric against
scikit-learn's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from colonnade.common.metric_names import LOWER, key_of

BINS = 15  # of the calibration error, equally wide
GROUPS = 10  # of rows, left out in turn to find the standard error of a metric

ByRow = Callable[[Tensor, Tensor], Tensor]  # [..., rows, outputs], [rows] → [..., rows]
Total = Callable[[Tensor, Tensor], Tensor]  # [rows], y → a number


@dataclass(frozen=True)
class Metric:
    """A metric. With `by_row`, `total` takes one value per row, which `by_row` computes; without
    it, `total` takes the answers themselves."""

    name: str
    total: Total
    by_row: ByRow | None = None

    @property
    def key(self) -> str:
        """What follows `test_` in the names of results."""
        return key_of(self.name)

    @property
    def higher(self) -> bool:
        """Whether a higher value is better."""
        return self.name not in LOWER

    def of(self, answers: Tensor, y: Tensor) -> float:
        rows = answers if self.by_row is None else self.by_row(answers, y)
        return float(self.total(rows, y))

    def score(self, value: float) -> float:
        """The value with such a sign that higher is better."""
        return value if self.higher else -value

    def reached(self, metrics: Mapping[str, float], target: float) -> bool:
        """Whether the validation, whose metrics these are, is as good as the target."""
        value = metrics.get(f"validation_{self.key}")
        return value is not None and self.score(value) >= self.score(target)

    def shortfall(self, value: float) -> float:
        """The value in such a form that lower is better, and 0 is best."""
        return 1 - value if self.higher else value

    def error(self, answers: Tensor, y: Tensor) -> float:
        """The standard error of the metric, from the choice of rows. Accuracy has the binomial one,
        with one right and one wrong row more, so that it is not 0 where all rows are right; any
        other metric has the jackknife's, leaving out a tenth of the rows in turn."""
        rows = len(y)
        if self.name == "accuracy":
            accuracy = (rows * self.of(answers, y) + 1) / (rows + 2)
            return math.sqrt(accuracy * (1 - accuracy) / (rows + 2))
        groups = min(GROUPS, rows)
        if groups < 2:
            return 0.0
        group = torch.arange(rows) % groups
        kept = [group != g for g in range(groups)]
        values = torch.tensor([self.of(answers[k], y[k]) for k in kept], dtype=torch.float64)
        return math.sqrt((groups - 1) * float(values.var(correction=0)))


# -- by row ---------------------------------------------------------------------------------------


def right(answers: Tensor, y: Tensor) -> Tensor:
    return (answers.argmax(-1) == y).double()


def log_loss_by_row(answers: Tensor, y: Tensor) -> Tensor:
    """Minus the logarithm of the probability of the true class."""
    log_p = F.log_softmax(answers.double(), -1)
    return -log_p.gather(-1, y.expand(answers.shape[:-1])[..., None])[..., 0]


def squared(answers: Tensor, y: Tensor) -> Tensor:
    return (answers[..., 0].double() - y).square()


def absolute(answers: Tensor, y: Tensor) -> Tensor:
    return (answers[..., 0].double() - y).abs()


# -- over all rows --------------------------------------------------------------------------------


def _mean(rows: Tensor, y: Tensor) -> Tensor:
    return rows.mean()


def _mean_by_class(rows: Tensor, y: Tensor) -> Tensor:
    """Over the classes that occur in `y`."""
    return torch.stack([rows[y == c].mean() for c in y.unique().tolist()]).mean()


def _root_mean(rows: Tensor, y: Tensor) -> Tensor:
    return rows.mean().sqrt()


def _explained(rows: Tensor, y: Tensor) -> Tensor:
    """R². Where all labels are equal there is nothing to explain: 1 if every answer is exact, else
    0."""
    spread = (y.double() - y.double().mean()).square().sum()
    if spread == 0:
        return (rows.sum() == 0).double()
    return 1 - rows.sum() / spread


def _area(answers: Tensor, y: Tensor) -> Tensor:
    """Area under the ROC curve: of class 1 if there are two classes, else the mean over classes,
    each against all others. A class that no row has, or every row, has no curve and is left out; if
    that leaves none, the area is 0.5."""
    log_p = F.log_softmax(answers.double(), -1)
    if answers.shape[-1] == 2:
        return _ranked(answers[:, 1].double() - answers[:, 0].double(), y == 1)
    present = [c for c in y.unique().tolist() if not bool((y == c).all())]
    areas = [_ranked(log_p[:, c], y == c) for c in present]
    return torch.stack(areas).mean() if areas else torch.tensor(0.5)


def _ranked(scores: Tensor, positive: Tensor) -> Tensor:
    """How often a positive row has the higher score of two (Mann and Whitney); a tie is half."""
    count = positive.sum().double()
    others = len(positive) - count
    if not count or not others:
        return torch.tensor(0.5, dtype=torch.float64)
    _, which, sizes = scores.unique(return_inverse=True, return_counts=True)
    last = sizes.cumsum(0).double()
    ranks = (last - (sizes - 1) / 2)[which]  # from 1; equal scores share the middle of theirs
    return (ranks[positive].sum() - count * (count + 1) / 2) / (count * others)


def _f1(answers: Tensor, y: Tensor) -> Tensor:
    """Of class 1 if there are two classes, else the mean over the classes that occur in the labels
    or in the answers. Without any row of a class, predicted or true, its F1 is 0."""
    chosen = answers.argmax(-1)
    classes = torch.tensor([1]) if answers.shape[-1] == 2 else torch.cat([chosen, y]).unique()
    scores = []
    for c in classes.tolist():
        found = ((chosen == c) & (y == c)).sum().double()
        total = (chosen == c).sum() + (y == c).sum()
        scores.append(2 * found / total.clamp(min=1))
    return torch.stack(scores).mean()


def _calibration(answers: Tensor, y: Tensor) -> Tensor:
    """Expected calibration error: the distance of accuracy and mean confidence (the probability of
    the predicted class) in 15 equally wide bins of confidence, weighted by their rows."""
    p = F.softmax(answers.double(), -1)
    confidence, chosen = p.max(-1)
    edges = torch.linspace(0, 1, BINS + 1, dtype=torch.float64)[1:-1]
    which = torch.bucketize(confidence, edges)
    off = torch.zeros(BINS, dtype=torch.float64)
    off.index_add_(0, which, (chosen == y).double() - confidence)
    return off.abs().sum() / len(y)


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", _mean, right),
        Metric("balanced_accuracy", _mean_by_class, right),
        Metric("auc", _area),
        Metric("f1", _f1),
        Metric("log_loss", _mean, log_loss_by_row),
        Metric("calibration_error", _calibration),
        Metric("rmse", _root_mean, squared),
        Metric("mae", _mean, absolute),
        Metric("r2", _explained, squared),
    )
}
