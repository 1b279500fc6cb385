"""Forms of noise that hide the classes of gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from colonnade.common.randomness import SeededRandomness
from colonnade.common.seeds import numpy_stream
from colonnade.privacy.hiding import ClassPoints, hidden
from colonnade.privacy.marvell import LEAST, amounts, divergence
from colonnade.privacy.noise import gaussian
from colonnade.privacy.spec import Hide

ROWS, WIDTH = 40_000, 5
MARVELL = Hide(how="marvell", strength=3.0)


def gradients(classes: int) -> tuple[Tensor, Tensor]:
    """Of classes of unequal size and unequal spread, and their labels."""
    stream = torch.Generator().manual_seed(0)
    labels = torch.randint(classes + 2, (ROWS,), generator=stream).clamp(max=classes - 1)
    points = torch.randn(classes, WIDTH, generator=stream, dtype=torch.float64)
    around = torch.randn(ROWS, WIDTH, generator=stream, dtype=torch.float64)
    return points[labels] + (0.2 + 0.2 * labels[:, None]) * around, labels


def left(hide: Hide, gradient: Tensor, labels: Tensor) -> Tensor:
    classes = int(labels.max()) + 1
    source = SeededRandomness(numpy_stream(0, "test"))
    normal = gaussian(source, len(labels), hide.numbers(classes))
    points = ClassPoints.of(gradient, labels, classes)
    return hidden(hide, gradient, labels, points, torch.bincount(labels).double(), normal)


def test_shaped_noise_varies_as_the_classes_do_and_nowhere_else() -> None:
    """Its covariance is that between the classes."""
    gradient, labels = gradients(3)
    share = torch.bincount(labels) / len(labels)
    means = torch.stack([gradient[labels == c].mean(0) for c in range(3)]) - gradient.mean(0)
    between = (share[:, None] * means).T @ means
    added = left(Hide(strength=1.0), gradient, labels) - left(Hide(strength=0.0), gradient, labels)
    assert torch.allclose(torch.cov(added.T), between, atol=0.05)


@pytest.mark.parametrize(
    ("hide", "classes"), [(Hide(strength=4.0), 2), (Hide(strength=4.0), 3), (MARVELL, 2)]
)
def test_nothing_leaves_in_directions_without_noise(hide: Hide, classes: int) -> None:
    """There the length of a gradient would tell its class."""
    gradient, labels = gradients(classes)
    means = torch.stack([gradient[labels == c].mean(0) for c in range(classes)])
    told = left(hide, gradient, labels) - means[0]
    line = torch.linalg.qr((means[1:] - means[0]).T).Q
    assert (told - told @ line @ line.T).norm(dim=1).max() < 1e-9
    assert (told @ line).std(0).min() > 0.5, "and in the others there is noise"


def test_where_only_one_class_is_known_all_rows_leave_alike() -> None:
    gradient, labels = gradients(2)
    gradient, labels = gradient[labels == 0], labels[labels == 0]
    points = ClassPoints.of(gradient, labels, 2)
    share, normal = torch.tensor([0.5, 0.5]), torch.ones(len(gradient), 2)
    for hide in (Hide(strength=4.0), MARVELL):
        told = hidden(hide, gradient, labels, points, share, normal[:, : hide.numbers(2)])
        assert torch.allclose(told, points.means[0].expand_as(told))


def test_with_max_norm_all_rows_are_as_long_on_average_as_the_longest() -> None:
    gradient, labels = gradients(2)
    gradient = gradient[:2].repeat(ROWS // 2, 1)  # a short row and a long one, many times
    squares = left(Hide(how="max_norm"), gradient, labels).square().sum(1).view(-1, 2).mean(0)
    assert squares == pytest.approx(gradient.square().sum(1).max().expand(2), rel=0.05)


def test_marvell_has_the_power_that_was_asked_for() -> None:
    gradient, labels = gradients(2)
    apart = gradient[labels == 1].mean(0) - gradient[labels == 0].mean(0)
    added = left(MARVELL, gradient, labels) - left(Hide(strength=0.0), gradient, labels)
    assert float(added.square().sum(1).mean()) == pytest.approx(3 * float(apart @ apart), rel=0.05)


def random_cases() -> list[tuple[float, tuple[float, float], float, int, float]]:
    stream = np.random.default_rng(0)
    return [
        (
            float(stream.uniform(0.02, 0.6)),
            (float(10 ** stream.uniform(-3, 1)), float(10 ** stream.uniform(-3, 1))),
            float(10 ** stream.uniform(-2, 1)),
            int(stream.integers(1, 40)),
            float(10 ** stream.uniform(-1, 1.5)),
        )
        for _ in range(12)
    ]


@pytest.mark.parametrize("case", random_cases(), ids=lambda case: f"{case[0]:.2f}")
def test_no_other_amounts_of_the_same_power_tell_less(
    case: tuple[float, tuple[float, float], float, int, float],
) -> None:
    """Against a general solver of all four unknowns, from several beginnings."""
    share, spread, apart, width, strength = case
    weight = np.array([1 - share, share])
    cost = np.concatenate([weight, (width - 1) * weight])
    own = np.tile(np.array(spread) + LEAST * (apart + sum(spread)), 2)

    def told(noise: np.ndarray) -> float:
        variances = own + noise * strength * apart
        return float(divergence(variances[:2], variances[2:], apart, width))

    mine = np.array(amounts(*case)).ravel() / (strength * apart)
    assert (mine >= 0).all()
    assert cost @ mine == pytest.approx(1.0)
    within = {"type": "ineq", "fun": lambda noise: 1 - cost @ noise}
    stream = np.random.default_rng(1)
    for _ in range(4):
        begin = stream.dirichlet(np.ones(4)) / np.maximum(cost, 1e-3)
        begin /= max(1.0, cost @ begin)
        found = minimize(told, begin, bounds=[(0, None)] * 4, constraints=within, method="SLSQP")
        if cost @ found.x <= 1 + 1e-6 and (found.x >= 0).all():
            assert told(mine) <= told(found.x) * (1 + 1e-4)
