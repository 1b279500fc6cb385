"""CVFL with convolutional bottom nets at four parties, against the plain loop over parties.

Bands of 7 × 28 pixels, batches of 64; bottoms of two 3 × 3 convolutions (16 and 32 channels) with
pooling and a linear map to 64; top net 256 → 128 → 10; SGD with momentum, clipped. A turn is a
whole training of a few rounds, from the making of the models on. The plain loop is what a
researcher writes: a module and an optimiser per party, Python loops over parties, autograd straight
through the exchange. With one active party both compute the same. With four, rounds interleave: a
bottom net has taken other steps between its embedding and its gradient, so that it computes forward
twice. The plain loop does not: it is no asynchronous method. The interleaved loop is: it takes the
steps of four active parties in the order in which they come, and computes what ours does.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
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
            optimizer="sgd",
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


@cache
def programs(steps: int) -> list[Rows]:
    """The rows of each of four active parties."""
    return Ours(steps, PARTIES).algorithm.programs


class InterleavedLoop(PlainLoop):
    """Four active parties: whenever a bottom net takes a step, three others lie between the
    embedding and its gradient, so autograd could not go through the exchange."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.orders = [Order(rows, BATCH, 0, 0, steps) for rows in programs(steps)]
        self.bottom_sgd = [sgd(model, weight_decay=DECAY) for model in self.bottoms]

    def train(self) -> None:
        copies, top_sgd = [deepcopy(self.top) for _ in self.orders], sgd(self.top)
        laps = self.steps // len(self.orders)
        if not laps:
            return
        h = [self.embeddings(order[0].rows) for order in self.orders]
        for lap in range(laps):
            to_embeddings = []
            found = [
                derivatives(copy, h[k], self.data.y[order[lap].rows])
                for k, (copy, order) in enumerate(zip(copies, self.orders, strict=True))
            ]
            for copy, (top, gradient) in zip(copies, found, strict=True):
                step(self.top, top_sgd, top)
                copy.load_state_dict(self.top.state_dict())
                to_embeddings.append(gradient)
            for k, order in enumerate(self.orders):
                self.step_bottoms(order[lap].rows, to_embeddings[k])
                if lap + 1 < laps:
                    h[k] = self.embeddings(order[lap + 1].rows)

    @torch.no_grad()
    def embeddings(self, rows: Tensor) -> Tensor:
        parts = zip(self.bottoms, self.data.x, strict=True)
        return torch.cat([bottom(x[rows]) for bottom, x in parts], 1)

    def step_bottoms(self, rows: Tensor, gradient: Tensor) -> None:
        shares = gradient.split(WIDTH, 1)
        for m, (bottom, share) in enumerate(zip(self.bottoms, shares, strict=True)):
            out = bottom(self.data.x[m][rows])
            found = torch.autograd.grad(out, list(bottom.parameters()), share)
            step(bottom, self.bottom_sgd[m], found)


def derivatives(top: nn.Module, h: Tensor, y: Tensor) -> tuple[Sequence[Tensor], Tensor]:
    """Of the loss: with respect to the top net, and to the embeddings."""
    h = h.detach().requires_grad_()
    loss = F.cross_entropy(top(h), y)
    *found, to_input = torch.autograd.grad(loss, [*top.parameters(), h])
    return found, to_input


def step(model: nn.Module, optimizer: torch.optim.Optimizer, found: Sequence[Tensor]) -> None:
    for parameter, gradient in zip(model.parameters(), found, strict=True):
        parameter.grad = gradient
    nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()


def sgd(model: nn.Module, **more: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM, **more)


def difference(steps: int, active: int) -> float:
    """Between the two after a turn, from the same weights and with the same batches."""
    ours = Ours(steps, active)
    loop = PlainLoop(steps) if active == 1 else InterleavedLoop(steps)
    loop.start_like(ours)
    ours.train()
    loop.train()
    return largest_difference(ours.parameters(), loop.parameters())


def run() -> list[Figure]:
    one, four = "one active party", "four active parties"
    trains = Variant(lambda steps: Ours(steps, PARTIES).train(), STEPS)
    return [
        *against_plain_loop(
            "cvfl",
            Variant(lambda steps: PlainLoop(steps).train(), STEPS),
            {one: Variant(lambda steps: Ours(steps, 1).train(), STEPS), four: trains},
            {one: difference(STEPS, 1), four: None},
            {one: TARGET, four: TARGET},
        ),
        *against_plain_loop(
            "cvfl interleaved",
            Variant(lambda steps: InterleavedLoop(steps).train(), STEPS),
            {four: trains},
            {four: difference(STEPS, PARTIES)},
            {four: TARGET},
        ),
    ]
