"""What the engine costs: the share of an eager step of 16 devices that is not local computing.

Measured twice. *Engine's calls*: a clock around everything between the local computations (faults,
exchange, masks, joining, ledger), inside a step. *Difference*: the same step with and without the
exchange; without, the heads learn from a joined tensor and the encoders from a gradient that are
there beforehand, so that this counts as well what the exchange takes from their cache.
"""

from __future__ import annotations

from time import perf_counter

import torch
from torch import Tensor

from bench.federation import BATCH, EMBEDDING, Federation, Problem
from bench.timing import (
    Figure,
    Measure,
    Spread,
    Target,
    Variant,
    compare,
    milliseconds,
    take_turns,
)
from colonnade.experiments.run import drive
from colonnade.models import cross_entropy

DEVICES, ROWS = 16, 12_000
TARGET = Target(0.25, at_least=False)


class Timed(Federation):
    """A step with a clock around the engine."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.shares: list[float] = []  # of the engine, by turn

    def run(self, steps: int) -> None:
        started, self.engine = perf_counter(), 0.0
        super().run(steps)
        self.shares.append(self.engine / (perf_counter() - started))

    async def train(self, batches: list[Tensor]) -> None:
        async for rows in self.net.rounds(batches):
            x, y = self.fetch(rows)
            h = self.encoders(x)
            before = perf_counter()
            inbox = await self.send_embeddings(h)
            joined = inbox.concat()
            self.engine += perf_counter() - before
            _, gradient = self.heads.learn(joined, y, cross_entropy)
            before = perf_counter()
            back = await self.send_gradients(inbox, gradient)
            total = back.total()
            self.engine += perf_counter() - before
            self.encoders.backward(h, total)


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
        self.inbox = drive(self.send_embeddings(self.embeddings))
        self.gradient = torch.rand(DEVICES, BATCH, DEVICES * EMBEDDING)

    def forward(self, times: int) -> None:
        for _ in range(times):
            drive(self.send_embeddings(self.embeddings))

    def backward(self, times: int) -> None:
        for _ in range(times):
            drive(self.send_gradients(self.inbox, self.gradient))


def run() -> list[Figure]:
    problem = Problem.of(DEVICES, neighbours=DEVICES, rows=ROWS)
    whole, local, sending = Federation(problem), WithoutExchange(problem), Sending(problem)
    timed = Timed(problem)
    variants = {
        "whole step": Variant(whole.run, 20),
        "without exchange": Variant(local.run, 20),
        "send embeddings": Variant(sending.forward, 200),
        "send gradients": Variant(sending.backward, 200),
        "engine's calls": Variant(timed.run, 20),
    }
    take_turns(variants, repeats=1)  # the first steps allocate
    turns = take_turns(variants, repeats=51)
    share = compare(
        turns, "whole step", "without exchange", lambda whole, local: (whole - local) / whole
    )
    calls = Spread.of(timed.shares)
    results = {"whole step": share, "engine's calls": Measure(calls, calls)}
    return [
        Figure(
            "overhead",
            "difference" if name == "whole step" else name,
            milliseconds(turns, name),
            "engine's share",
            results.get(name),
            TARGET if name in results else None,
            percent=True,
        )
        for name in variants
    ]
