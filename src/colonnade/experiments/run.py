"""A run: one method under one kind of faults with one seed. Runs that train the same models train
them once."""

from __future__ import annotations

import gc
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
from colonnade.common.curves import write_curves
from colonnade.common.devices import computing_on
from colonnade.common.processes import one_thread
from colonnade.common.results import Result, write_lines
from colonnade.common.tracking import Tracked, Tracking
from colonnade.data import VerticalData, load
from colonnade.data.loading import Source
from colonnade.data.preprocessing import Preprocessing
from colonnade.errors import ColonnadeError, InputError
from colonnade.experiments.config import Experiment
from colonnade.experiments.live_file import LiveFile
from colonnade.learning.algorithm import Algorithm
from colonnade.learning.metrics import Metric
from colonnade.learning.settings import Settings
from colonnade.learning.task import Task
from colonnade.learning.training import Point
from colonnade.network import Delays, Fault, Network, StackedNetwork
from colonnade.network.ledger_rows import LEARNING, ledger_rows

log = logging.getLogger(__name__)

ROUNDS_BETWEEN_NEWS = 50
LARGE = 1_000_000  # numbers in the training rows
WAITED = (
    "answers of the test waited until enough parties were back; while they are away there is none"
)

Progress = Callable[[float], None]
# Is shown an algorithm that is about to be trained; gives what is to be done after the training.
Look = Callable[[Algorithm, StackedNetwork, Sequence["RunSpec"], Path], Callable[[], None]]
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
    """Trigger what libraries do once in a process, so that it is not counted in the time of the
    first run: the algorithms are imported, the first gradient imports 500 modules (0.6 s), the
    first saved tensor `numpy.ctypeslib`."""
    registry()
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


def reason_against(
    settings: Settings, data: VerticalData, seed: int, delays: Delays | None = None
) -> str:
    """Why a method does not suit the data; "" if it does."""
    try:
        settings.check(Task.of(data, seed))
        build(settings, data, seed, delays=delays)
    except InputError as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class RunSpec:
    """What a run is made of: a method, a kind of faults and a seed; and the name of its files."""

    settings: Settings
    fault: Fault
    seed: int
    run: str

    @property
    def training(self) -> Any:
        """Equal for runs that train the same models."""
        return self.settings.training(), self.fault.training(), self.seed

    @property
    def facts(self) -> dict[str, Any]:
        """For those who watch."""
        method, faults = self.settings.name, self.fault.name
        title = f"{method} · {faults} · seed {self.seed}"
        return {"title": title, "method": method, "faults": faults, "seed": self.seed}


@one_thread()
def train_and_test(
    experiment: Experiment,
    specs: Sequence[RunSpec],
    folder: Path,
    progress: Progress = lambda share: None,
    track: Sequence[str] = (),
    source: Source | None = None,
    look: Look | None = None,
) -> list[Result | ColonnadeError]:
    """Train the models of these runs once, test each run, and write curves, ledgers and models. The
    caller writes the results. `specs`: runs that train the same models. `track`: with which
    trackers; see tracking.py. `source`: the rows, if they were read already. `look`: for whoever
    wants to see the training from inside; see audit/."""
    tracking = Tracking(track, tracked(experiment, specs, folder))
    try:
        data = load(experiment.data, specs[0].seed, source)
        warm_up()
        with computing_on(specs[0].settings.device):
            results = _train_and_test(experiment, specs, folder, progress, tracking, data, look)
    except BaseException as error:
        tracking.end({}, f"{type(error).__name__}: {error}")
        raise
    tracking.end(*figures(results))
    if sum(x.numel() for x in data.train.x) > LARGE:
        # An algorithm and its network refer to each other: without this, six runs on 30,000 rows of
        # MNIST took 560 MB more than one. It takes 0.08 s, five times as long as a tiny run.
        gc.collect()
    return results


def _train_and_test(
    experiment: Experiment,
    specs: Sequence[RunSpec],
    folder: Path,
    progress: Progress,
    tracking: Tracking,
    data: VerticalData,
    look: Look | None = None,
) -> list[Result | ColonnadeError]:
    first = specs[0]
    started = time.perf_counter()
    facts = {"topology": experiment.network.graph, "delays": experiment.network.delays}
    algorithm, net = build(first.settings, data, first.seed, fault=first.fault, **facts)
    curve = Curve(net, tracking)
    facts = {**first.facts, "rounds": algorithm.total_rounds}
    live = LiveFile(folder, first.run, net, algorithm.outside, **facts)
    live.points = curve.points
    algorithm.training.watch = curve.add
    if experiment.stop_at_target:
        algorithm.training.target = experiment.target
    tell = lambda: live.look(lambda: algorithm.training.rounds_done(net))  # noqa: E731
    net.watch = lambda round: (tell(), _tell(progress, round, algorithm.total_rounds))[1]
    net.watch_side_by_side = lambda child: tell()
    trained = look(algorithm, net, specs, folder) if look is not None else lambda: None
    try:
        drive(algorithm.train(net))
    finally:
        live.end()
    took = time.perf_counter() - started
    trained()
    model = (algorithm, net, curve, data, took, folder)
    return [attempted(lambda spec=spec: _tested(experiment, spec, *model)) for spec in specs]


def tracked(experiment: Experiment, specs: Sequence[RunSpec], folder: Path) -> Tracked:
    """The training of these runs as a tracker knows it: with the settings of the first run."""
    first, table = specs[0], experiment.table()
    method = next(m for m in table["methods"] if m["name"] == first.settings.name)
    fault = next(f for f in table["faults"] if f["name"] == first.fault.name)
    settings = {"method": method, "faults": fault, "seed": first.seed, "data": table["data"]}
    settings["network"] = table.get("network", {})
    return Tracked(folder, experiment.name, first.run, first.facts["title"], settings)


