"""Distance correlation, beside its definition."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from colonnade.privacy.distance_correlation import distance_correlation


def by_definition(x: Tensor, z: Tensor) -> float:
    """Székely, Rizzo and Bakirov (2007), definition 4, one number at a time."""
    rows = range(len(x))
    tables = []
    for points in (x, z):
        apart = [[float((points[i] - points[j]).norm()) for j in rows] for i in rows]
        by_row = [sum(row) / len(x) for row in apart]
        mean = sum(by_row) / len(x)
        tables.append([[apart[i][j] - by_row[i] - by_row[j] + mean for j in rows] for i in rows])

    def product(a: list[list[float]], b: list[list[float]]) -> float:
        return sum(a[i][j] * b[i][j] for i, j in itertools.product(rows, rows)) / len(x) ** 2

    a, b = tables
    return (product(a, b) / (product(a, a) * product(b, b)) ** 0.5) ** 0.5


def some(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_it_is_what_its_definition_says() -> None:
    x, z = some(0, 2, 9, 4), some(1, 2, 9, 3)
    z[1] = x[1, :, :3] ** 2
    for found, *pair in zip(distance_correlation(x, z), x, z, strict=True):
        assert float(found) == pytest.approx(by_definition(*pair), abs=1e-9)


def test_its_derivative_is_that_of_small_differences() -> None:
    x, z = some(0, 1, 7, 3), some(1, 1, 7, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: distance_correlation(x, z), z)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_that_are_equal_have_a_derivative(dtype: torch.dtype) -> None:
    """A ReLU makes many encodings zero."""
    x = some(0, 2, 8, 3).to(dtype)
    z = some(1, 2, 8, 2).to(dtype)
    z[0], z[1, :5] = 0.0, 0.0
    z.requires_grad_()
    found = distance_correlation(x, z)
    found.sum().backward()
    assert z.grad is not None
    assert bool(z.grad.isfinite().all())
    assert float(found[0].detach()) < 1e-6
    assert not z.grad[0].any()


def test_a_turned_and_scaled_copy_is_wholly_correlated() -> None:
    x = some(0, 1, 20, 3)
    turn, _ = torch.linalg.qr(some(1, 3, 3))
    assert float(distance_correlation(x, 5 * x @ turn)) == pytest.approx(1.0)
