"""CVFL with convolutional bottom nets at four parties, against the plain loop over parties.

Bands of 7 × 28 pixels, batches of 64; bottoms of two 3 × 3 convolutions (16 and 32 channels) with
pooling and a linear map to 64; top net 256 → 128 → 10; SGD with momentum, clipped. A turn is a
whole training of a few rounds, from the making of the models on. The plain loop is what a
researcher writes: a module and an optimiser per party, Python loops over parties, autograd straight
through the exchange. With one active party both compute the same. With four, rounds interleave: a
bottom net has taken other steps between its embedding and its gradient, so that it computes forward
twice; the plain loop does not.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.mags import CLASSES, noise
from bench.timing import Figure, Target, Variant, against_plain_loop, largest_difference
from colonnade.algorithms.cvfl import CVFL, CVFLSettings
from colonnade.data import VerticalData
from colonnade.experiments.run import drive
from colonnade.learning.side_by_side import Order, Rows
from colonnade.learning.task import Task
from colonnade.models.layers import cnn, mlp
from colonnade.network import StackedNetwork

PARTIES, SHAPE, BATCH, WIDTH, TOP = 4, (1, 7, 28), 64, 64, 128
STEPS = 40
LR, MOMENTUM, DECAY, CLIP = 1e-2, 0.9, 1e-3, 8.0
TARGET = Target(1.3)


@cache
def data(steps: int) -> VerticalData:
    """One epoch of so many rounds, and nothing to validate on."""
    return noise(PARTIES, SHAPE, steps * BATCH, validation=0)


class Ours:
    def __init__(self, steps: int, active: int) -> None:
        settings = CVFLSettings(
            name="CVFL",
            algorithm="cvfl",
            active=active,
            encoder="cnn",
            head=[TOP],
            epochs=1,
            batch=BATCH,
            lr=LR,
            momentum=MOMENTUM,
            decay=DECAY,
            clip=CLIP,
        )
        self.algorithm = CVFL(settings, Task.of(data(steps), seed=0))
        self.net = StackedNetwork(self.algorithm.world())
        self.algorithm.join(self.net, data(steps))

    def train(self) -> None:
        drive(self.algorithm.train(self.net))

    def parameters(self) -> list[Tensor]:
        """The bottom nets', party by party, then the collaborator's top net."""
        return [
            value
            for tensors in self.algorithm.tensors(self.net).values()
            for name, value in tensors.items()
            if not name.startswith("head.")  # the active party's copy of the top net
        ]


class PlainLoop:
    def __init__(self, steps: int) -> None:
        self.bottoms = [cnn(SHAPE, WIDTH) for _ in range(PARTIES)]
        self.top = mlp([PARTIES * WIDTH, TOP, CLASSES])
        self.data, self.steps = data(steps).train, steps
        rows = torch.arange(steps * BATCH)
        self.order = Order(Rows(rows, "device0"), BATCH, 0, 0, steps)  # as ours

    def start_like(self, ours: Ours) -> None:
        with torch.no_grad():
            for mine, value in zip(self.parameters(), ours.parameters(), strict=True):
                mine.copy_(value)

    def parameters(self) -> list[Tensor]:
        return [p for model in (*self.bottoms, self.top) for p in model.parameters()]

    def train(self) -> None:
        bottoms = [sgd(model, weight_decay=DECAY) for model in self.bottoms]
        optimizers = [*bottoms, sgd(self.top)]
        for step in range(self.steps):
            rows = self.order[step].rows
            parts = zip(self.bottoms, self.data.x, strict=True)
            h = torch.cat([bottom(x[rows]) for bottom, x in parts], 1)
            loss = F.cross_entropy(self.top(h), self.data.y[rows])
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for model in (*self.bottoms, self.top):
                nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            for optimizer in optimizers:
                optimizer.step()


def sgd(model: nn.Module, **more: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM, **more)


def difference(steps: int) -> float:
    """Between the two after a turn, from the same weights and with the same batches."""
    ours = Ours(steps, active=1)
    loop = PlainLoop(steps)
    loop.start_like(ours)
    ours.train()
    loop.train()
    return largest_difference(ours.parameters(), loop.parameters())


def run() -> list[Figure]:
    one, four = "one active party", "four active parties"
    return against_plain_loop(
        "cvfl",
        Variant(lambda steps: PlainLoop(steps).train(), STEPS),
        {
            one: Variant(lambda steps: Ours(steps, 1).train(), STEPS),
            four: Variant(lambda steps: Ours(steps, PARTIES).train(), STEPS),
        },
        {one: difference(STEPS), four: None},
        {one: TARGET, four: TARGET},
    )
