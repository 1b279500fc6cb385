"""What Ray costs per run, and a grid of which a node is lost.

The cost: the time from the end of one run to the end of the next, less the time that the run itself
took (`wall_seconds`), on a cluster of one node with one processor; beside it, the same in one
process without Ray. Both contain what every run needs before its clock starts, such as splitting
the rows. The grid: 60 runs on two nodes, one of which is killed in the middle.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.ray_nodes import on_nodes, unavailable
from bench.timing import Figure, Measure, Spread, Target
from colonnade.common.results import read_results
from colonnade.experiments.config import parse_experiment
from colonnade.experiments.runner import run_experiment

SHORT = 40  # runs
KILLED = {"seeds": 60, "kill_after": 20}


def run() -> list[Figure]:
    if reason := unavailable():
        raise RuntimeError(reason)
    with TemporaryDirectory() as name:
        here = beside_training(Path(name), ray=False)
    with TemporaryDirectory() as name:
        there = beside_training(Path(name), ray=True)
    figures = [
        _figure("ms beside the training, in one process", here),
        _figure("ms beside the training, on Ray", there),
    ]
    return figures + (lose_a_node(**KILLED) if KILLED else [])


def grid(seeds: int, epochs: int) -> dict[str, Any]:
    return {
        "name": "grid",
        "seeds": list(range(seeds)),
        "data": {"dataset": "digits", "rows": 300},
        "methods": [{"algorithm": "splitnn", "epochs": epochs, "patience": epochs}],
    }


class Ends:
    """When runs end, as `bench.ray_nodes` tells it."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.times: list[float] = []

    def begin(self, total: int, done: int) -> None: ...
    def advance(self, run: str, share: float) -> None: ...

    def finish(self, run: str) -> None:
        self.order.append(run)
        self.times.append(time.monotonic())


def beside_training(folder: Path, ray: bool) -> list[float]:
    """Milliseconds of each run but the first, which starts a process."""
    plan = grid(SHORT, epochs=2)
    if ray:
        told = on_nodes(folder, plan, nodes=1)
        order, times = list(told["finished"]), told["times"]
    else:
        ends = Ends()
        run_experiment(parse_experiment(plan, "grid"), folder / "out", observer=ends)
        order, times = ends.order, ends.times
    took = {result.run: result.cost["wall_seconds"] or 0 for result in read_results(folder / "out")}
    pairs = zip(order[1:], times[1:], times, strict=False)
    return [1e3 * (end - before - took[name]) for name, end, before in pairs]


def lose_a_node(seeds: int, kill_after: int) -> list[Figure]:
    with TemporaryDirectory() as name:
        told = on_nodes(Path(name), grid(seeds, epochs=30), kill_after=kill_after)
    twice = sum(count - 1 for count in told["finished"].values())
    return [
        _figure(f"results of {seeds} runs, a node killed", [len(told["results"])], Target(seeds)),
        _figure("of these, counted twice", [twice], Target(0, at_least=False)),
        _figure("runs lost with the node and tried again", [len(told["lost"])], Target(1)),
    ]


def _figure(variant: str, values: list[float], target: Target | None = None) -> Figure:
    spread = Spread.of(values)
    return Figure("ray", variant, 0.0, "", Measure(spread, spread), target)
