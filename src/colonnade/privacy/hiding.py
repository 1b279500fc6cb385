"""Noise on the gradients of single rows, in three forms, that hides which class a row has.

The gradients of one class lie around a point of their own; the differences between these points
tell the labels. `shape`: the noise varies exactly as these points do, and nowhere else. `marvell`
and `max_norm` are of Li et al., 2022, "Label leakage and protection in two-party split learning":
for two classes the noise that makes their gradients hardest to tell apart for its power, with an
amount for each class (`marvell.py`); and noise along each gradient itself, by which every row is as
long, on average, as the longest.

With `shape` and `marvell`, what a gradient has in directions without noise does not leave. It tells
no class by its direction, but by its length: with noise of 16 times the variance between the
classes, the length beside the main axis told Credit Card's labels with AUC 0.95.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from colonnade.privacy.marvell import amounts
from colonnade.privacy.spec import Hide

LEAST = 0.05  # of the widest direction between the classes: narrower ones have hardly any noise


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

    def or_else(self, others: ClassPoints) -> ClassPoints:
        """With the points of others, of classes that are not known here."""
        return ClassPoints(
            torch.where(self.known[:, None], self.means, others.means),
            torch.where(self.known, self.spread, others.spread),
            self.known | others.known,
        )


def hidden(
    hide: Hide, gradient: Tensor, labels: Tensor, points: ClassPoints, share: Tensor, normal: Tensor
) -> Tensor:
    """What leaves in place of the gradients [rows, width] of these labels. `share`: of the training
    rows, by class; `normal` [rows, `Hide.numbers`]: standard normal numbers."""
    normal = normal.to(gradient.dtype)
    if hide.how == "max_norm":
        return gradient + along_itself(gradient, normal[:, 0])
    assert hide.strength is not None
    share = (share * points.known).to(gradient.dtype)
    share = share / share.sum()
    centre = share @ points.means
    axes = share.sqrt()[:, None] * (points.means - centre)  # [classes, width]
    flat = centre + (gradient - centre) @ spanned(axes)
    if hide.how == "shape":
        return flat + hide.strength**0.5 * normal @ axes
    return flat + between_two(flat, points, share, labels, normal[:, 0], hide.strength)


def spanned(axes: Tensor) -> Tensor:
    """The projection on the directions in which noise is added, [width, width]. What a gradient has
    in other directions stays behind: there its length is that of an error without noise, and tells
    the rarer class."""
    _, sizes, directions = torch.linalg.svd(axes, full_matrices=False)
    kept = directions * (sizes > LEAST * sizes.max())[:, None]
    return kept.T @ kept


def along_itself(gradient: Tensor, normal: Tensor) -> Tensor:
    """The mean square of a row's length becomes that of the longest row. [rows, width]"""
    length = gradient.norm(dim=1, keepdim=True)
    lacking = (length.max() ** 2 - length**2).clamp(min=0).sqrt()
    return normal[:, None] * lacking * F.normalize(gradient, dim=1)


def between_two(
    gradient: Tensor,
    points: ClassPoints,
    share: Tensor,
    labels: Tensor,
    normal: Tensor,
    strength: float,
) -> Tensor:
    """Marvell's, for gradients on the line between two classes: as much as is best for each class.
    [rows, width]"""
    apart = points.means[1] - points.means[0]
    distance = float(apart.norm())
    if not bool(points.known.all()) or not distance:
        return torch.zeros_like(gradient)
    line = apart / distance
    off = ((gradient - points.means[labels]) @ line).square()
    here = (off[labels == label] for label in (0, 1))
    spread = [float(one.mean() if len(one) else points.spread[k]) for k, one in enumerate(here)]
    along, _ = amounts(float(share[1]), (spread[0], spread[1]), distance**2, 1, strength)
    return (torch.tensor(along, dtype=normal.dtype).sqrt()[labels] * normal)[:, None] * line