def figures(results: Sequence[Result | ColonnadeError]) -> tuple[dict[str, Any], str]:
    """What is tracked in the end: metrics and costs, or why there are none. Several runs that share
    a training have their method and faults before the names of their metrics."""
    done = [result for result in results if isinstance(result, Result)]
    if not done:
        return {}, str(results[0])
    found: dict[str, Any] = {f"cost/{key}": value for key, value in done[0].cost.items()}
    for result in done:
        before = f"{result.method} · {result.faults}/" if len(done) > 1 else ""
        found |= {f"{before}{key}": value for key, value in result.metrics.items()}
    return found, ""


def attempted(work: Callable[[], T]) -> T | ColonnadeError:
    """The result of `work`, or its error: a run that fails must not end the others."""
    try:
        return work()
    except ColonnadeError as error:
        return type(error)(str(error))
    except Exception as error:  # a mistake of ours, or in a user's own model
        log.exception("a run failed")
        return ColonnadeError(f"{type(error).__name__}: {error}")


def _tested(
    experiment: Experiment,
    spec: RunSpec,
    algorithm: Algorithm,
    net: StackedNetwork,
    curve: Curve,
    data: VerticalData,
    took: float,
    folder: Path,
) -> Result:
    started = time.perf_counter()
    algorithm.set, net = spec.settings.resolved(), net.facing(spec.fault)
    spent, releases = net.now, algorithm.releases
    if releases is not None:
        releases.left.tested = 0  # releases in the tests of other runs do not count in this one
    algorithm.test_curves = None
    metrics = drive(algorithm.evaluate(net))
    if algorithm.test_curves is not None:
        write_curves(folder, spec.run, algorithm.test_curves)
    if experiment.summarise and metrics and not algorithm.set.pooled:
        from colonnade.experiments.fewer_parties import summaries  # which runs trainings itself

        metrics |= summaries(experiment, spec, data, algorithm, net)
    messages, sent = net.ledger.total(*LEARNING)
    cost: dict[str, float | int | None] = {
        "rounds": algorithm.training.rounds_done(net),
        "messages": messages,
        "bytes": sent,
        "bytes_per_round": sent / max(1, algorithm.training.rounds_done(net)),
        "virtual_seconds": spent,
    }
    if metrics:
        cost["messages_per_prediction"] = per_prediction(algorithm, net)
    notes = (*data.notes, *algorithm.remarks())
    if again := net.ledger.repeated["inference"]:
        cost["waits"] = again
        notes = (*notes, f"{spec.settings.name} · {spec.fault.name}: {WAITED}")
    if experiment.target is not None:
        cost |= curve.until(experiment.target, algorithm.task.goal.deciding)
        if cost["rounds_to_target"] is None:
            missed = f"{spec.settings.name}: the target of {experiment.target:g} was not reached"
            notes = (*notes, missed)
    write_lines(folder / "history" / f"{spec.run}.jsonl", curve.points)
    write_lines(folder / "ledger" / f"{spec.run}.jsonl", ledger_rows(net.ledger))
    key = f"test_{algorithm.task.goal.by_row.key}"
    course = [{"batch": i, key: value} for i, value in enumerate(algorithm.course)]
    write_lines(folder / "course" / f"{spec.run}.jsonl", course)
    paces = algorithm.training.paces
    if paces.leads:
        write_lines(folder / "leads" / f"{spec.run}.jsonl", paces.leads.values())
        write_lines(folder / "turns" / f"{spec.run}.jsonl", paces.first)
    algorithm.save(folder / "models" / spec.run, net)
    save_preprocessing(folder / "models" / spec.run, data)
    cost["wall_seconds"] = round(took + time.perf_counter() - started, 3)
    numbers = {key: value if math.isfinite(value) else None for key, value in metrics.items()}
    method, faults = spec.settings.name, spec.fault.name
    if releases is not None:
        notes = (*notes, *releases.notes())
    facts = (numbers, cost, notes, algorithm.privacy(), data.fingerprint)
    return Result(method, faults, spec.seed, spec.run, *facts)


def save_preprocessing(folder: Path, data: VerticalData) -> None:
    """Beside its model, what each party did with its raw columns."""
    for client, scaler in zip(data.clients, data.scalers, strict=False):
        if isinstance(scaler, Preprocessing):
            scaler.save(folder / f"{client}.preprocessing.json")


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

    def __init__(self, net: Network, tracking: Tracking | None = None) -> None:
        self.net, self.tracking = net, tracking
        self.points: list[dict[str, float]] = []

    def add(self, point: Point) -> None:
        place = {"round": point.round, "epoch": point.epoch}
        spent = {"virtual_seconds": self.net.now, "bytes": self.net.ledger.total(*LEARNING)[1]}
        self.points.append({**place, **spent, **point.metrics})
        if self.tracking is not None:
            self.tracking.point(self.points[-1])
        if not math.isfinite(point.metrics.get("train_loss", 0.0)):
            raise ColonnadeError(
                f"the loss is not a number any more in epoch {point.epoch}; try a smaller lr"
            )

    def until(self, target: float, metric: Metric) -> dict[str, float | None]:
        """Rounds, bytes and seconds until a metric reached the target on the validation rows; None
        if it did not."""
        reached = next((p for p in self.points if metric.reached(p, target)), None)
        keys = {"rounds": "round", "bytes": "bytes", "seconds": "virtual_seconds"}
        return {f"{k}_to_target": reached[v] if reached else None for k, v in keys.items()}
