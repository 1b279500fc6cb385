"""The learning rate falls from epoch to epoch, as `lr_schedule` says."""

from __future__ import annotations

import pytest
import torch

from colonnade.algorithms import built_in, registry
from colonnade.learning import Task
from colonnade.learning.training import Training
from colonnade.testing.engines import stacked
from colonnade.testing.kit import digits

EPOCHS = 5


def cosine() -> list[float]:
    """By epoch, from torch's own schedule."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    found = []
    for _ in range(EPOCHS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


@pytest.mark.parametrize("algorithm", built_in())
def test_all_models_learn_at_the_rate_of_the_epoch(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[int, float] = {}
    set_rate = Training.set_rate

    def watched(training: Training, epoch: int) -> None:
        set_rate(training, epoch)
        stacks = [stack for _, stack in training.algorithm.stacks.values()]
        shares = {stack.optimizer.rate / stack.optimizer.lr for stack in stacks}
        (told[epoch],) = shares  # the same for all of them

    monkeypatch.setattr(Training, "set_rate", watched)
    keys = {"name": algorithm, "algorithm": algorithm, "epochs": EPOCHS, "batch": 64}
    stacked(registry()[algorithm].settings(**keys, lr_schedule="cosine"), digits(200))
    assert [told[epoch] for epoch in range(EPOCHS)] == pytest.approx(cosine())


def test_a_training_whose_rate_falls_is_not_stopped_early() -> None:
    task, kind = Task.of(digits(200), 0), registry()["splitnn"]
    keys = {"name": "s", "algorithm": "splitnn", "epochs": 40}
    assert kind(kind.settings(**keys, lr_schedule="cosine"), task).training.patience == 40
    assert kind(kind.settings(**keys), task).training.patience == 10
    given = kind.settings(**keys, lr_schedule="cosine", patience=3)
    assert kind(given, task).training.patience == 3
