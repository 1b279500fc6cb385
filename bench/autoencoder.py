"""Four clients, each training an autoencoder of its own columns: one step, no exchange.

The widths are those of DVFL's clients on MNIST. The plain loop has one module and one Adam per
client.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import cycle, islice

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.timing import Figure, Target, Variant, against_plain_loop, largest_difference
from colonnade.common.seeds import torch_stream
from colonnade.models import Optimizer, Stack
from colonnade.models.layers import squared_error

CLIENTS, ROWS, BATCH = 4, 12_000, 64
CHECKED_STEPS = 20
TARGET = Target(2.3)


def autoencoder() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(196, 100),
        nn.LeakyReLU(),
        nn.Linear(100, 80),
        nn.ReLU(),
        nn.Linear(80, 100),
        nn.LeakyReLU(),
        nn.Linear(100, 196),
        nn.Sigmoid(),
    )


class Data:
    def __init__(self) -> None:
        stream = torch_stream(0, "data")
        self.x = torch.rand(CLIENTS, ROWS, 196, generator=stream)
        self.rows = [torch.randint(ROWS, (BATCH,), generator=stream) for _ in range(100)]


class PlainLoop:
    def __init__(self, models: list[nn.Sequential], data: Data) -> None:
        self.models = copy.deepcopy(models)
        self.optimizers = [torch.optim.Adam(model.parameters(), lr=1e-3) for model in self.models]
        self.data, self.batches = data, cycle(data.rows)

    def run(self, steps: int) -> None:
        for rows in islice(self.batches, steps):
            for model, optimizer, columns in zip(
                self.models, self.optimizers, self.data.x, strict=True
            ):
                x = columns[rows]
                loss = F.mse_loss(model(x), x)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    def parameters(self) -> list[Tensor]:
        return module_parameters(self.models)


class Stacked:
    def __init__(self, models: list[nn.Sequential], data: Data, *, compile: bool) -> None:
        self.stack = Stack(copy.deepcopy(models), Optimizer(), compile=compile)
        self.data, self.batches = data, cycle(data.rows)

    def run(self, steps: int) -> None:
        for rows in islice(self.batches, steps):
            x = self.data.x.index_select(1, rows)  # [clients, rows, columns]
            self.stack.learn(x, x, squared_error)

    def parameters(self) -> list[Tensor]:
        return stack_parameters(self.stack)


def run() -> list[Figure]:
    torch.manual_seed(0)
    models, data = [autoencoder() for _ in range(CLIENTS)], Data()
    plain = PlainLoop(models, data)
    ours = {
        "eager": Stacked(models, data, compile=False),
        "compiled": Stacked(models, data, compile=True),
    }
    for trainer in (plain, *ours.values()):
        trainer.run(CHECKED_STEPS)
    differences = {
        name: largest_difference(trainer.parameters(), plain.parameters())
        for name, trainer in ours.items()
    }
    variants = {name: Variant(trainer.run, 40) for name, trainer in ours.items()}
    return against_plain_loop(
        "autoencoder", Variant(plain.run, 15), variants, differences, dict.fromkeys(ours, TARGET)
    )


def stack_parameters(stack: Stack) -> list[Tensor]:
    """Member by member, in the order of `Module.parameters()`."""
    return [value for i in range(stack.members) for value in stack.member_state(i).values()]


def module_parameters(modules: Sequence[nn.Module]) -> list[Tensor]:
    return [value for module in modules for value in module.parameters()]
