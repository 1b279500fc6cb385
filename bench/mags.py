"""MAGS on images of MNIST's size: 16 devices of 49 pixels, each linked to each, all aggregators.

`MVFL`, and `CD-MVFL`, which leaves out 30 % of the messages. The plain loop is what a researcher
writes: two modules and one Adam per device, Python loops over devices, autograd straight through
the exchange. `algorithm = "mags"` computes the same, with every message explicit and counted. The
pixels are random, as many as in the paper: 48,000 rows, and 12,000 for validation after each epoch.
"""

from __future__ import annotations

from math import prod
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.pausing import PausingNetwork, Training, pauses
from bench.timing import (
    Figure,
    Measure,
    Spread,
    Target,
    Variant,
    against_plain_loop,
    largest_difference,
    take_turns,
)
from colonnade.algorithms.mags import MAGS, MAGSSettings
from colonnade.algorithms.mags_names import DROPOUT
from colonnade.common.seeds import torch_stream
from colonnade.data import VerticalData
from colonnade.data.partition import Rows
from colonnade.experiments.run import drive
from colonnade.learning.gossip import Gossip
from colonnade.learning.task import Holding, Task
from colonnade.models import mlp
from colonnade.network import Topology

DEVICES, SHAPE, CLASSES, BATCH = 16, (1, 7, 7), 10, 64
ROWS, VALIDATION, EPOCHS = 48_000, 12_000, 100
DOUBLE_STEPS = 20  # compared in double precision
# Compared in single precision: later, a unit within rounding of zero may be on here and off there,
# and Adam makes whole steps of it (2e-3 after 20 steps, where double precision differs by 4e-14).
SINGLE_STEPS = 5
TARGETS = {"eager": Target(6.0), "compiled": Target(6.0)}
MINUTES = Target(4.0, at_least=False)


def noise(devices: int, shape: tuple[int, ...], rows: int, validation: int = 1) -> VerticalData:
    """Random pixels, so many for each device."""
    stream = torch_stream(0, "pixels")

    def some(count: int) -> Rows:
        x = torch.rand(devices, count, prod(shape), generator=stream)
        return Rows(tuple(x), torch.randint(CLASSES, (count,), generator=stream))

    names = tuple(f"device{i}" for i in range(devices))
    parts = some(rows), some(validation), some(1)
    return VerticalData("noise", names, CLASSES, (shape,) * devices, *parts)


class Ours:
    """A training that goes on by a few rounds at a time."""

    def __init__(
        self,
        data: VerticalData,
        *,
        held: Holding | None = None,
        topology: Topology | None = None,
        **settings: Any,
    ) -> None:
        """`held`: the same data, where another training holds them already."""
        chosen = MAGSSettings(name="MAGS", algorithm="mags", **settings)
        self.algorithm = MAGS(chosen, Task.of(data, seed=0))
        self.net = PausingNetwork(self.algorithm.world(topology=topology or Topology()))
        if held is None:
            self.algorithm.join(self.net, data)
        else:
            self.algorithm.data = held
            self.algorithm.build(self.net)
        self.training = Training(pauses(self.algorithm, self.net))
        self.training.begin()

    def run(self, rounds: int) -> None:
        self.training.advance(rounds)

    def validate(self, times: int) -> None:
        for _ in range(times):
            drive(self._validate())

    async def _validate(self) -> None:
        apart = self.net.within("validation")
        control = cast(Gossip, self.algorithm.training)
        mine = await self.algorithm.validate(apart)
        await control.tell_everybody(apart, mine, self.net.round, True)

    @property
    def links(self) -> int:
        """Directed links, each device's link to itself included."""
        return self.net.links(self.algorithm.devices, self.algorithm.aggregators).edges

    def parameters(self) -> list[Tensor]:
        """Device by device, its encoder's and its head's."""
        parties = self.algorithm.tensors(self.net).values()
        return [value for tensors in parties for value in tensors.values()]


