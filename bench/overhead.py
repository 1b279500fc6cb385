"""What the engine costs: the share of an eager `devices` step that is not local computing.

The same step is timed with and without the exchange; without, the heads learn from a joined tensor
and the encoders from a gradient that are there beforehand. The difference is everything between the
local computations: faults, exchange, masks, joining, ledger.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bench.devices import DEVICES, ROWS
from bench.federation import BATCH, EMBEDDING, Federation, Problem
from bench.timing import Figure, Target, Variant, compare, milliseconds, take_turns
from colonnade.experiments.run import drive
from colonnade.models import cross_entropy

TARGET = Target(0.25, at_least=False)


class WithoutExchange(Federation):
    """The local computations alone."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.joined = torch.rand(DEVICES, BATCH, DEVICES * EMBEDDING)
        self.gradient = 1e-3 * torch.randn(DEVICES, BATCH, EMBEDDING)

    async def train(self, batches: list[Tensor]) -> None:
        for rows in batches:
            x, y = self.fetch(rows)
            h = self.encoders(x)
            self.heads.learn(self.joined, y, cross_entropy)
            self.encoders.backward(h, self.gradient)


class Sending(Federation):
    """The two exchanges of a step alone, on tensors that are there beforehand."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.embeddings = torch.rand(DEVICES, BATCH, EMBEDDING)
        self.gradients = torch.rand(DEVICES, DEVICES, BATCH, EMBEDDING)
        self.heard = torch.rand(DEVICES, DEVICES) < 0.7

    def send_embeddings(self, times: int) -> None:
        for _ in range(times):
            drive(
                self.net.send(
                    self.embeddings,
                    self.devices,
                    self.aggregators,
                    kind="embedding",
                    shape=(BATCH, EMBEDDING),
                )
            )

    def send_gradients(self, times: int) -> None:
        for _ in range(times):
            drive(
                self.net.send(
                    self.gradients,
                    self.aggregators,
                    self.devices,
                    kind="gradient",
                    shape=(BATCH, EMBEDDING),
                    addressed=True,
                    where=self.heard,
                )
            )


def run() -> list[Figure]:
    problem = Problem.of(DEVICES, neighbours=DEVICES, rows=ROWS)
    whole, local, sending = Federation(problem), WithoutExchange(problem), Sending(problem)
    variants = {
        "whole step": Variant(whole.run, 20),
        "without exchange": Variant(local.run, 20),
        "send embeddings": Variant(sending.send_embeddings, 200),
        "send gradients": Variant(sending.send_gradients, 200),
    }
    take_turns(variants, repeats=1)  # the first steps allocate
    turns = take_turns(variants, repeats=51)
    share = compare(
        turns, "whole step", "without exchange", lambda whole, local: (whole - local) / whole
    )
    return [
        Figure(
            "overhead",
            "whole step",
            milliseconds(turns, "whole step"),
            "engine's share",
            share,
            TARGET,
            percent=True,
        )
    ] + [Figure("overhead", name, milliseconds(turns, name)) for name in list(variants)[1:]]
