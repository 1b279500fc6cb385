"""What a model is trained for: to tell many classes apart, or two, or to predict a number.

Loss, width of the output, metrics, and the metric that decides come from the goal of a task and
from nowhere else:

goal = self.task.goal
goal.outputs                       # width of a head's output
self.head.learn(x, batch.y, self.loss)

A binary goal has two outputs and the cross entropy, like any number of classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from colonnade.common.metric_names import Weights, check_metric, metrics_of
from colonnade.learning.metrics import METRICS, Metric
from colonnade.models.layers import Loss, cross_entropy, number_error
from colonnade.models.proximal import Proximal, nearest_logits, nearest_numbers

LEAST = 1e-12  # probability of a class that no training row has: not 0, whose log is infinite
LABEL = "label"  # the name of the label's scale among the models of a label holder


@dataclass(frozen=True)
class Goal(ABC):
    """What a model is trained for. `metric`: the metric that the user chose to decide; None: the
    usual one of the goal."""

    classes: int  # 0: the label is a number
    metric: str | None = None
    weights: Weights | None = None  # of classes, in the loss of the training

    def __post_init__(self) -> None:
        check_metric(self.metric, self.weights, self.classes, "")

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    def outputs(self) -> int:
        """Width of a head's output."""
        return self.classes or 1

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics of a test, the usual one first."""
        return tuple(METRICS[name] for name in metrics_of(self.classes))

    @property
    def usual(self) -> Metric:
        """The metric that decides unless the user chooses another one."""
        return self.metrics[0]

    @property
    def deciding(self) -> Metric:
        """The metric that decides which version is the best, and that tables and reports show."""
        return METRICS[self.metric] if self.metric else self.usual

    @property
    def by_row(self) -> Metric:
        """The deciding metric if it is computed from one value per row; else the usual metric."""
        return self.usual if self.deciding.by_row is None else self.deciding

    @abstractmethod
    def training_loss(self, y: Tensor) -> Loss:
        """The loss to learn with, given the training labels: [members, rows, outputs] and labels →
        [members]."""

    @abstractmethod
    def training_proximal(self, y: Tensor) -> Proximal:
        """The step of ADMM on that loss, row by row, given the training labels; see proximal.py."""

    @abstractmethod
    def learnt(self, y: Tensor, mean: float, scale: float) -> Tensor:
        """Labels in the form in which a model learns them. `mean`, `scale`: of a number label."""

    @abstractmethod
    def answers(self, outputs: Tensor, mean: float, scale: float) -> Tensor:
        """Outputs of a head as answers: for a number, in the unit of the label."""

    @abstractmethod
    def loss(self, answers: Tensor, y: Tensor, scale: float) -> float:
        """The mean loss of answers, without weights. `scale`: of the label, in its unit."""

    @abstractmethod
    def opinion(self, outputs: Tensor) -> Tensor:
        """Outputs of a head in a form that can be averaged over several heads: log-probabilities,
        or the numbers themselves."""

    @abstractmethod
    def row_loss(self, opinions: Tensor, y: Tensor, scale: float) -> Tensor:
        """The loss of every row. Opinions are [members, rows, outputs]. [members, rows, 1]"""

    @abstractmethod
    def prior(self, y: Tensor) -> Tensor:
        """What is expected of a row of which nothing is known, from the training labels: shares of
        the classes, or the mean of the standardised numbers. [outputs]"""

    @abstractmethod
    def unsure(self, prior: Tensor) -> Tensor:
        """The opinion of a model that knows the prior only. [outputs]"""

    def measure(
        self, answers: Tensor, y: Tensor, part: str, *, everything: bool, scale: float = 1.0
    ) -> dict[str, float]:
        """Metrics by their names in results: all of them, or the usual and the deciding one, and
        the loss. Answers are in the unit of the label."""
        wanted = self.metrics if everything else dict.fromkeys([self.usual, self.deciding])
        found = {f"{part}_{self.usual.key}": self.usual.of(answers, y)}
        found[f"{part}_loss"] = self.loss(answers, y, scale)
        for metric in wanted:
            if f"{part}_{metric.key}" not in found:
                found[f"{part}_{metric.key}"] = metric.of(answers, y)
        return found


class Classes(Goal):
    """A class is predicted. Answers are logits or log-probabilities."""

    @property
    def name(self) -> str:
        return "binary" if self.classes == 2 else "multi-class"

    def training_loss(self, y: Tensor) -> Loss:
        if self.weights is None or not len(y):
            return cross_entropy
        return partial(cross_entropy, weights=balanced(y, self.classes))

    def training_proximal(self, y: Tensor) -> Proximal:
        weights = None if self.weights is None else balanced(y, self.classes)
        return partial(nearest_logits, weights=weights)

    def learnt(self, y: Tensor, mean: float, scale: float) -> Tensor:
        return y

    def answers(self, outputs: Tensor, mean: float, scale: float) -> Tensor:
        return outputs

    def loss(self, answers: Tensor, y: Tensor, scale: float) -> float:
        return float(F.cross_entropy(answers.double(), y))

    def opinion(self, outputs: Tensor) -> Tensor:
        return F.log_softmax(outputs, -1)

    def row_loss(self, opinions: Tensor, y: Tensor, scale: float) -> Tensor:
        return -opinions.gather(2, y.expand(opinions.shape[:2])[..., None])

    def prior(self, y: Tensor) -> Tensor:
        return torch.bincount(y, minlength=self.classes) / len(y)

    def unsure(self, prior: Tensor) -> Tensor:
        return prior.clamp(min=LEAST).log()


class Number(Goal):
    """A number is predicted. A model learns the standardised label; answers are in its unit."""

    @property
    def name(self) -> str:
        return "regression"

    def training_loss(self, y: Tensor) -> Loss:
        return number_error

    def training_proximal(self, y: Tensor) -> Proximal:
        return nearest_numbers

    def learnt(self, y: Tensor, mean: float, scale: float) -> Tensor:
        return ((y - mean) / scale).to(torch.get_default_dtype())

    def answers(self, outputs: Tensor, mean: float, scale: float) -> Tensor:
        return outputs.double() * scale + mean

    def loss(self, answers: Tensor, y: Tensor, scale: float) -> float:
        return float(self.row_loss(answers[None], y, scale).mean())

    def opinion(self, outputs: Tensor) -> Tensor:
        return outputs

    def row_loss(self, opinions: Tensor, y: Tensor, scale: float) -> Tensor:
        return (opinions.double() - y[:, None]).square() / scale**2

    def prior(self, y: Tensor) -> Tensor:
        return torch.zeros(1)

    def unsure(self, prior: Tensor) -> Tensor:
        return prior


def goal_of(classes: int, metric: str | None = None, weights: Weights | None = None) -> Goal:
    return (Classes if classes else Number)(classes, metric, weights)


def balanced(y: Tensor, classes: int) -> Tensor:
    """Weights by which every class counts the same in total, and all rows together as without
    weights, as scikit-learn has them. [classes]"""
    counts = torch.bincount(y, minlength=classes)
    return len(y) / ((counts > 0).sum() * counts.clamp(min=1))


def spread(y: Tensor) -> Tensor:
    """The standard deviation of number labels; 1 where all are equal."""
    return y.std(correction=0) if bool((y != y[0]).any()) else torch.ones_like(y[0])


class LabelScale(nn.Module):
    """Mean and scale of a number label over the training rows. A module, so that the label holder
    keeps it with its models and saves it with them."""

    mean: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(1, dtype=torch.float64))

    def forward(self, outputs: Tensor) -> Tensor:
        """Standardised numbers in the unit of the label."""
        return outputs * self.scale + self.mean
