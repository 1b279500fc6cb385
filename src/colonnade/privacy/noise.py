"""Noise on encodings: the key `noise` of a method, clipping and Gaussian noise.

A party clips each row of an encoding to the L2 norm `clip` and adds Gaussian noise of standard
deviation `sigma` to every number, before the encoding leaves. What that is worth is in
accountant.py. Noise is computed in floating point: its lowest bits are not those of an ideal
Gaussian, against which Mironov ("On significance of the least significant bits", 2012) warns.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from colonnade.common.devices import to_device
from colonnade.common.randomness import Randomness

WITHIN = 1 - 1e-6  # of the norm `clip`: rounding must not carry a clipped row beyond it


def clipped(x: Tensor, clip: float) -> Tensor:
    """Rows (the last axis) that are longer than `clip`, shortened to it. Can be differentiated: the
    gradient of a shortened row loses its part along the row, and shrinks as the row did."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float64)
    within = torch.where(norm > clip, WITHIN, 1.0)
    return x * (within * (clip / norm.clamp(min=clip))).to(x.dtype)


class ClipRows(nn.Module):
    """The last layer of an encoder whose encodings are clipped: so gradients that come back pass
    through the clipping."""

    def __init__(self, clip: float) -> None:
        super().__init__()
        self.clip = clip

    def forward(self, x: Tensor) -> Tensor:
        return clipped(x, self.clip)


def uniform(source: Randomness, *shape: int) -> Tensor:
    """Independent numbers of 53 bits, above 0, at most 1. float64"""
    return to_device(torch.from_numpy(_uniform(source, math.prod(shape)).reshape(shape)))


def _uniform(source: Randomness, count: int) -> NDArray[np.float64]:
    words = source.words(2 * count).astype(np.uint64)
    whole = (words[0::2] << np.uint64(21)) | (words[1::2] >> np.uint64(11))
    return (whole.astype(np.float64) + 1) * 2.0**-53


def gaussian(source: Randomness, *shape: int) -> Tensor:
    """Independent standard normal numbers (Box and Muller, 1958). float64"""
    count = math.prod(shape)
    pairs = -(-count // 2)
    drawn = _uniform(source, 2 * pairs)
    radius, angle = np.sqrt(-2 * np.log(drawn[:pairs])), 2 * np.pi * drawn[pairs:]
    normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    return to_device(torch.from_numpy(normal[:count].reshape(shape)))


def released(x: Tensor, clip: float, sigma: float, sources: list[tuple[Randomness, int]]) -> Tensor:
    """What may leave of encodings. x [members, rows, width]; `sources`: by member, its randomness
    and the true width of its encodings; the rest is padding. What is not a finite number leaves as
    0."""
    x = clipped(torch.nan_to_num(x.detach(), 0.0, 0.0, 0.0), clip)
    for member, (source, width) in enumerate(sources if sigma else ()):
        noise = gaussian(source, x.shape[1], width)
        x[member, :, :width] += (sigma * noise).to(x.dtype)
    return x
