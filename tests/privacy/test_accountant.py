"""ε by the closed form, against dp-accounting's accountants and against samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.privacy import accountant


@pytest.mark.parametrize(("multiplier", "releases"), [(1.0, 1), (2.0, 7), (5.0, 60)])
def test_the_closed_form_and_privacy_loss_distributions_agree(
    multiplier: float, releases: int
) -> None:
    exact = accountant.epsilon(multiplier, releases, 1e-5)
    assert accountant.by_pld(multiplier, releases, 1e-5) == pytest.approx(exact, rel=0.01)
    bound = accountant.by_rdp(multiplier, releases, 1e-5)
    assert exact < bound < 1.25 * exact


@pytest.mark.parametrize(("epsilon", "multiplier"), [(0.5, 1.0), (1.0, 0.7)])
def test_delta_is_what_samples_of_two_neighbouring_releases_say(
    epsilon: float, multiplier: float
) -> None:
    """δ(ε) is the expected part of the first density above e^ε times the second."""
    stream = np.random.default_rng(0)
    sample = stream.normal(1.0, multiplier, 400_000)  # the neighbour releases around 0
    loss = (2 * sample - 1) / (2 * multiplier**2)
    found = np.maximum(0, 1 - np.exp(epsilon - loss)).mean()
    assert accountant.delta(epsilon, multiplier) == pytest.approx(found, rel=0.02)


@given(st.floats(0.05, 50), st.integers(1, 5000), st.integers(1, 5000), st.floats(1e-12, 0.1))
@settings(deadline=None, max_examples=40)
def test_epsilon_grows_with_the_releases_of_a_row(
    multiplier: float, one: int, other: int, delta: float
) -> None:
    fewer, more = sorted((one, other))
    low = accountant.epsilon(multiplier, fewer, delta)
    assert low <= accountant.epsilon(multiplier, more, delta) < math.inf


@given(st.floats(0.05, 500), st.floats(1e-12, 0.1), st.integers(1, 1000))
@settings(deadline=None, max_examples=40)
def test_the_noise_for_an_epsilon_is_worth_that_epsilon(
    epsilon: float, delta: float, releases: int
) -> None:
    multiplier = accountant.multiplier_for(epsilon, delta, releases)
    found = accountant.epsilon(multiplier, releases, delta)
    assert found == pytest.approx(epsilon, rel=1e-4)
    assert found <= epsilon * (1 + 1e-9)


def test_nothing_is_spent_without_a_release_and_everything_without_noise() -> None:
    assert accountant.epsilon(1.0, 0, 1e-5) == 0
    assert accountant.epsilon(0.0, 1, 1e-5) == math.inf


def test_replacing_a_row_may_move_its_encoding_by_twice_the_clip() -> None:
    assert accountant.multiplier(clip=3.0, sigma=6.0) == 1.0
