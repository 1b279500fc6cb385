"""The step that ADMM takes on a loss, held against scipy and against what its minimum means."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from bench.proximal import by_scipy
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from colonnade.learning.goal import goal_of
from colonnade.models.proximal import nearest_logits, nearest_numbers

CLASSES = 7


def drawn(scale: float, rows: int = 12, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """v, labels, and where to begin."""
    stream = torch.Generator().manual_seed(seed)
    v, begin = (
        scale * torch.randn(1, rows, CLASSES, dtype=torch.float64, generator=stream)
        for _ in range(2)
    )
    return v, torch.randint(CLASSES, (rows,), generator=stream), begin


def gradient(z: Tensor, v: Tensor, y: Tensor, rho: float) -> Tensor:
    return z.softmax(-1) - F.one_hot(y, CLASSES) + rho * (z - v)


@pytest.mark.parametrize("rho", [0.01, 0.5, 2.0, 100.0])
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 1000.0])
def test_it_finds_what_l_bfgs_b_finds(scale: float, rho: float) -> None:
    v, y, begin = drawn(scale)
    found = nearest_logits(v, y, rho, begin)
    assert torch.allclose(found, by_scipy(v, y, rho, begin), rtol=1e-6, atol=1e-6)


@given(
    st.floats(-4, 4).map(lambda power: 10**power),
    st.floats(-2, 4).map(lambda power: 10**power),
    st.integers(0, 1000),
)
def test_the_gradient_vanishes_there_however_far_away_it_begins(
    rho: float, scale: float, seed: int
) -> None:
    v, y, begin = drawn(scale, rows=5, seed=seed)
    z = nearest_logits(v, y, rho, begin)
    rounding = 1e-15 * rho * float(v.abs().max())
    assert float(gradient(z, v, y, rho).abs().max()) < 1e-7 * (1 + rho) ** 0.5 + rounding


def test_a_class_that_weighs_twice_is_one_whose_penalty_weighs_half() -> None:
    v, y, begin = drawn(3.0)
    twice = nearest_logits(v, y, 1.0, begin, weights=torch.full((CLASSES,), 2.0))
    assert torch.allclose(twice, nearest_logits(v, y, 0.5, begin), atol=1e-9)


def test_classes_may_be_balanced() -> None:
    v, _, begin = drawn(1.0, rows=8)
    y = torch.tensor([0, 0, 0, 0, 0, 0, 0, 1])
    plain, balanced = (
        goal_of(CLASSES, weights=weights).training_proximal(y)(v, y, 1.0, begin)
        for weights in (None, "balanced")
    )
    gain = (balanced - plain).gather(2, y.expand(1, -1)[..., None])[0, :, 0]
    assert bool((gain[:7] < 0).all()), "the frequent class counts less"
    assert bool(gain[7] > 0), "the rare class counts more"


def test_of_a_number_the_minimum_lies_between_the_label_and_what_was_there() -> None:
    v, y = torch.tensor([[[0.0], [3.0]]]), torch.tensor([1.0, 1.0])
    z = nearest_numbers(v, y, 2.0, v)
    assert torch.equal(z, torch.tensor([[[0.5], [2.0]]]))
    slope = 2 * (z[0, :, 0] - y) + 2.0 * (z - v)[0, :, 0]
    assert torch.equal(slope, torch.zeros(2))
