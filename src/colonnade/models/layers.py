"""Model factories and losses. A loss maps [members, rows, width] and a target to one value per
member."""

from __future__ import annotations

import math
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


class Powers(nn.Module):
    """[x, 1, x², 1, …]: each power of the columns, with a column of ones for the bias. `clip`:
    columns are clipped to ±clip first."""

    def __init__(self, degree: int, clip: float | None = None) -> None:
        super().__init__()
        self.degree, self.clip = degree, clip

    def forward(self, x: Tensor) -> Tensor:
        if self.clip is not None:
            x = x.clamp(-self.clip, self.clip)
        x = torch.cat([x, torch.ones_like(x[..., :1])], -1)
        return torch.cat([x**d for d in range(1, self.degree + 1)], -1)


def polynomial(
    inputs: int, outputs: int, degree: int, parties: float = 1, clip: float | None = None
) -> nn.Sequential:
    """Linear in the powers of the columns. Its initial weights are √parties times the usual ones,
    so that the mean over the outputs of so many parties has the usual variance."""
    layer = nn.Linear(degree * (inputs + 1), outputs, bias=False)
    with torch.no_grad():
        layer.weight *= math.sqrt(parties)
    return nn.Sequential(Powers(degree, clip), layer)


class WeightedSum(nn.Module):
    """Takes embeddings of one width side by side, and gives their sum, each times its learnt
    weight."""

    def __init__(self, parties: int, begin: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((parties,), begin))

    def forward(self, x: Tensor) -> Tensor:
        parts = x.unflatten(-1, (len(self.weight), -1))
        return (self.weight[:, None] * parts).sum(-2)


class Joined(nn.Module):
    """A module whose input is the messages of several senders side by side, and then one flag per
    sender: 1 if its message came, else 0."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.width = sum(widths)
        self.sender = torch.arange(len(widths)).repeat_interleave(torch.tensor(widths))

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The values, and for each value the flag of its sender."""
        return x[..., : self.width], x[..., self.width :][..., self.sender]


class Centre(Joined):
    """Shifts values to mean 0 and divides them by one common scale; 0 where none came. The flags
    stay."""

    mean: Tensor
    scale: Tensor

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__(widths)
        self.register_buffer("mean", torch.zeros(self.width))
        self.register_buffer("scale", torch.ones(1))

    @staticmethod
    def of(values: Tensor) -> dict[str, Tensor]:
        """Mean by feature and one scale of [rows, width], as the state of this layer."""
        mean = values.mean(0)
        return {"mean": mean, "scale": (values - mean).square().mean().sqrt()[None].clamp(min=1e-6)}

    def forward(self, x: Tensor) -> Tensor:
        values, came = self.parts(x)
        return torch.cat([(values - self.mean) / self.scale * came, x[..., self.width :]], -1)


class Placeholders(Joined):
    """Puts a learnt value where none came; its input must be zero there."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__(widths)
        self.value = nn.Parameter(torch.zeros(self.width))

    def forward(self, x: Tensor) -> Tensor:
        values, came = self.parts(x)
        return values + self.value * (1 - came)


class Slots(nn.Module):
    """Takes for each sender its message and then a flag: 1 if the message came, else zeros and 0.
    Puts `value` where none came: a parameter that is learnt, or a buffer for the mean of what
    came."""

    value: Tensor

    def __init__(self, senders: int, width: int, *, learnt: bool) -> None:
        super().__init__()
        self.senders, self.width = senders, width
        if learnt:
            self.value = nn.Parameter(torch.zeros(senders, width))
        else:
            self.register_buffer("value", torch.zeros(senders, width))

    def forward(self, x: Tensor) -> Tensor:
        parts = x.unflatten(-1, (self.senders, self.width + 1))
        return (parts[..., :-1] + self.value * (1 - parts[..., -1:])).flatten(-2)


class Committee(nn.Module):
    """The mean of several perceptrons."""

    def __init__(self, inputs: int, outputs: int, perceptrons: int) -> None:
        super().__init__()
        self.perceptrons = perceptrons
        self.linear = nn.Linear(inputs, perceptrons * outputs)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x)).unflatten(-1, (self.perceptrons, -1)).mean(-2)


def output_width(module: nn.Module, inputs: int) -> int:
    """The width of a module's output for rows of `inputs` numbers."""
    was_training = module.training
    module.eval()
    with torch.no_grad():
        width = module(torch.zeros(2, inputs, device="cpu")).shape[-1]
    module.train(was_training)
    return width


def cross_entropy(logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean over rows, per member, each row weighted by its class. logits [members, rows, classes],
    labels [rows], weights [classes] → [members]"""
    members, rows, classes = logits.shape
    target = labels.expand(members, rows).reshape(-1)
    losses = F.cross_entropy(logits.reshape(-1, classes), target, weight=weights, reduction="none")
    return losses.view(members, rows).mean(1)


def evidence_loss(logits: Tensor, evidence: Tensor) -> Tensor:
    """Minus the logarithm of how likely noisy labels are, mean over rows, per member. logits
    [members, rows, classes], evidence [rows, classes]: the same by class → [members]"""
    return -(logits.log_softmax(-1) + evidence).logsumexp(-1).mean(1)


def number_error(outputs: Tensor, labels: Tensor) -> Tensor:
    """Mean squared error per member. outputs [members, rows, 1], labels [rows] → [members]"""
    return (outputs[..., 0] - labels).square().mean(1)


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    """Mean squared error per member. Both [members, rows, width] → [members]"""
    return (output - target).square().mean((1, 2))
