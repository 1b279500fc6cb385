"""Whether one method is ahead of another, or only seems to be.

Methods share seeds: with the same seed they see the same rows and batches, and their faults are
drawn from the same stream. So figures are compared seed by seed. Whether the intervals of two means
overlap says little: with 80, 85, 90 against 81, 86, 91 the second is ahead at every seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Literal

# clear: the 95 % interval of the mean difference does not hold 0. every seed: all differences have
# the same sign, but with so few seeds that may be chance. one seed: nothing is known about chance.
# chance: the sign changes with the seed, or there is no difference.
Certainty = Literal["clear", "every seed", "one seed", "chance"]

NORMAL = 1.959964  # Student's t for many degrees of freedom
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)  # for 1 to 10


def certainty(differences: Sequence[float]) -> Certainty:
    """How certain a difference between two methods is. `differences`: one per seed that both
    have."""
    if not any(differences):
        return "chance"
    if len(differences) == 1:
        return "one seed"
    if abs(fmean(differences)) > (half_width(differences) or 0.0):
        return "clear"
    same_sign = min(differences) > 0 or max(differences) < 0
    return "every seed" if same_sign else "chance"


def half_width(values: Sequence[float]) -> float | None:
    """Of the 95 % interval of the mean; None where one seed says nothing about it."""
    if len(values) < 2:
        return None
    return _student(len(values) - 1) * stdev(values) / sqrt(len(values))


def _student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t distribution."""
    if freedom <= len(STUDENT):
        return STUDENT[freedom - 1]
    z = NORMAL
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2
