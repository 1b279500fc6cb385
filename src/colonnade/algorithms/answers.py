"""What somebody outside gets who asks devices for their predictions, some of which cannot answer.

MAGS, section 2.2. A is the set of devices that can answer. Whoever is asked in vain stands for the
prior of the training labels: an answer drawn from the class prior is right with the prior's
probability of the true class; of a number, the answer is the mean. Every expectation over whom to
ask and what to draw is computed, not sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.learning.goal import Goal
from colonnade.learning.metrics import ByRow, Metric, right
from colonnade.network import Inbox, local


@dataclass(frozen=True)
class Answers:
    """The predictions of some rows at the one who asked."""

    opinions: Tensor  # [devices, rows, outputs] log-probabilities, or numbers
    active: Tensor  # [devices] bool: A

    @classmethod
    @local
    def heard(cls, inbox: Inbox) -> Answers:
        """What reached the one who asked."""
        return cls(inbox.value[0], inbox.arrived[0])

    @classmethod
    @local
    def own(cls, opinions: Tensor) -> Answers:
        """What the devices here would answer."""
        return cls(opinions, torch.ones(len(opinions), dtype=torch.bool))

    def first(self, unsure: Tensor) -> Tensor:
        """Of the first device that can answer; the opinion of one who knows the prior only if there
        is none. [rows, outputs]"""
        able = self.active.nonzero()[:, 0]
        return self.opinions[able[0]] if len(able) else unsure.expand_as(self.opinions[0])


@local
def metrics(
    answers: Sequence[Answers], y: Tensor, prior: Tensor, goal: Goal, scale: float = 1.0
) -> tuple[dict[str, float], list[float]]:
    """The figures of a test, and one of them batch by batch: `active_rand`.

    Of a metric that sums up rows, such as the accuracy: `active_rand`, of an aggregator of A at
    random; `active_best`, `active_worst`: of the best (the worst) answer of A to each row;
    `any_rand`: of an aggregator at random, able to answer or not. The `test_` metrics are those of
    an aggregator of A at random. Other metrics, such as the AUC, are of the first answer to each
    row. `scale`: of a number label.
    """
    truths = y.split([one.opinions.shape[1] for one in answers])
    pairs = list(zip(answers, truths, strict=True))
    first = torch.cat([one.first(goal.unsure(prior)) for one in answers])
    figures = goal.measure(first, y, "test", everything=True, scale=scale)
    losses = [_loss(one, truth, prior, goal, scale) for one, truth in pairs]
    for metric in goal.metrics:
        if metric.by_row is not None:
            figures[f"test_{metric.key}"] = _total(pairs, prior, goal, metric, "rand")
    figures["test_loss"] = float(torch.cat(losses).mean())
    shown = goal.by_row
    chances = {
        f"active_{name}": _total(pairs, prior, goal, shown, name)
        for name in ("rand", "best", "worst")
    }
    chances["any_rand"] = _total(pairs, prior, goal, shown, "any")
    chances["spread"] = abs(chances["active_best"] - chances["active_worst"])
    end = "" if shown.name == "accuracy" else f"_{shown.key}"
    figures |= {f"{name}{end}": value for name, value in chances.items()}
    return figures, [_total([pair], prior, goal, shown, "rand") for pair in pairs]


def _total(
    pairs: Sequence[tuple[Answers, Tensor]], prior: Tensor, goal: Goal, metric: Metric, which: str
) -> float:
    """A metric that sums up rows, of the answers that `which` stands for."""
    assert metric.by_row is not None
    rows = [_by_row(one, y, prior, goal, metric.by_row)[which] for one, y in pairs]
    return float(metric.total(torch.cat(rows), torch.cat([y for _, y in pairs])))


def _by_row(one: Answers, y: Tensor, prior: Tensor, goal: Goal, by_row: ByRow) -> dict[str, Tensor]:
    """Row by row, what is to be expected of an answer. [rows] each"""
    guess = _guessed(y, prior, goal, by_row)
    if not bool(one.active.any()):
        return dict.fromkeys(("rand", "best", "worst", "any"), guess)
    found = by_row(one.opinions[one.active].double(), y)  # [A, rows]
    rand, share = found.mean(0), one.active.double().mean()
    ends = (found.amax(0), found.amin(0)) if by_row is right else (found.amin(0), found.amax(0))
    anyone = share * rand + (1 - share) * guess
    return {"rand": rand, "best": ends[0], "worst": ends[1], "any": anyone}


def _guessed(y: Tensor, prior: Tensor, goal: Goal, by_row: ByRow) -> Tensor:
    """What is to be expected of an answer by the prior. [rows]"""
    if by_row is right:
        return prior[y].double()  # a class drawn from the prior
    return by_row(goal.unsure(prior.double()).expand(len(y), -1), y)


def _loss(one: Answers, y: Tensor, prior: Tensor, goal: Goal, scale: float) -> Tensor:
    """The mean loss over A. [rows]"""
    heard = one.opinions[one.active].double()
    if not len(heard):
        heard = goal.unsure(prior.double()).expand(1, len(y), -1)
    return goal.row_loss(heard, y, scale)[..., 0].mean(0)
