"""Labels with differential privacy."""

from __future__ import annotations

import math

import pytest
import torch

from colonnade.common.randomness import SeededRandomness
from colonnade.common.seeds import numpy_stream
from colonnade.privacy.label_noise import evidence
from colonnade.privacy.spec import LabelPrivacy

HOW = ["response", "alibi"]


def drawn(how: str, epsilon: float, label: int, classes: int, rows: int = 40_000) -> torch.Tensor:
    """The evidence of rows of one class."""
    source = SeededRandomness(numpy_stream(label, how))
    wanted = LabelPrivacy(epsilon=epsilon, how=how)  # pyright: ignore[reportArgumentType]
    return evidence(wanted, torch.full((rows,), label), classes, source)


@pytest.mark.parametrize("classes", [2, 5])
def test_a_response_is_as_often_true_as_epsilon_allows(classes: int) -> None:
    epsilon = 1.5
    told = [drawn("response", epsilon, label, classes).argmax(1) for label in range(2)]
    share = torch.stack([torch.bincount(one, minlength=classes) / len(one) for one in told])
    truthful = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    assert share.diagonal() == pytest.approx(torch.full((2,), truthful), abs=0.01)
    assert float((share[0] / share[1]).max()) == pytest.approx(math.exp(epsilon), rel=0.05)
    rest = (1 - truthful) / (classes - 1)
    assert share[0, 1:] == pytest.approx(torch.full((classes - 1,), rest), abs=0.01)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_no_evidence_is_stronger_than_epsilon(how: str, epsilon: float) -> None:
    """The largest ratio of two likelihoods is what differential privacy is about."""
    evidence = drawn(how, epsilon, 1, 4)
    most = (evidence.max(1).values - evidence.min(1).values).max()
    assert float(most) <= epsilon + 1e-9
    assert float(most) > 0.95 * epsilon


@pytest.mark.parametrize("how", HOW)
def test_evidence_is_worth_what_it_says(how: str) -> None:
    """Of rows whose evidence makes a class p likely, a share of p has it: for equally many rows of
    each class."""
    evidence = torch.cat([drawn(how, 2.0, label, 3) for label in range(3)]).exp()
    truth = torch.arange(3).repeat_interleave(40_000)
    for low, high in ((0.1, 0.25), (0.25, 0.45), (0.55, 0.8)):
        rows = (evidence[:, 0] >= low) & (evidence[:, 0] < high)
        if int(rows.sum()) > 1000:
            expected = float(evidence[rows, 0].mean())
            assert float((truth[rows] == 0).double().mean()) == pytest.approx(expected, abs=0.02)
