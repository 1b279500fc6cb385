"""The CNN clients of table 1: one to three convolutions on a quarter of a square image."""

from __future__ import annotations

from functools import partial
from math import isqrt

from torch import nn

CHANNELS = (16, 32, 64)
WIDTH = 64  # of the embedding, as of all other clients
LOWEST = 4  # rows of a band that is worth pooling


def convolutions(layers: int, width: int) -> nn.Sequential:
    """For a band of `width` pixels, a fourth of an image's rows: 3×3 convolutions, pooling after
    the first, and a linear map."""
    side = isqrt(4 * width)
    rows, pool = side // 4, 2 if side // 4 >= LOWEST else 1
    made: list[nn.Module] = [nn.Unflatten(1, (1, rows, side))]
    before = 1
    for layer, channels in enumerate(CHANNELS[:layers]):
        made += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU()]
        made += [nn.MaxPool2d(pool)] if layer == 0 else []
        before = channels
    pixels = (rows // pool) * (side // pool)
    return nn.Sequential(*made, nn.Flatten(), nn.Linear(before * pixels, WIDTH), nn.ReLU())


one, two, three = (partial(convolutions, layers) for layers in (1, 2, 3))
