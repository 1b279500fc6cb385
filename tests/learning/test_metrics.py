"""Every metric is scikit-learn's where that has an answer; elsewhere ours has a defined one."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn
from sklearn.calibration import calibration_curve
from torch import Tensor

from colonnade.learning.metrics import BINS, METRICS

Case = tuple[Tensor, Tensor]


@st.composite
def classified(draw: st.DrawFn, classes: tuple[int, int] = (2, 5)) -> Case:
    """Logits on a coarse grid, so that many are tied, and labels that may lack a class."""
    count, rows = draw(st.integers(*classes)), draw(st.integers(1, 40))
    stream = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    logits = torch.randint(-4, 5, (rows, count), generator=stream).double() / 2
    fine = torch.randn(rows, count, generator=stream).double() * draw(st.sampled_from([0.0, 1.0]))
    y = torch.randint(draw(st.integers(1, count)), (rows,), generator=stream)
    return logits + fine, y


@st.composite
def numbered(draw: st.DrawFn) -> Case:
    numbers = st.floats(-1e3, 1e3).map(lambda x: round(x, 3))
    y = draw(st.lists(numbers, min_size=2, max_size=30))
    said = draw(st.lists(numbers, min_size=len(y), max_size=len(y)))
    return torch.tensor(said).double()[:, None], torch.tensor(y).double()


def ours(name: str, case: Case) -> float:
    return METRICS[name].of(*case)


def probabilities(case: Case) -> np.ndarray[Any, Any]:
    return torch.softmax(case[0], 1).numpy()


@given(classified())
def test_accuracies(case: Case) -> None:
    chosen, y = case[0].argmax(1).numpy(), case[1].numpy()
    assert ours("accuracy", case) == pytest.approx(sklearn.accuracy_score(y, chosen))
    with warnings.catch_warnings():  # a predicted class that no row has
        warnings.simplefilter("ignore")
        theirs = sklearn.balanced_accuracy_score(y, chosen)
    assert ours("balanced_accuracy", case) == pytest.approx(theirs)


@given(classified())
def test_f1(case: Case) -> None:
    chosen, y = case[0].argmax(1).numpy(), case[1].numpy()
    how: Any = "binary" if case[0].shape[1] == 2 else "macro"
    never: Any = 0.0
    theirs = sklearn.f1_score(y, chosen, average=how, zero_division=never)
    assert ours("f1", case) == pytest.approx(theirs)


@given(classified())
def test_log_loss(case: Case) -> None:
    labels = range(case[0].shape[1])
    theirs = sklearn.log_loss(case[1].numpy(), probabilities(case), labels=list(labels))
    assert ours("log_loss", case) == pytest.approx(theirs)


@given(classified())
def test_auc(case: Case) -> None:
    """A class that no row has, or all rows, has no curve; scikit-learn has no answer then."""
    p, y = torch.log_softmax(case[0], 1).numpy(), case[1].numpy()
    if case[0].shape[1] == 2:
        p = (case[0][:, 1:] - case[0][:, :1]).numpy().repeat(2, 1) * [-1, 1]
    classes = [1] if case[0].shape[1] == 2 else range(case[0].shape[1])
    curves = [c for c in classes if 0 < (y == c).sum() < len(y)]
    theirs = [sklearn.roc_auc_score(y == c, p[:, c]) for c in curves]
    assert ours("auc", case) == pytest.approx(np.mean(theirs) if theirs else 0.5)


@given(classified((3, 5)))
@settings(max_examples=30)
def test_auc_of_many_classes_is_the_macro_mean_of_one_against_the_rest(case: Case) -> None:
    logits, y = case
    every = torch.arange(logits.shape[1])
    y = torch.cat([y, every])
    logits = torch.cat([logits, torch.zeros(len(every), logits.shape[1])])
    p = torch.log_softmax(logits, 1).exp().numpy()
    theirs = sklearn.roc_auc_score(y.numpy(), p / p.sum(1, keepdims=True), multi_class="ovr")
    assert ours("auc", (logits, y)) == pytest.approx(theirs, abs=0.02), "ties by rounding apart"


@given(classified())
def test_calibration_error(case: Case) -> None:
    p = probabilities(case)
    sure, right = p.max(1), p.argmax(1) == case[1].numpy()
    known: Any = calibration_curve(right, sure, n_bins=BINS, strategy="uniform")
    edges = np.linspace(0, 1, BINS + 1)[1:-1]
    sizes = np.bincount(np.searchsorted(edges, sure), minlength=BINS)
    theirs = np.abs(known[0] - known[1]) @ (sizes[sizes > 0] / len(sure))
    assert ours("calibration_error", case) == pytest.approx(theirs)


@given(numbered())
def test_errors_of_numbers(case: Case) -> None:
    said, y = case[0][:, 0].numpy(), case[1].numpy()
    assert ours("rmse", case) == pytest.approx(sklearn.root_mean_squared_error(y, said))
    assert ours("mae", case) == pytest.approx(sklearn.mean_absolute_error(y, said))
    assert ours("r2", case) == pytest.approx(sklearn.r2_score(y, said))


def test_where_scikit_learn_has_no_answer_ours_is_defined() -> None:
    one_class = (torch.randn(5, 2), torch.zeros(5, dtype=torch.long))
    assert ours("auc", one_class) == 0.5
    assert ours("f1", (torch.tensor([[1.0, 0.0]]), torch.tensor([0]))) == 0
    assert ours("r2", (torch.tensor([[3.0]]), torch.tensor([3.0]))) == 1
    assert ours("r2", (torch.tensor([[4.0]]), torch.tensor([3.0]))) == 0


def test_the_standard_error_is_what_other_rows_would_change() -> None:
    """The error of one sample of rows against the spread over many samples."""
    stream = torch.Generator().manual_seed(0)
    rows, samples = 400, 300
    for name in ("balanced_accuracy", "auc", "log_loss", "rmse", "r2"):
        values, errors = [], []
        for _ in range(samples):
            y = torch.randint(2, (rows,), generator=stream)
            logits = torch.randn(rows, 2, generator=stream)
            logits[:, 1] += y
            case = (logits, y)
            if name in ("rmse", "r2"):
                case = (logits[:, 1:], y.double() * 2)
            values.append(METRICS[name].of(*case))
            errors.append(METRICS[name].error(*case))
        spread = float(np.std(values))
        assert np.mean(errors) == pytest.approx(spread, rel=0.25), name


def test_accuracy_has_the_binomial_error_also_where_all_rows_are_right() -> None:
    logits, y = torch.eye(2).repeat(50, 1), torch.tensor([0, 1] * 30 + [1, 0] * 20)
    share = 61 / 102  # with one right and one wrong row more
    assert METRICS["accuracy"].error(logits, y) == pytest.approx((share * (1 - share) / 102) ** 0.5)
    assert METRICS["accuracy"].error(logits, torch.tensor([0, 1] * 50)) == pytest.approx(0.01, 0.1)
    assert METRICS["rmse"].error(torch.zeros(1, 1), torch.zeros(1)) == 0
