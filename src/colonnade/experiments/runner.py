"""The runner: a grid of independent runs, in parallel; after an interruption it goes on where it
stopped."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from colonnade.algorithms import registry
from colonnade.common.curves import CURVES
from colonnade.common.explanations import EXPLANATIONS
from colonnade.common.live import LIVE
from colonnade.common.processes import one_thread
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
    write_results,
)
from colonnade.common.toml import prefixed
from colonnade.common.tracking import MLFLOW, TENSORBOARD, check_trackers
from colonnade.data import load
from colonnade.errors import ColonnadeError, InputError
from colonnade.experiments.audit.findings import AUDIT_FILES, AUDITS
from colonnade.experiments.config import Experiment, check_methods
from colonnade.experiments.engine import Engine, NoObserver, Observer, Setting, Work, engine_of
from colonnade.experiments.grid import Run, bundles, grid
from colonnade.experiments.run import build, train_and_test
from colonnade.learning.settings import Settings
from colonnade.learning.task import Task

log = logging.getLogger(__name__)

_told: set[str] = set()  # cautions that this process has logged: a comparison has several stages


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


def run_experiment(
    experiment: Experiment,
    folder: Path,
    *,
    jobs: int = 1,
    engine: Engine | None = None,
    fresh: bool = False,
    observer: Observer | None = None,
    source: str = "experiment",
    track: Sequence[str] = (),
    work: Work = train_and_test,
) -> Outcome:
    """Run what is not done yet. Finished runs are safe at any moment. `engine`: where; without it,
    on this machine, `jobs` runs at a time. `source`: named in errors. `track`: "tensorboard",
    "mlflow"; see tracking.py. `work`: what is done for each training."""
    engine = engine or engine_of("local", jobs=jobs)
    setting = Setting(experiment, folder, tuple(track), work)
    check_trackers(track)
    engine.check(setting)
    tell_cautions(experiment, source)
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    prepare(experiment, folder, fresh)
    (folder / FAILURES).unlink(missing_ok=True)  # they are tried again
    shutil.rmtree(folder / LIVE, ignore_errors=True)  # of a command that was killed
    finished = {result.key: result for result in read_results(folder)}
    if finished:
        write_results(folder, list(finished.values()))  # without a line cut off by an interruption
    runs = grid(experiment)
    open_runs = [run for run in runs if run.key(experiment) not in finished]
    trainings = bundles(experiment, open_runs)
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

    try:
        engine.run(setting, trainings, observer, keep)
    except InputError:
        _undo(folder, missing)
        raise
    with suppress(OSError):
        (folder / LIVE).rmdir()  # empty, unless another command works there
    ordered = [finished[key] for run in runs if (key := run.key(experiment)) in finished]
    write_results(folder, ordered)  # in the order of the grid, whichever run ended first
    return Outcome(experiment, folder, ordered, failures)


def _undo(folder: Path, missing: Sequence[Path]) -> None:
    """Remove the folder of an experiment of which nothing has run, with those above it that were
    `missing` before, innermost first."""
    if missing and [path.name for path in folder.iterdir()] == [CONFIG]:
        (folder / CONFIG).unlink()
        with suppress(OSError):  # something else is in one of them
            for place in missing:
                place.rmdir()


def tell_cautions(experiment: Experiment, source: str) -> None:
    """Check the experiment; log what may be wrong, once in this process."""
    try:
        for caution in check(experiment):
            if caution not in _told:
                log.warning("%s", caution)
                _told.add(caution)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


@one_thread()
def check(experiment: Experiment) -> tuple[str, ...]:
    """Check the data and every method on it before the first run. InputError: something is wrong.
    Returns cautions: what may be wrong, in words."""
    registry()  # what an installed package offers and cannot be used is the fault of no method
    data = load(experiment.data, experiment.seeds[0])
    experiment.network.graph.neighbours(len(data.clients))
    delays, names = experiment.network.delays, dict.fromkeys(data.clients)
    cautions: list[str] = []

    def check_method(method: Settings) -> None:
        method.check(Task.of(data, experiment.seeds[0]))
        algorithm, _ = build(method, data, experiment.seeds[0], delays=delays)
        names.update(dict.fromkeys(n for g in algorithm.groups for n in (g.name, *g.parties)))
        cautions.extend([caution] if (caution := algorithm.caution()) else [])
        for fault in experiment.faults:
            fault.sampler(0, algorithm.groups)

    check_methods(experiment, check_method)
    prefixed("network.delays", lambda: delays.check_names(names))
    return tuple(dict.fromkeys([*data.cautions, *cautions]))


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
        for part in (*folders, AUDITS, TABLES, TENSORBOARD, MLFLOW):
            shutil.rmtree(folder / part, ignore_errors=True)
        for part in (RESULTS, FAILURES, "report.html", *AUDIT_FILES):
            (folder / part).unlink(missing_ok=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        config.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror})") from error
