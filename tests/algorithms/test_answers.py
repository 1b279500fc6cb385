"""Answers of those who can give one: every metric is the mean over all that can happen."""

from __future__ import annotations

from math import log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.algorithms.answers import Answers, metrics
from colonnade.learning.goal import goal_of

CLASSES = 3


OF_THE_FIRST = ("test_balanced_accuracy", "test_auc", "test_f1", "test_calibration_error")


@st.composite
def asked(draw: st.DrawFn) -> tuple[list[Answers], torch.Tensor, torch.Tensor]:
    """Batches of one federation, any of whose devices may be out of reach; labels; a prior."""
    devices = draw(st.integers(1, 4))
    batches = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    answers = [
        Answers(
            torch.randn(devices, rows, CLASSES, generator=generator).log_softmax(2),
            torch.tensor(draw(st.lists(st.booleans(), min_size=devices, max_size=devices))),
        )
        for rows in batches
    ]
    y = torch.randint(CLASSES, (sum(batches),), generator=generator)
    return answers, y, torch.rand(CLASSES, generator=generator).softmax(0)


def by_hand(answers: list[Answers], y: torch.Tensor, prior: torch.Tensor) -> dict[str, list[float]]:
    """Row by row, one device after the other."""
    found: dict[str, list[float]] = {k: [] for k in ("rand", "best", "worst", "any", "loss")}
    rows = iter(y.tolist())
    for one in answers:
        for r in range(one.opinions.shape[1]):
            truth = next(rows)
            guess = prior[truth].item()
            log_p = {k: p[r] for k, p in enumerate(one.opinions) if one.active[k]}
            right = {k: float(int(p.argmax()) == truth) for k, p in log_p.items()}
            losses = [-p[truth].item() for p in log_p.values()]
            chances = [right.get(k, guess) for k in range(len(one.active))]
            known = list(right.values()) or [guess]
            found["rand"].append(sum(known) / len(known))
            found["best"].append(max(known))
            found["worst"].append(min(known))
            found["any"].append(sum(chances) / len(chances))
            found["loss"].append(sum(losses) / len(losses) if losses else -log(guess))
    return found


@given(asked())
def test_metrics_are_means_over_every_choice_of_device_and_every_draw_of_the_prior(
    case: tuple[list[Answers], torch.Tensor, torch.Tensor],
) -> None:
    answers, y, prior = case
    mean = {name: sum(values) / len(y) for name, values in by_hand(*case).items()}
    found, _ = metrics(answers, y, prior, goal_of(CLASSES))
    named = {name: value for name, value in found.items() if name not in OF_THE_FIRST}
    assert named == pytest.approx(
        {
            "test_accuracy": mean["rand"],
            "test_loss": mean["loss"],
            "active_rand": mean["rand"],
            "active_best": mean["best"],
            "active_worst": mean["worst"],
            "any_rand": mean["any"],
            "spread": mean["best"] - mean["worst"],
        },
        abs=1e-6,
    )
    assert found["active_worst"] - 1e-9 <= found["active_rand"] <= found["active_best"] + 1e-9


def test_with_one_device_worst_rand_and_best_are_the_same() -> None:
    """VFL. Asked in vain in the second batch: as good as the prior, whoever asks how."""
    right, wrong = torch.tensor([0.9, 0.1]).log(), torch.tensor([0.4, 0.6]).log()
    answers = [
        Answers(torch.stack([right, wrong])[None], torch.tensor([True])),
        Answers(torch.stack([right, right])[None], torch.tensor([False])),
    ]
    found, _ = metrics(
        answers, torch.zeros(4, dtype=torch.long), torch.tensor([0.7, 0.3]), goal_of(2)
    )
    for name in ("test_accuracy", "active_rand", "active_best", "active_worst", "any_rand"):
        assert found[name] == pytest.approx((1 + 0 + 0.7 + 0.7) / 4)
    assert found["spread"] == 0
    assert found["test_loss"] == pytest.approx(-(log(0.9) + log(0.4) + 2 * log(0.7)) / 4)


def test_a_device_at_random_answers_with_the_share_of_those_that_can() -> None:
    """any rand = |A| / C · active rand + (1 - |A| / C) · prior."""
    log_p = torch.eye(4)[:, None].log_softmax(2)  # device k says class k
    answers = [Answers(log_p, torch.tensor([True, True, True, False]))]
    found, _ = metrics(answers, torch.tensor([0]), torch.full((4,), 0.25), goal_of(4))
    assert found["active_rand"] == pytest.approx(1 / 3)
    assert found["any_rand"] == pytest.approx(3 / 4 * 1 / 3 + 1 / 4 * 0.25)


def test_a_class_nobody_ever_saw_does_not_make_the_loss_infinite() -> None:
    silent = Answers(torch.zeros(1, 1, 2), torch.tensor([False]))
    never = torch.tensor([1.0, 0.0])
    goal = goal_of(2)
    assert 20 < metrics([silent], torch.tensor([1]), never, goal)[0]["test_loss"] < 30
    assert torch.isfinite(silent.first(goal.unsure(never))).all()


def test_who_asks_one_after_the_other_hears_the_first_that_can_answer() -> None:
    log_p = torch.arange(4.0)[:, None, None].expand(4, 2, 3)
    unsure = torch.tensor([0.5, 0.3, 0.2]).log()
    first = Answers(log_p, torch.tensor([False, False, True, True])).first(unsure)
    assert torch.equal(first, torch.full((2, 3), 2.0))
    silence = Answers(log_p, torch.zeros(4, dtype=torch.bool)).first(unsure)
    assert torch.equal(silence, unsure.expand(2, 3))


def test_of_a_number_the_answers_of_the_devices_are_held_against_the_label_row_by_row() -> None:
    """Two devices say 1 and 4 of a row whose label is 2; a third cannot answer, the mean is 0."""
    said = torch.tensor([1.0, 4.0, 9.0])[:, None, None]  # [devices, rows, 1]
    answers = [Answers(said, torch.tensor([True, True, False]))]
    y, mean = torch.tensor([2.0]).double(), torch.zeros(1)
    found, course = metrics(answers, y, mean, goal_of(0), scale=2.0)
    assert found["active_best_rmse"] == 1
    assert found["active_worst_rmse"] == 2
    assert found["active_rand_rmse"] == found["test_rmse"] == course[0]
    assert found["test_rmse"] == pytest.approx(((1 + 4) / 2) ** 0.5)
    assert found["any_rand_rmse"] == pytest.approx(((1 + 4 + 4) / 3) ** 0.5)
    assert found["test_mae"] == pytest.approx((1 + 2) / 2)
    assert found["test_loss"] == pytest.approx((1 + 4) / 2 / 4), "in squares of the label's scale"
    by_mae, _ = metrics(answers, y, mean, goal_of(0, "mae"))
    assert by_mae["active_rand_mae"] == pytest.approx((1 + 2) / 2)
    assert by_mae["spread_mae"] == 1