class PlainLoop:
    def __init__(self, start: Ours, dropout: float) -> None:
        """With the weights, the batches and the dropped messages of another training."""
        width = start.algorithm.models.width
        self.devices = [
            nn.ModuleList(
                [
                    mlp([prod(SHAPE), 16, width], hidden=nn.ReLU, last=nn.ReLU),
                    mlp([DEVICES * width, 64, CLASSES], hidden=nn.ReLU),
                ]
            )
            for _ in range(DEVICES)
        ]
        with torch.no_grad():
            for mine, value in zip(self.parameters(), start.parameters(), strict=True):
                mine.copy_(value)
        self.optimizers = [torch.optim.Adam(d.parameters(), lr=1e-3) for d in self.devices]
        self.data, self.batches = start.algorithm.data.train, start.algorithm.training.batches
        self.dropout, self.round = dropout, 0

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self.step(self.batches[self.round].rows)
            self.round += 1

    def step(self, rows: Tensor) -> None:
        y = self.data.y[rows]
        h = torch.stack(
            [device[0](x[rows]) for device, x in zip(self.devices, self.data.x, strict=True)], 1
        )  # [rows, devices, width]
        kept = self.kept()
        loss = torch.zeros(())
        for k, device in enumerate(self.devices):
            heard = h if kept is None else h * kept[:, k, None]
            loss = loss + F.cross_entropy(device[1](heard.flatten(1)), y)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()

    def kept(self) -> Tensor | None:
        """[senders, receivers]"""
        if not self.dropout:
            return None
        stream = torch_stream(0, "dropout", self.round)
        kept = torch.rand(DEVICES, DEVICES, generator=stream) >= self.dropout
        return kept.fill_diagonal_(True).to(self.data.x.dtype)

    def parameters(self) -> list[Tensor]:
        return [value for device in self.devices for value in device.parameters()]


def difference(plain: PlainLoop, ours: Ours, rounds: int) -> float:
    plain.run(rounds)
    ours.run(rounds)
    return largest_difference(plain.parameters(), ours.parameters())


def exactly(method: str, dropout: float) -> float:
    """In double precision, where rounding cannot hide or pretend a difference."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        data = noise(DEVICES, SHAPE, rows=2 * DOUBLE_STEPS * BATCH)
        ours = Ours(data, method=method)
        return difference(PlainLoop(ours, dropout), ours, DOUBLE_STEPS)
    finally:
        torch.set_default_dtype(before)


def run() -> list[Figure]:
    data = noise(DEVICES, SHAPE, ROWS, VALIDATION)
    figures: list[Figure] = []
    held = None
    for method, dropout in (("MVFL", 0.0), ("CD-MVFL", DROPOUT)):
        eager = Ours(data, held=held, method=method)
        held = eager.algorithm.data
        compiled = Ours(data, held=held, method=method, compile=True)
        plain = PlainLoop(eager, dropout)
        differences = {  # compiling a second time for double precision would take half a minute
            "eager": exactly(method, dropout),
            "compiled": difference(plain, compiled, SINGLE_STEPS),
        }
        ours = {"eager": Variant(eager.run, 20), "compiled": Variant(compiled.run, 20)}
        own = against_plain_loop(method, Variant(plain.run, 4), ours, differences, TARGETS)
        figures += [*own, training(method, "eager", eager), training(method, "compiled", compiled)]
    return figures


def training(method: str, variant: str, ours: Ours) -> Figure:
    """What the paper's 100 epochs would take, computed from the processor time of rounds and of a
    validation: that of the fastest turn, as other work on the machine slows down the others."""
    parts = {"round": Variant(ours.run, 20), "validation": Variant(ours.validate, 1)}
    turns = take_turns(parts, repeats=5)
    one_round, validation = (min(turn.cpu for turn in turns[name]) for name in parts)
    minutes = EPOCHS * (-(-ROWS // BATCH) * one_round + validation) / 60
    return Figure(
        method,
        f"{variant}, {EPOCHS} epochs",
        6e4 * minutes,
        "minutes, computed",
        Measure(Spread.of([minutes]), Spread.of([minutes])),
        MINUTES,
    )
