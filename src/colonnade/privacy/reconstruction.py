"""Attacks of a curious receiver on columns: they are regressed on what was received, with few known
rows, by ridge regression or by a small network.

All of them give R² of the columns of unknown rows, over all columns together by the share of their
variance. 0 is what the means of the columns give; never below, as an attacker can fall back on the
means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Loss = Callable[..., Any]  # of arrays of weights: the value, and its slope along each of them

KNOWN_ROWS = 0.01  # share of all training rows whose columns the attacker knows
LEAST_KNOWN = 20
RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)  # tried on a fifth of the known rows
HIDDEN = 64  # units of the network
DECAY = 10.0  # of its weights; with 1.0, R² on MNIST is lower by 0.1, on Credit Card the same
NETWORK_STEPS = 30  # with 100, R² is 0.01 higher at most, and up to 0.1 lower


def known_count(training_rows: int, seen: int) -> int:
    """How many of the rows that an attack looks at are known: 1 % of all training rows, but at most
    half of those that it looks at."""
    return min(max(LEAST_KNOWN, round(KNOWN_ROWS * training_rows)), seen // 2)


def reconstruction(seen: Floats, columns: Floats, known: int, *, network: bool = False) -> float:
    """R² of the columns of rows that are not known: all but the first `known`."""
    how = _network if network else ridge_regression
    return explained(how(seen[:known], columns[:known], seen[known:]), columns[known:])


def class_means(labels: Rows, columns: Floats) -> float:
    """R² of an attacker that knows all labels and the mean columns of each class, and nothing
    else."""
    told = np.zeros_like(columns)
    for label in np.unique(labels):
        told[labels == label] = columns[labels == label].mean(0)
    return explained(told, columns)


def explained(told: Floats, truth: Floats) -> float:
    return max(0.0, _r2(told, truth))


def ridge_regression(x: Floats, y: Floats, new: Floats) -> Floats:
    """With the strength that does best on a fifth of the known rows."""
    cut = max(1, len(x) // 5)
    tried = Ridge(x[cut:], y[cut:], x[:cut])
    best = max(RIDGES, key=lambda strength: _r2(tried.told(strength), y[:cut]))
    return Ridge(x, y, new).told(best)


class Ridge:
    """Ridge regression of known rows, applied to new rows, for any strength: one decomposition, of
    numbers or of known rows, whichever are fewer."""

    def __init__(self, x: Floats, y: Floats, new: Floats) -> None:
        a, b = (part / np.sqrt(x.shape[1]) for part in standardised(x, new))
        self.mean = y.mean(0)
        left, right = (b, a.T @ (y - self.mean))
        if len(a) < a.shape[1]:
            left, right = (b @ a.T, y - self.mean)
        products = a @ a.T if len(a) < a.shape[1] else a.T @ a
        self._values, directions = np.linalg.eigh(products)
        self._left, self._right = left @ directions, directions.T @ right

    def told(self, strength: float) -> Floats:
        return self.mean + self._left @ (self._right / (self._values + strength)[:, None])


def standardised(known: Floats, new: Floats) -> tuple[Floats, Floats]:
    """By the mean and the spread of the known rows. A number that hardly differs between them, such
    as that of a unit which is off in nearly all rows, may be large in new rows: its spread counts
    as a twentieth of the largest. (Without that, R² on MNIST was 0 for one client of four.)"""
    centre, spread = known.mean(0), known.std(0)
    spread = np.maximum(spread, 0.05 * spread.max(initial=0.0) + 1e-12)
    return (known - centre) / spread, (new - centre) / spread


def _network(x: Floats, y: Floats, new: Floats) -> Floats:
    """With one hidden layer. (That of scikit-learn takes three times as long with few rows.)"""
    a, b = standardised(x, new)
    mean, scale = y.mean(0), y.std() + 1e-12  # one scale: R² counts columns by their variance
    # Loss and penalty are the same in a basis of what the known columns span, which has fewer axes
    # than there are columns where few rows are known.
    truth = (y - mean) / scale
    basis = np.linalg.svd(truth, full_matrices=False)[2]
    truth, shapes = truth @ basis.T, ((a.shape[1] + 1, HIDDEN), (HIDDEN + 1, len(basis)))
    a, b = (np.concatenate([part, np.ones((len(part), 1))], 1) for part in (a, b))

    def loss(first: Floats, second: Floats) -> tuple[float, Floats, Floats]:
        hidden = np.maximum(a @ first, 0.0)
        wrong = hidden @ second[:-1] + second[-1] - truth
        back = (wrong @ second[:-1].T) * (hidden > 0)
        slopes = a.T @ back, np.concatenate([hidden.T @ wrong, wrong.sum(0)[None]])
        value = 0.5 * (wrong**2).sum()
        for slope, weights in zip(slopes, (first, second), strict=True):
            slope[:-1] += DECAY * weights[:-1]
            value += 0.5 * DECAY * (weights[:-1] ** 2).sum()
        return float(value), *slopes

    random = np.random.default_rng(0)
    start = [random.uniform(-1, 1, shape) * np.sqrt(6 / sum(shape)) for shape in shapes]
    first, second = minimised(loss, start, NETWORK_STEPS)
    return mean + scale * (np.maximum(b @ first, 0.0) @ second[:-1] + second[-1]) @ basis


def minimised(
    loss: Loss, start: Sequence[Floats], steps: int, tolerance: float = 1e-4
) -> list[Floats]:
    """The weights where a loss is least, by L-BFGS. `tolerance`: of the largest slope."""
    from scipy.optimize import minimize

    cuts = np.cumsum([part.size for part in start])[:-1]
    split = lambda flat: [  # noqa: E731
        part.reshape(one.shape) for part, one in zip(np.split(flat, cuts), start, strict=True)
    ]

    def flat_loss(flat: Floats) -> tuple[float, Floats]:
        value, *slopes = loss(*split(flat))
        return value, np.concatenate([slope.ravel() for slope in slopes])

    options = {"maxiter": steps, "gtol": tolerance}
    flat = np.concatenate([part.ravel() for part in start])
    return split(minimize(flat_loss, flat, jac=True, method="L-BFGS-B", options=options).x)


def _r2(told: Floats, truth: Floats) -> float:
    left, whole = ((truth - told) ** 2).sum(), ((truth - truth.mean(0)) ** 2).sum()
    return float(1.0 - left / whole) if whole > 0 else 0.0
