"""Clipping and Gaussian noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from colonnade.common.randomness import Randomness, SeededRandomness, SystemRandomness
from colonnade.errors import InputError
from colonnade.privacy.noise import ClipRows, clipped, gaussian, released
from colonnade.privacy.spec import Noise

ANYTHING = arrays(np.float32, array_shapes(min_dims=3, max_dims=3), elements=st.floats(width=32))


@given(ANYTHING, st.floats(1e-3, 1e3))
def test_whatever_is_encoded_no_row_leaves_longer_than_the_clip(
    values: np.ndarray, clip: float
) -> None:
    out = released(torch.from_numpy(values), clip, 0.0, [])
    assert out.isfinite().all()
    assert (out.double().norm(dim=-1) <= clip).all()


@given(arrays(np.float32, (3, 4), elements=st.floats(-1, 1, width=32)), st.floats(2.5, 100))
def test_short_rows_are_left_as_they_are(values: np.ndarray, clip: float) -> None:
    x = torch.from_numpy(values)
    assert torch.equal(clipped(x, clip), x)


def test_gradients_pass_through_the_clipping() -> None:
    x = torch.randn(2, 5, 3, dtype=torch.float64).mul(3).requires_grad_()
    assert torch.autograd.gradcheck(ClipRows(1.0), (x,))
    zeros = torch.zeros(2, 3, requires_grad=True)
    clipped(zeros, 1.0).sum().backward()
    assert zeros.grad is not None
    assert torch.equal(zeros.grad, torch.ones(2, 3))


SOURCES = [SystemRandomness(), SeededRandomness(np.random.default_rng(0))]


@pytest.mark.parametrize("source", SOURCES, ids=["system", "seed"])
def test_noise_is_normal(source: Randomness) -> None:
    """Moments, tails, and independence of the pairs that are drawn together: all within 6 standard
    errors, which chance misses once in 10⁸ runs."""
    count = 200_000
    z = gaussian(source, count)
    standard_error = 1 / math.sqrt(count)
    for power, moment, spread in [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)]:
        error = 6 * math.sqrt(spread) * standard_error
        assert float((z**power).mean()) == pytest.approx(moment, abs=error)
    beyond = float((z.abs() > 1.959964).double().mean())
    assert beyond == pytest.approx(0.05, abs=6 * math.sqrt(0.05 * 0.95) * standard_error)
    half = count // 2
    together = float((z[:half] * z[half:]).mean())
    assert together == pytest.approx(0, abs=6 * math.sqrt(1 / half))
    assert gaussian(source, 3, 5).shape == (3, 5)


def test_every_number_of_an_encoding_gets_noise_and_padding_gets_none() -> None:
    source = SeededRandomness(np.random.default_rng(0))
    x = torch.zeros(2, 20_000, 3)
    out = released(x, 1.0, 2.5, [(source, 3), (source, 2)])
    assert torch.equal(out[1, :, 2], torch.zeros(20_000))
    for column in (out[0, :, 0], out[0, :, 2], out[1, :, 1]):
        assert float(column.std()) == pytest.approx(2.5, rel=0.04)  # 8 standard errors
    assert torch.equal(x, torch.zeros(2, 20_000, 3)), "the sender keeps its own"


WRONG = [
    ({"clip": 0.0, "sigma": 1.0}, "noise.clip = 0: expected a number above 0"),
    ({"clip": math.nan, "sigma": 1.0}, "noise.clip = nan"),
    ({"clip": math.inf, "sigma": 1.0}, "noise.clip = inf"),
    ({"clip": 1.0, "sigma": -1.0}, "noise.sigma = -1: expected 0 or more"),
    ({"clip": 1.0, "epsilon": 0.0}, "noise.epsilon = 0: expected a number above 0"),
    ({"clip": 1.0, "epsilon": 1.0, "delta": 1.0}, "noise.delta = 1"),
    ({"clip": 1.0, "sigma": 1.0, "delta": 0.0}, "noise.delta = 0"),
    ({"clip": 1.0, "epsilon": 1.0, "releases": 0}, "noise.releases = 0"),
    ({"clip": 1.0, "sigma": 1.0, "releases": 3}, "noise.releases"),
    ({"clip": 1.0}, "neither sigma nor epsilon"),
    ({"clip": 1.0, "sigma": 1.0, "epsilon": 1.0}, "has sigma and epsilon"),
]


@pytest.mark.parametrize(("keys", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_cannot_work_is_refused_by_its_key(keys: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Noise(**keys).check()  # pyright: ignore[reportArgumentType]
