"""Runs: one method under one kind of faults with one seed each. Those that train the same models
train them once."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import safetensors.torch
import torch

from colonnade.algorithms import registry
from colonnade.common.processes import one_thread
from colonnade.common.results import Result, write_lines
from colonnade.data import VerticalData, load
from colonnade.errors import ColonnadeError
from colonnade.experiments.config import Experiment
from colonnade.learning.algorithm import Algorithm
from colonnade.learning.metrics import Metric
from colonnade.learning.settings import Settings
from colonnade.learning.task import Task
from colonnade.learning.training import Point
from colonnade.network import Fault, Network, StackedNetwork
from colonnade.network.ledger_rows import LEARNING, ledger_rows

log = logging.getLogger(__name__)

ROUNDS_BETWEEN_NEWS = 50

Progress = Callable[[float], None]
T = TypeVar("T")


def drive(program: Coroutine[Any, Any, Any]) -> Any:
    """Run a choreography on the stacked engine, where nothing ever has to wait."""
    try:
        program.send(None)
    except StopIteration as stop:
        return stop.value
    raise RuntimeError("the stacked engine paused outside a clock")


@cache
def warm_up() -> None:
    """Do what libraries do once in a process, so that the first run is not charged for it: the
    first gradient imports 500 modules (0.6 s), the first saved tensor `numpy.ctypeslib`."""
    x = torch.zeros(1, requires_grad=True)
    torch.autograd.grad(x * x, x, torch.ones(1))
    safetensors.torch.save({"x": x})


def build(
    settings: Settings, data: VerticalData, seed: int, **facts: Any
) -> tuple[Algorithm, StackedNetwork]:
    """An algorithm and a stacked network, ready to train."""
    task = Task.of(data, seed, facts.get("delays"))
    algorithm = registry()[settings.algorithm](settings, task)
    net = StackedNetwork(algorithm.world(**facts))
    algorithm.join(net, data)
    return algorithm, net


@dataclass(frozen=True)
class Cell:
    """A method under a kind of faults with a seed, and the name of its files."""

    settings: Settings
    fault: Fault
    seed: int
    run: str

    @property
    def training(self) -> Any:
        """Equal for cells that train the same models."""
        return self.settings.training(), self.fault.training(), self.seed


@one_thread()
def run_cells(
    experiment: Experiment,
    cells: Sequence[Cell],
    folder: Path,
    progress: Progress = lambda share: None,
) -> list[Result | ColonnadeError]:
    """Train once, test as each cell says, and write the runs' curves, ledgers and models; the
    results are the caller's to keep."""
    first = cells[0]
    data = load(experiment.data, first.seed)
    warm_up()
    started = time.perf_counter()
    facts = {"topology": experiment.network.graph, "delays": experiment.network.delays}
    algorithm, net = build(first.settings, data, first.seed, fault=first.fault, **facts)
    curve = Curve(net)
    algorithm.training.watch = curve.add
    net.watch = lambda round: _tell(progress, round, algorithm.total_rounds)
    drive(algorithm.train(net))
    took = time.perf_counter() - started
    trained = (algorithm, net, curve, data, took, folder)
    return [attempted(lambda cell=cell: _tested(experiment, cell, *trained)) for cell in cells]


def attempted(work: Callable[[], T]) -> T | ColonnadeError:
    """Runs that fail do not take the others with them."""
    try:
        return work()
    except ColonnadeError as error:
        return type(error)(str(error))
    except Exception as error:  # a mistake of ours, or in a user's own model
        log.exception("a run failed")
        return ColonnadeError(f"{type(error).__name__}: {error}")


def _tested(
    experiment: Experiment,
    cell: Cell,
    algorithm: Algorithm,
    net: StackedNetwork,
    curve: Curve,
    data: VerticalData,
    took: float,
    folder: Path,
) -> Result:
    started = time.perf_counter()
    algorithm.set, net = cell.settings.resolved(), net.facing(cell.fault)
    spent, releases = net.now, algorithm.releases
    if releases is not None:
        releases.left.tested = 0  # the test of another cell happened in another world
    metrics = drive(algorithm.evaluate(net))
    messages, sent = net.ledger.total(*LEARNING)
    cost: dict[str, float | int | None] = {
        "rounds": algorithm.training.rounds_done(net),
        "messages": messages,
        "bytes": sent,
        "virtual_seconds": spent,
    }
    if metrics:
        cost["messages_per_prediction"] = per_prediction(algorithm, net)
    if experiment.target is not None:
        cost |= curve.until(experiment.target, algorithm.task.goal.deciding)
    write_lines(folder / "history" / f"{cell.run}.jsonl", curve.points)
    write_lines(folder / "ledger" / f"{cell.run}.jsonl", ledger_rows(net.ledger))
    key = f"test_{algorithm.task.goal.by_row.key}"
    course = [{"batch": i, key: value} for i, value in enumerate(algorithm.course)]
    write_lines(folder / "course" / f"{cell.run}.jsonl", course)
    paces = algorithm.training.paces
    if paces.leads:
        write_lines(folder / "leads" / f"{cell.run}.jsonl", paces.leads.values())
        write_lines(folder / "turns" / f"{cell.run}.jsonl", paces.first)
    algorithm.save(folder / "models" / cell.run, net)
    cost["wall_seconds"] = round(took + time.perf_counter() - started, 3)
    numbers = {key: value if math.isfinite(value) else None for key, value in metrics.items()}
    method, faults = cell.settings.name, cell.fault.name
    notes, privacy = (*data.notes, *algorithm.remarks()), {}
    if releases is not None:
        notes, privacy = (*notes, *releases.notes()), releases.facts()
    return Result(method, faults, cell.seed, cell.run, numbers, cost, notes, privacy)


def per_prediction(algorithm: Algorithm, net: Network) -> float:
    """Messages between the parties for one batch of test rows."""
    asked = algorithm.predict_rows(net.within("inference"))
    batches = -(-algorithm.data.test.rows // asked)
    return net.ledger.total("inference", leave_out=algorithm.outside)[0] / batches


def _tell(progress: Progress, round: int, total: int) -> None:
    if round % ROUNDS_BETWEEN_NEWS == 0:
        progress(min(1.0, round / total))


class Curve:
    """The points of a run's training curve."""

    def __init__(self, net: Network) -> None:
        self.net = net
        self.points: list[dict[str, float]] = []

    def add(self, point: Point) -> None:
        place = {"round": point.round, "epoch": point.epoch}
        spent = {"virtual_seconds": self.net.now, "bytes": self.net.ledger.total(*LEARNING)[1]}
        self.points.append({**place, **spent, **point.metrics})
        if not math.isfinite(point.metrics.get("train_loss", 0.0)):
            raise ColonnadeError(
                f"the loss is not a number any more in epoch {point.epoch}; try a smaller lr"
            )

    def until(self, target: float, metric: Metric) -> dict[str, float | None]:
        """What it took to reach the target of a metric on the validation rows; None where it was
        not reached."""
        name, goal = f"validation_{metric.key}", metric.score(target)
        known = [point for point in self.points if name in point]
        reached = next((p for p in known if metric.score(p[name]) >= goal), None)
        keys = {"rounds": "round", "bytes": "bytes", "seconds": "virtual_seconds"}
        return {f"{k}_to_target": reached[v] if reached else None for k, v in keys.items()}
