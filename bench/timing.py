"""Fair timing on a noisy machine, and the figures that come out of it.

Variants take short turns (A, B, C, A, B, C, …), so a busy spell strikes all of them; ratios are
taken within a turn, and their median is reported with the smallest and the largest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Variant:
    """`run(n)` does n steps; a turn is `steps` of them."""

    run: Callable[[int], object]
    steps: int


@dataclass(frozen=True)
class Turn:
    """Seconds per step."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(median(values), min(values), max(values))


@dataclass(frozen=True)
class Measure:
    """One quantity by wall clock and by processor time."""

    wall: Spread
    cpu: Spread


@dataclass(frozen=True)
class Target:
    limit: float
    at_least: bool = True

    def reached(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    benchmark: str
    variant: str
    milliseconds: float  # per step (or per call): median wall time
    meaning: str = ""  # of `result`: what is compared with what
    result: Measure | None = None
    target: Target | None = None
    percent: bool = False  # `result` is a share
    difference: float | None = None  # largest difference of a parameter from the plain loop's
    paper: float | None = None  # milliseconds of the same in the paper, on its machine
    detail: Any = None  # what a table of the benchmark's own shows

    @property
    def reached(self) -> bool | None:
        """By wall time; None where there is no target."""
        if self.target is None or self.result is None:
            return None
        return self.target.reached(self.result.wall.median)


Turns = Mapping[str, list[Turn]]


SMALLEST = False  # one step, once: to see that a benchmark runs


def take_turns(variants: Mapping[str, Variant], repeats: int) -> Turns:
    torch.set_num_threads(1)
    repeats = 1 if SMALLEST else repeats
    turns: dict[str, list[Turn]] = {name: [] for name in variants}
    for _ in range(repeats):
        for name, variant in variants.items():
            turns[name].append(_one_turn(variant))
    return turns


def _one_turn(variant: Variant) -> Turn:
    steps = 1 if SMALLEST else variant.steps
    wall, cpu = time.perf_counter(), time.process_time()
    variant.run(steps)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Turn(wall / steps, cpu / steps)


def compare(
    turns: Turns, one: str, other: str, formula: Callable[[float, float], float]
) -> Measure:
    """The formula of the times of two variants, turn by turn."""
    pairs = list(zip(turns[one], turns[other], strict=True))
    return Measure(
        Spread.of([formula(a.wall, b.wall) for a, b in pairs]),
        Spread.of([formula(a.cpu, b.cpu) for a, b in pairs]),
    )


def times_as_fast(turns: Turns, variant: str, baseline: str) -> Measure:
    return compare(turns, variant, baseline, lambda own, plain: plain / own)


def against_plain_loop(
    benchmark: str,
    plain: Variant,
    ours: Mapping[str, Variant],
    differences: Mapping[str, float | None],
    targets: Mapping[str, Target],
) -> list[Figure]:
    """How many times as fast as the plain loop each of our variants is."""
    turns = take_turns({"plain loop": plain, **ours}, repeats=31)
    return [Figure(benchmark, "plain loop", milliseconds(turns, "plain loop"))] + [
        Figure(
            benchmark,
            name,
            milliseconds(turns, name),
            "times as fast",
            times_as_fast(turns, name, "plain loop"),
            targets[name],
            difference=differences[name],
        )
        for name in ours
    ]


def milliseconds(turns: Turns, variant: str) -> float:
    return 1e3 * median(turn.wall for turn in turns[variant])


def largest_difference(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """Between two lists of parameters."""
    pairs = zip(one, other, strict=True)
    return max(float((a.detach() - b.detach()).abs().max()) for a, b in pairs)
