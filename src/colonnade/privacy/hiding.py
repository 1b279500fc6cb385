"""Noise on the gradients of single rows, in three forms, that hides which class a row has.

The gradients of one class lie around a point of their own; the differences between these points
tell the labels. `shape`: the noise varies exactly as these points do, and nowhere else. `marvell`
and `max_norm` are of Li et al., 2022, "Label leakage and protection in two-party split learning":
for two classes the noise that makes their gradients hardest to tell apart for its power, with an
amount for each class (`marvell.py`); and noise along each gradient itself, by which every row is as
long, on average, as the longest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from colonnade.privacy.marvell import amounts
from colonnade.privacy.spec import Hide


@dataclass(frozen=True)
class ClassPoints:
    """Where the gradients of each class lie."""

    means: Tensor  # [classes, width]
    spread: Tensor  # the variance of one number within a class [classes]
    known: Tensor  # whether there was any gradient of the class [classes] bool

    @classmethod
    def of(cls, gradient: Tensor, labels: Tensor, classes: int) -> ClassPoints:
        """gradient [rows, width], labels [rows]"""
        members = F.one_hot(labels, classes).to(gradient.dtype)  # [rows, classes]
        count = members.sum(0)
        means = members.T @ gradient / count.clamp(min=1)[:, None]
        within = (gradient - means[labels]).square().mean(1)
        return cls(means, members.T @ within / count.clamp(min=1), count > 0)

    def or_before(self, before: ClassPoints | None) -> ClassPoints:
        """With the points as they were, of classes of which there is no gradient now: without, a
        batch in which a rare class is missing would leave without noise."""
        if before is None:
            return self
        return ClassPoints(
            torch.where(self.known[:, None], self.means, before.means),
            torch.where(self.known, self.spread, before.spread),
            self.known | before.known,
        )


def noise(
    hide: Hide, gradient: Tensor, labels: Tensor, points: ClassPoints, share: Tensor, normal: Tensor
) -> Tensor:
    """What is added to gradients [rows, width] of these labels. `share`: of the training rows, by
    class; `normal` [rows, `Hide.numbers`]: standard normal numbers."""
    normal = normal.to(gradient.dtype)
    if hide.how == "max_norm":
        return along_itself(gradient, normal[:, 0])
    assert hide.strength is not None
    share = (share * points.known).to(gradient.dtype)
    share = share / share.sum()
    if hide.how == "shape":
        return hide.strength**0.5 * shaped(points, share, normal)
    return by_class(points, share, labels, normal, hide.strength)


def shaped(points: ClassPoints, share: Tensor, normal: Tensor) -> Tensor:
    """Its covariance is that between the classes. [rows, width]"""
    centre = share @ points.means
    return normal @ (share.sqrt()[:, None] * (points.means - centre))


def along_itself(gradient: Tensor, normal: Tensor) -> Tensor:
    """The mean square of a row's length becomes that of the longest row. [rows, width]"""
    length = gradient.norm(dim=1, keepdim=True)
    lacking = (length.max() ** 2 - length**2).clamp(min=0).sqrt()
    return normal[:, None] * lacking * F.normalize(gradient, dim=1)


def by_class(
    points: ClassPoints, share: Tensor, labels: Tensor, normal: Tensor, strength: float
) -> Tensor:
    """Marvell's: along the line between the two classes, and around it, as much as is best for each
    class. [rows, width]"""
    width, apart = points.means.shape[1], points.means[1] - points.means[0]
    normal = normal[:, : 1 + width]
    distance = float(apart.norm())
    if not bool(points.known.all()) or not distance:
        return torch.zeros_like(normal[:, 1:])
    found = amounts(float(share[1]), tuple(points.spread.tolist()), distance**2, width, strength)
    along, around = torch.tensor(found, dtype=normal.dtype).sqrt()  # [classes] each
    line, rest = apart / distance, normal[:, 1:]
    rest = rest - (rest @ line)[:, None] * line
    return along[labels, None] * normal[:, :1] * line + around[labels, None] * rest
