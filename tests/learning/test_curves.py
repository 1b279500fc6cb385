"""What the pictures of a test are drawn from: sums that agree with scikit-learn and hold no row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix, roc_auc_score, roc_curve

from colonnade.common.curves import FALSE_POSITIVE_RATES, Curves
from colonnade.learning.curves import curves_of, roc
from colonnade.learning.metrics import METRICS


def random_answers(rows: int, classes: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (rows,), generator=generator)
    answers = torch.randn(rows, classes, generator=generator)
    answers[torch.arange(rows), y] += 1
    return answers, y


def curves(rows: int, classes: int, seed: int) -> Curves:
    found = curves_of(*random_answers(rows, classes, seed), classes)
    assert found is not None
    return found


@given(st.integers(2, 60), st.integers(0, 99))
def test_the_roc_curve_is_that_of_scikit_learn(rows: int, seed: int) -> None:
    """Few different scores: many rows are equal, which makes the curve slant."""
    generator = np.random.default_rng(seed)
    score = generator.integers(0, 5, rows)
    true = np.arange(rows) % 2 == 0
    false_rate, true_rate, _ = roc_curve(true, score)
    # Just to the right of a rate, where a step up has been taken.
    expected = np.interp(np.array(FALSE_POSITIVE_RATES) + 1e-12, false_rate, true_rate)
    found = roc(torch.from_numpy(score), torch.from_numpy(true))
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-9)


@pytest.mark.parametrize("classes", [2, 5])
def test_area_and_matrix_are_those_of_the_answers(classes: int) -> None:
    answers, y = random_answers(3000, classes, 1)
    found = curves(3000, classes, 1)
    assert found.confusion == confusion_matrix(y, answers.argmax(1)).tolist()
    p = answers.softmax(1).numpy()
    area = roc_auc_score(y, p[:, 1] if classes == 2 else p, multi_class="ovr")
    x, rates = np.array(FALSE_POSITIVE_RATES), np.array(found.roc)
    assert ((rates[1:] + rates[:-1]) / 2 * np.diff(x)).sum() == pytest.approx(area, abs=2e-3)


def test_the_bins_give_the_calibration_error() -> None:
    answers, y = random_answers(2000, 4, 2)
    bins = curves(2000, 4, 2).calibration
    assert sum(one.rows for one in bins) == 2000
    error = sum(abs(one.hits - one.probability) for one in bins) / 2000
    assert error == pytest.approx(METRICS["calibration_error"].of(answers, y), abs=1e-5)


def test_numbers_are_counted_in_cells_also_those_far_outside() -> None:
    y = torch.linspace(0, 10, 500, dtype=torch.float64)
    answers = y.clone()[:, None]
    answers[0] = 1e9
    found = curves_of(answers, y, 0)
    assert found is not None
    assert found.cloud is not None
    counts = np.array(found.cloud.counts)
    assert counts.sum() == sum(found.cloud.errors) == 500
    assert np.trace(counts) == 499


def test_a_diverged_run_and_a_single_class_have_no_curves() -> None:
    y = torch.tensor([0, 1])
    assert curves_of(torch.tensor([[1.0, torch.nan], [0, 1]]), y, 2) is None
    assert curves_of(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), 2) is None
    one_class = curves_of(torch.eye(2), torch.tensor([0, 0]), 2)
    assert one_class is not None
    assert one_class.roc == []


@pytest.mark.parametrize("classes", [2, 10, 30, 500])
def test_their_size_does_not_grow_with_rows(classes: int) -> None:
    import msgspec

    assert len(msgspec.json.encode(curves(20_000, classes, 0))) < 12_000
