"""The runner: a grid of independent runs, in parallel; after an interruption it goes on where it
stopped."""

from __future__ import annotations

import logging
import multiprocessing
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from colonnade.algorithms import is_local
from colonnade.common.curves import CURVES
from colonnade.common.explanations import EXPLANATIONS
from colonnade.common.live import LIVE
from colonnade.common.processes import die_with_parent, one_thread
from colonnade.common.results import (
    CONFIG,
    FAILURES,
    RESULTS,
    TABLES,
    Failure,
    Result,
    append_failure,
    append_result,
    read_results,
    slug,
    write_results,
)
from colonnade.common.toml import prefixed
from colonnade.common.tracking import MLFLOW, TENSORBOARD, check_trackers
from colonnade.common.user_code import FACTORIES
from colonnade.data import load
from colonnade.errors import ColonnadeError, InputError
from colonnade.experiments.config import Experiment, parse_experiment
from colonnade.experiments.run import RunSpec, attempted, build, train_and_test
from colonnade.learning.task import Task
from colonnade.models.factories import Factory

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """A run by the numbers of its method and fault in the experiment: few bytes for a worker
    process."""

    method: int
    fault: int
    seed: int
    name: str  # of its files

    def spec(self, experiment: Experiment) -> RunSpec:
        method, fault = experiment.methods[self.method], experiment.faults[self.fault]
        return RunSpec(method, fault, self.seed, self.name)

    def key(self, experiment: Experiment) -> tuple[str, str, int]:
        spec = self.spec(experiment)
        return spec.settings.name, spec.fault.name, spec.seed

    def title(self, experiment: Experiment) -> str:
        method, fault, seed = self.key(experiment)
        return f"{method} · {fault} · seed {seed}"


Bundle = tuple[Run, ...]  # runs that train the same models


class Observer(Protocol):
    """Is told the progress of the runs: a progress bar, or `NoObserver`."""

    def begin(self, total: int, done: int) -> None: ...
    def advance(self, run: str, share: float) -> None: ...
    def finish(self, run: str) -> None: ...


class NoObserver:
    def begin(self, total: int, done: int) -> None: ...
    def advance(self, run: str, share: float) -> None: ...
    def finish(self, run: str) -> None: ...


@dataclass
class Outcome:
    """The results of an experiment."""

    experiment: Experiment
    folder: Path
    results: list[Result]
    failures: dict[str, str] = field(default_factory=dict)  # title of the run → reason

    def report(self) -> Path:
        from colonnade.experiments.report import write_report

        return write_report(self.folder)


def grid(experiment: Experiment) -> list[Run]:
    """All runs, in the order of the file: methods, then faults, then seeds."""
    runs: list[Run] = []
    for m, method in enumerate(experiment.methods):
        for f, fault in enumerate(experiment.faults):
            name = f"{slug(method.name)}.{slug(fault.name)}"
            if any(
                run.name.startswith(f"{name}.") and (run.method, run.fault) != (m, f)
                for run in runs
            ):
                name = f"{name}.{m}-{f}"
            runs += [Run(m, f, seed, f"{name}.{seed}") for seed in experiment.seeds]
    return runs


def bundles(experiment: Experiment, runs: Sequence[Run]) -> list[Bundle]:
    """The runs, grouped by their training: runs that differ only in faults or settings of
    predictions share one training."""
    alike: list[tuple[Any, list[Run]]] = []
    for run in runs:
        training = run.spec(experiment).training
        known = next((group for key, group in alike if key == training), None)
        if known is None:
            alike.append((training, [run]))
        else:
            known.append(run)
    return [tuple(group) for _, group in alike]


def run_experiment(
    experiment: Experiment,
    folder: Path,
    *,
    jobs: int = 1,
    fresh: bool = False,
    observer: Observer | None = None,
    source: str = "experiment",
    track: Sequence[str] = (),
) -> Outcome:
    """Run what is not done yet. Finished runs are safe at any moment. `source`: named in errors.
    `track`: "tensorboard", "mlflow"; see tracking.py."""
    if jobs < 1:
        raise InputError(f"jobs = {jobs}: expected 1 or more")
    check_trackers(track)
    try:
        for caution in check(experiment):
            log.warning("%s", caution)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    prepare(experiment, folder, fresh)
    (folder / FAILURES).unlink(missing_ok=True)  # they are tried again
    shutil.rmtree(folder / LIVE, ignore_errors=True)  # of a command that was killed
    finished = {result.key: result for result in read_results(folder)}
    if finished:
        write_results(folder, list(finished.values()))  # without a line cut off by an interruption
    runs = grid(experiment)
    open_runs = [run for run in runs if run.key(experiment) not in finished]
    work = bundles(experiment, open_runs)
    observer = observer or NoObserver()
    observer.begin(len(runs), len(runs) - len(open_runs))
    failures: dict[str, str] = {}

    def keep(run: Run, outcome: Result | ColonnadeError) -> None:
        if isinstance(outcome, Result):
            append_result(folder, outcome)
            finished[outcome.key] = outcome
        else:
            failures[run.title(experiment)] = str(outcome)
            append_failure(folder, Failure(run.title(experiment), str(outcome)))
        observer.finish(run.name)

    if jobs == 1 or len(work) == 1 or not portable(experiment):
        _inline(Setting(experiment, folder, track), work, observer, keep)
    else:
        setting = Setting(experiment, folder, track)
        _in_processes(setting, work, min(jobs, len(work) or 1), observer, keep)
    with suppress(OSError):
        (folder / LIVE).rmdir()  # empty, unless another command works there
    ordered = [finished[key] for run in runs if (key := run.key(experiment)) in finished]
    write_results(folder, ordered)  # in the order of the grid, whichever run ended first
    return Outcome(experiment, folder, ordered, failures)


