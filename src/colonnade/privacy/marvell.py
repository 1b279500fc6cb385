"""How much noise Marvell gives to the gradients of each of two classes (Li et al., 2022, theorem
2).

The gradients of class c have variance s_c in each of d directions; the two means are D^½ apart.
Noise of variance a_c is added along the line between the means, and b_c in each of the d − 1 other
directions. The amounts minimise the symmetrised Kullback-Leibler divergence of the two classes of
noisy gradients, taken as Gaussian, for a given mean power of the noise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

POINTS, ZOOMS = 25, 8  # of a grid in each of two unknowns, and how often it is made finer
LEAST = 1e-9  # beside the other variances: no variance is 0

Amounts = tuple[tuple[float, float], tuple[float, float]]


def divergence(along: NDArray, around: NDArray, apart: float, width: int) -> NDArray:
    """The part of the divergence that depends on the noise. `along`, `around`: the variances of the
    noisy gradients, [classes, ...]."""
    line = (along[0] + apart) / along[1] + (along[1] + apart) / along[0]
    return line + (width - 1) * (around[0] / around[1] + around[1] / around[0])


def amounts(
    share: float, spread: tuple[float, float], apart: float, width: int, strength: float
) -> Amounts:
    """(a_0, a_1), (b_0, b_1). `share`: of class 1; `apart`: D; the mean power is strength · D.

    Only the ratio of the two classes counts around the line, so that only the class with the
    smaller spread is given noise there, and at most as much as makes the two equal. What is left
    goes along the line. So two unknowns remain: how much goes around, and which part of the rest
    class 1 gets. The best point of a grid is found, and a finer grid is laid around it."""
    weight = np.array([1 - share, share])
    power, own = strength * apart, np.array(spread) + LEAST * (apart + sum(spread))
    narrow = int(own[1] < own[0])
    others = (width - 1) * weight[narrow]  # what one unit around the line costs
    most = min(abs(own[0] - own[1]), power / others) if others else 0.0
    low, high, best = np.zeros(2), np.ones(2), np.zeros(2)

    def noise(x: NDArray, y: NDArray) -> tuple[NDArray, NDArray]:
        """Along and around the line, [classes, ...]: around it, the part x of `most`; of the power
        that is left, the part y for class 1."""
        left = power - others * most * x
        line = np.stack([(1 - y) * left / weight[0], y * left / weight[1]])
        around = np.zeros_like(line)
        around[narrow] = most * x
        return line, around

    for _ in range(ZOOMS):
        x, y = np.meshgrid(*np.linspace(low, high, POINTS).T, indexing="ij")
        along, around = (own[:, None, None] + added for added in noise(x, y))
        at = np.unravel_index(divergence(along, around, apart, width).argmin(), x.shape)
        best = np.array([x[at], y[at]])
        step = 2 * (high - low) / (POINTS - 1)
        low, high = np.maximum(best - step, 0), np.minimum(best + step, 1)
    (a_0, a_1), (b_0, b_1) = (added.tolist() for added in noise(best[0], best[1]))
    return (a_0, a_1), (b_0, b_1)
