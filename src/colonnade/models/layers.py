"""Model factories and losses. A loss maps [members, rows, width] and a target to one value per
member."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Loss = Callable[[Tensor, Tensor], Tensor]


def mlp(
    widths: Sequence[int],
    *,
    hidden: Callable[[], nn.Module] = nn.LeakyReLU,
    last: Callable[[], nn.Module] | None = None,
) -> nn.Sequential:
    """Linear layers from widths[0] to widths[-1]; `last` is the activation of the last one, if
    any."""
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(pairwise(widths)):
        layers.append(nn.Linear(inputs, outputs))
        if i < len(widths) - 2:
            layers.append(hidden())
    if last is not None:
        layers.append(last())
    return nn.Sequential(*layers)


def cnn(shape: tuple[int, ...], width: int) -> nn.Sequential:
    """Two 3×3 convolutions of 16 and 32 channels with pooling, then a linear map to `width`."""
    channels, height, breadth = shape
    pools = [2 if min(height, breadth) >= 4 else 1, 2 if min(height, breadth) >= 8 else 1]
    size = (height // pools[0] // pools[1]) * (breadth // pools[0] // pools[1])
    return nn.Sequential(
        nn.Unflatten(1, (channels, height, breadth)),
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(pools[0]),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(pools[1]),
        nn.Flatten(),
        nn.Linear(32 * size, width),
        nn.ReLU(),
    )


def output_width(module: nn.Module, inputs: int) -> int:
    """The width of what a module gives for rows of `inputs` numbers."""
    was_training = module.training
    module.eval()
    with torch.no_grad():
        width = module(torch.zeros(2, inputs)).shape[-1]
    module.train(was_training)
    return width


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over rows, per member. logits [members, rows, classes], labels [rows] → [members]"""
    members, rows, classes = logits.shape
    target = labels.expand(members, rows).reshape(-1)
    losses = F.cross_entropy(logits.reshape(-1, classes), target, reduction="none")
    return losses.view(members, rows).mean(1)


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    """Mean squared error per member. Both [members, rows, width] → [members]"""
    return (output - target).square().mean((1, 2))
