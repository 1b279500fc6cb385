"""Where the runs of an experiment are computed: on this machine (`Local`), or on the machines of a
Ray cluster (`ray_engine.OnRay`)."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from colonnade.algorithms import is_local
from colonnade.common.processes import die_with_parent
from colonnade.common.results import Result
from colonnade.common.user_code import FACTORIES
from colonnade.data.loading import Source
from colonnade.errors import ColonnadeError, InputError
from colonnade.experiments.config import Experiment, parse_experiment
from colonnade.experiments.grid import Bundle, Run
from colonnade.experiments.run import attempted, train_and_test
from colonnade.models.factories import Factory

Keep = Callable[[Run, Result | ColonnadeError], None]  # takes what came of a run, once
Work = Callable[..., Sequence[Result | ColonnadeError]]  # with the arguments of `train_and_test`


class Observer(Protocol):
    """Is told the progress of the runs: a progress bar, or `NoObserver`."""

    def begin(self, total: int, done: int) -> None: ...
    def advance(self, run: str, share: float) -> None: ...
    def finish(self, run: str) -> None: ...


class NoObserver:
    def begin(self, total: int, done: int) -> None: ...
    def advance(self, run: str, share: float) -> None: ...
    def finish(self, run: str) -> None: ...


@dataclass(frozen=True)
class Setting:
    """What all runs have in common. `track`: with which trackers; see tracking.py. `work`: what is
    done for each training."""

    experiment: Experiment
    folder: Path
    track: tuple[str, ...] = ()
    work: Work = train_and_test


class Engine(Protocol):
    def check(self, setting: Setting) -> None:
        """InputError: runs of this kind cannot be computed here. Called before the folder is
        touched."""

    def run(self, setting: Setting, work: Sequence[Bundle], observer: Observer, keep: Keep) -> None:
        """Computes bundles of runs in any order, and gives each run's result or error to `keep`
        when the run's files are in the folder. A run that fails does not end the others."""


@dataclass(frozen=True)
class Local:
    """On this machine: in this process, or in `jobs` processes of one thread each."""

    jobs: int = 1

    def check(self, setting: Setting) -> None: ...

    def run(self, setting: Setting, work: Sequence[Bundle], observer: Observer, keep: Keep) -> None:
        if self.jobs == 1 or len(work) == 1 or not portable(setting.experiment):
            _inline(setting, work, observer, keep)
        else:
            _in_processes(setting, work, min(self.jobs, len(work) or 1), observer, keep)


def engine_of(name: str, address: str | None = None, jobs: int | None = None) -> Engine:
    """The engine of this name: `local` or `ray`. `address`: of a Ray cluster."""
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs = {jobs}: expected 1 or more")
    if name == "ray":
        from colonnade.experiments.ray_engine import OnRay

        return OnRay(address, jobs)
    if name != "local":
        raise InputError(f'engine = "{name}": expected "local" or "ray"')
    if address is not None:
        raise InputError(f'address {address}: is for the engine "ray"')
    return Local(jobs or 1)


def _inline(setting: Setting, work: Sequence[Bundle], observer: Observer, keep: Keep) -> None:
    for runs in work:
        tell = lambda share, name=runs[0].name: observer.advance(name, share)  # noqa: E731
        for run, outcome in zip(runs, attempt(setting, runs, tell), strict=True):
            keep(run, outcome)


def _in_processes(
    setting: Setting, work: Sequence[Bundle], jobs: int, observer: Observer, keep: Keep
) -> None:
    context = multiprocessing.get_context("spawn")
    news: Any = context.Queue()
    config = msgspec.json.encode(setting.experiment.table())
    facts = (config, str(setting.folder), setting.track, setting.work, news)
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


def _start_worker(
    config: bytes, folder: str, track: tuple[str, ...], work: Work, news: Any
) -> None:
    die_with_parent()
    experiment = parse_experiment(msgspec.json.decode(config), "experiment")
    _worker.update(setting=Setting(experiment, Path(folder), track, work), news=news)


def _work(runs: Bundle) -> Sequence[Result | ColonnadeError]:
    news = _worker["news"]
    tell = lambda share: news.put((runs[0].name, share))  # noqa: E731
    return attempt(_worker["setting"], runs, tell)


def attempt(
    setting: Setting,
    runs: Bundle,
    progress: Callable[[float], None],
    source: Source | None = None,
) -> Sequence[Result | ColonnadeError]:
    """Train and test the runs of a bundle: a result or an error for each. `source`: the rows, if
    they were read already."""
    experiment, folder, track = setting.experiment, setting.folder, setting.track
    specs = [run.spec(experiment) for run in runs]
    outcome = attempted(lambda: setting.work(experiment, specs, folder, progress, track, source))
    return [outcome] * len(runs) if isinstance(outcome, ColonnadeError) else outcome


def portable(experiment: Experiment) -> bool:
    """Whether another process can build the experiment from its file: functions and algorithms that
    are defined only in this process cannot be sent there."""
    models = [getattr(m, key, None) for m in experiment.methods for key in FACTORIES]
    unknown = any(callable(model) and not isinstance(model, Factory) for model in models)
    return not unknown and not any(is_local(m.algorithm) for m in experiment.methods)