@one_thread()
def check(experiment: Experiment) -> tuple[str, ...]:
    """Check the data and every method on it before the first run. InputError: something is wrong.
    Returns cautions: what may be wrong, in words."""
    data = load(experiment.data, experiment.seeds[0])
    experiment.network.graph.neighbours(len(data.clients))
    delays, names = experiment.network.delays, dict.fromkeys(data.clients)
    cautions: list[str] = []
    for i, method in enumerate(experiment.methods):
        try:
            method.check(Task.of(data, experiment.seeds[0]))
            algorithm, _ = build(method, data, experiment.seeds[0], delays=delays)
            names |= dict.fromkeys(n for g in algorithm.groups for n in (g.name, *g.parties))
            cautions += [caution] if (caution := algorithm.caution()) else []
            for fault in experiment.faults:
                fault.sampler(0, algorithm.groups)
        except InputError as error:
            raise InputError(f"methods[{i}] ({method.name}): {error}") from None
    prefixed("network.delays", lambda: delays.check_names(names))
    return (*data.cautions, *cautions)


def prepare(experiment: Experiment, folder: Path, fresh: bool) -> None:
    """Make the output folder of this experiment; refuse the folder of another one."""
    config = folder / CONFIG
    text = experiment.toml()
    if config.exists() and config.read_text(encoding="utf-8") != text and not fresh:
        raise InputError(
            f"{folder}: holds another experiment (its {CONFIG} differs); choose another folder "
            f"with --out, or start over there with --fresh"
        )
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; the output needs a folder")
    if not config.exists() and folder.exists() and any(folder.iterdir()):
        raise InputError(
            f"{folder}: is not empty and holds no experiment; choose another with --out"
        )
    if fresh and config.exists():
        folders = ("history", "ledger", "course", CURVES, "leads", "turns", "models", EXPLANATIONS)
        for part in (*folders, TABLES, TENSORBOARD, MLFLOW):
            shutil.rmtree(folder / part, ignore_errors=True)
        for part in (RESULTS, FAILURES, "report.html"):
            (folder / part).unlink(missing_ok=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        config.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror})") from error


@dataclass(frozen=True)
class Setting:
    """What all runs have in common."""

    experiment: Experiment
    folder: Path
    track: Sequence[str]


def _inline(
    setting: Setting,
    work: Sequence[Bundle],
    observer: Observer,
    keep: Callable[[Run, Result | ColonnadeError], None],
) -> None:
    for runs in work:
        tell = lambda share, name=runs[0].name: observer.advance(name, share)  # noqa: E731
        for run, outcome in zip(runs, _attempt(setting, runs, tell), strict=True):
            keep(run, outcome)


def _in_processes(
    setting: Setting,
    work: Sequence[Bundle],
    jobs: int,
    observer: Observer,
    keep: Callable[[Run, Result | ColonnadeError], None],
) -> None:
    context = multiprocessing.get_context("spawn")
    news: Any = context.Queue()
    config = msgspec.json.encode(setting.experiment.table())
    facts = (config, str(setting.folder), tuple(setting.track), news)
    pool = ProcessPoolExecutor(jobs, context, _start_worker, facts)
    try:
        with _ignoring_ctrl_c():  # workers ignore it from their start: the parent handles it
            futures: dict[Future[Any], Bundle] = {pool.submit(_work, runs): runs for runs in work}
        pending = set(futures)
        while pending:
            done, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
            for name, share in _drain(news):
                observer.advance(name, share)
            for future in sorted(done, key=lambda future: future.exception() is not None):
                for run, outcome in zip(futures[future], _outcomes(future), strict=True):
                    keep(run, outcome)
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


@contextmanager
def _ignoring_ctrl_c() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set signals
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _outcomes(future: Future[Any]) -> Sequence[Result | ColonnadeError]:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise ColonnadeError(
            "a worker process died (out of memory?); the same command goes on. A Python script "
            'that uses several jobs must call colonnade under `if __name__ == "__main__":`'
        ) from error


def _drain(queue: Any) -> Iterator[tuple[str, float]]:
    while not queue.empty():
        yield queue.get()


_worker: dict[str, Any] = {}


def _start_worker(config: bytes, folder: str, track: Sequence[str], news: Any) -> None:
    die_with_parent()
    experiment = parse_experiment(msgspec.json.decode(config), "experiment")
    _worker.update(setting=Setting(experiment, Path(folder), track), news=news)


def _work(runs: Bundle) -> Sequence[Result | ColonnadeError]:
    news = _worker["news"]
    tell = lambda share: news.put((runs[0].name, share))  # noqa: E731
    return _attempt(_worker["setting"], runs, tell)


def _attempt(
    setting: Setting, runs: Bundle, progress: Callable[[float], None]
) -> Sequence[Result | ColonnadeError]:
    experiment, folder = setting.experiment, setting.folder
    specs = [run.spec(experiment) for run in runs]
    outcome = attempted(lambda: train_and_test(experiment, specs, folder, progress, setting.track))
    return [outcome] * len(runs) if isinstance(outcome, ColonnadeError) else outcome


def portable(experiment: Experiment) -> bool:
    """Whether another process can build the experiment from its file: functions and algorithms that
    are defined only in this process cannot be sent there."""
    models = [getattr(m, key, None) for m in experiment.methods for key in FACTORIES]
    unknown = any(callable(model) and not isinstance(model, Factory) for model in models)
    return not unknown and not any(is_local(m.algorithm) for m in experiment.methods)
