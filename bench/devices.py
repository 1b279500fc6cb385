"""Sixteen devices, each linked to each, 30 % of the links lost per batch: one training step.

The plain loop is what a researcher writes: two modules and one Adam per device, Python loops over
devices, autograd straight through the exchange. The choreography computes the same, with every
message explicit and counted.
"""

from __future__ import annotations

import copy
from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.federation import DROPPED, Federation, Problem, dropping_stream, module_parameters
from bench.timing import Figure, Target, Variant, against_plain_loop, largest_difference

DEVICES, ROWS = 16, 12_000
DOUBLE_STEPS = 20  # compared in double precision
# Compared in single precision: later, a unit within rounding of zero may be on here and off there,
# and Adam makes whole steps of it (2e-3 after 20 steps, where double precision differs by 4e-14).
SINGLE_STEPS = 5
TARGETS = {"eager": Target(5.0), "compiled": Target(7.0)}


class PlainLoop:
    def __init__(self, problem: Problem) -> None:
        self.encoders = copy.deepcopy(problem.encoders)
        self.heads = copy.deepcopy(problem.heads)
        self.optimizers = [
            torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=1e-3)
            for encoder, head in zip(self.encoders, self.heads, strict=True)
        ]
        self.problem = problem
        self.batches = problem.batches()
        self.faults = dropping_stream()

    def run(self, steps: int) -> None:
        for rows in islice(self.batches, steps):
            self.step(rows)

    def step(self, rows: Tensor) -> None:
        y = self.problem.y[rows]
        arrives = self.arrives()
        h = torch.stack([e(x[rows]) for e, x in zip(self.encoders, self.problem.x, strict=True)], 1)
        loss = torch.zeros(())
        for head, heard in zip(self.heads, arrives, strict=True):
            joined = (h * heard[None, :, None]).flatten(1)  # [rows, devices · embedding]
            loss = loss + F.cross_entropy(head(joined), y)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()

    def arrives(self) -> Tensor:
        """[receivers, senders]"""
        arrives = self.faults.random((DEVICES, DEVICES)) >= DROPPED
        np.fill_diagonal(arrives, True)
        return torch.from_numpy(arrives).to(self.problem.x.dtype)

    def parameters(self) -> list[Tensor]:
        return module_parameters(self.encoders) + module_parameters(self.heads)


def difference(plain: PlainLoop, ours: Federation, steps: int) -> float:
    plain.run(steps)
    ours.run(steps)
    return largest_difference(plain.parameters(), ours.parameters())


def run() -> list[Figure]:
    problem = Problem.of(DEVICES, neighbours=DEVICES, rows=ROWS)
    plain = PlainLoop(problem)
    ours = {"eager": Federation(problem), "compiled": Federation(problem, compile=True)}
    exact = problem.double()
    differences = {  # compiling a second time for double precision would take half a minute
        "eager": difference(PlainLoop(exact), Federation(exact), DOUBLE_STEPS),
        "compiled": difference(plain, ours["compiled"], SINGLE_STEPS),
    }
    variants = {name: Variant(trainer.run, 40) for name, trainer in ours.items()}
    return against_plain_loop("devices", Variant(plain.run, 6), variants, differences, TARGETS)
