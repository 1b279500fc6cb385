"""Audits of an experiment file, or of an output folder: each method with each seed. What is done is
not done again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from colonnade.common.results import Result, read_results
from colonnade.data import load
from colonnade.errors import ColonnadeError, InputError
from colonnade.experiments.audit import labels
from colonnade.experiments.audit.columns import ATTACKS
from colonnade.experiments.audit.defences import with_defences
from colonnade.experiments.audit.findings import (
    ALL,
    Attacks,
    Finding,
    RunAudit,
    over_seeds,
    read_audits,
)
from colonnade.experiments.audit.measure import audit_again, recorded
from colonnade.experiments.audit.source import read_run
from colonnade.experiments.config import Experiment
from colonnade.experiments.engine import Engine, Observer, Setting
from colonnade.experiments.grid import Run, bundles, grid
from colonnade.experiments.run import train_and_test
from colonnade.experiments.runner import run_experiment, tell_cautions
from colonnade.experiments.table import Plan


def _check_rows(experiment: Experiment, source: str) -> None:
    """Refuses messages whose rows the recorder could not tell, so that they would look harmless."""
    if experiment.data.partial or experiment.data.test_overlap:
        raise InputError(
            f"{source}: data.partial and data.test_overlap: an audit is of rows that every "
            "party has; leave them out"
        )
    if late := [one.name for one in experiment.methods if getattr(one, "stale", False)]:
        raise InputError(
            f"{source}: {late[0]}: stale = true sends embeddings of earlier batches, which an "
            "audit cannot attribute to their rows; audit it without stale"
        )


@dataclass(frozen=True)
class Choice:
    """Which runs to audit, and by which attacks. None: all methods, all seeds."""

    method: str | None = None
    seed: int | None = None
    attacks: Attacks = ALL

    def of(self, experiment: Experiment, source: str) -> Experiment:
        """The methods and seeds that are chosen, with the first faults."""
        names = [one.name for one in experiment.methods]
        if self.method not in (None, *names):
            raise InputError(f"--method {self.method}: there are {', '.join(names)}")
        _check_rows(experiment, source)
        if self.seed not in (None, *experiment.seeds):
            there = ", ".join(map(str, experiment.seeds))
            raise InputError(f"--seed {self.seed}: {source} has {there}")
        if self.attacks.names:
            classes = load(experiment.data, experiment.seeds[0]).classes
            labels.check(self.attacks.names, ATTACKS, classes, source)
        return msgspec.structs.replace(
            experiment,
            methods=tuple(one for one in experiment.methods if self.method in (None, one.name)),
            seeds=experiment.seeds if self.seed is None else (self.seed,),
            faults=experiment.faults[:1],
        )

    def left_out(self) -> list[str]:
        """In words, for a reader of the findings who did not choose."""
        told = []
        if self.method is not None:
            told.append(f"Only {self.method} was audited: this says nothing of other methods.")
        if self.seed is not None:
            told.append(f"Only seed {self.seed} was audited: another may be worse.")
        if self.attacks.names:
            made = ", ".join(self.attacks.names)
            told.append(f"Only these attacks were made: {made}. Other secrets were not attacked.")
        return told


@dataclass(frozen=True)
class Audited:
    """What was found, in the folder `folder`."""

    experiment: Experiment  # as far as it was audited
    folder: Path
    audits: list[RunAudit]
    results: list[Result]
    failures: Mapping[str, str]  # title of the run → reason
    choice: Choice = Choice()
    not_made: Sequence[str] = ()  # sentences about defences that do not suit

    @property
    def findings(self) -> list[Finding]:
        """Of several seeds, the worst."""
        return over_seeds(self.audits)

    @property
    def sayings(self) -> list[str]:
        told = [f"{audit.method}: {text}" for audit in self.audits for text in audit.sayings]
        return [*self.choice.left_out(), *dict.fromkeys(told), *self.not_made]

    @property
    def plan(self) -> Plan:
        return Plan.of(self.experiment.table())


def audit_file(
    experiment: Experiment,
    folder: Path,
    choice: Choice,
    engine: Engine,
    *,
    fresh: bool = False,
    observer: Observer,
    source: str,
    defended: bool = False,
) -> Audited:
    """Run an experiment in a folder of its own, and attack in each run. `defended`: each method is
    also run with each defence that suits it."""
    chosen, not_made = choice.of(experiment, source), list[str]()
    if defended:
        chosen, not_made = with_defences(chosen)
    if not fresh and any(one.attacks != choice.attacks for one in read_audits(folder).values()):
        raise InputError(
            f"{folder}: was audited by other attacks, or in other epochs; choose another folder "
            "with --out, or start over there with --fresh"
        )
    work = partial(train_and_test, look=partial(recorded, choice.attacks))
    facts = {"engine": engine, "fresh": fresh, "observer": observer, "source": source}
    done = run_experiment(chosen, folder, work=work, **facts)
    tested = {result.run for result in done.results}
    wanted, known = [one for one in grid(chosen) if one.name in tested], read_audits(folder)
    failures = dict(done.failures)
    if missing := [one for one in wanted if _missing(one, known, choice)]:  # tested before
        _check_data(folder, chosen, done.results)
        observer.begin(len(wanted), len(wanted) - len(missing))
        failures |= _audit(missing, folder, Setting(chosen, folder), choice, engine, observer)
    mine = _audits_of(wanted, folder)
    return Audited(chosen, folder, mine, done.results, failures, choice, not_made)


def audit_folder(
    run: Path,
    out: Path,
    choice: Choice,
    engine: Engine,
    *,
    fresh: bool = False,
    observer: Observer,
) -> Audited:
    """Audit runs of an output folder, as they were. `out`: where findings are kept."""
    experiment = read_run(run)
    chosen = choice.of(experiment, str(run))
    tell_cautions(chosen, str(run))
    results = {result.run: result for result in read_results(run)}
    _check_data(run, chosen, results.values())
    wanted = [one for one in grid(experiment) if _wanted(one, experiment, chosen)]
    known = {} if fresh else read_audits(out)
    missing = [one for one in wanted if _missing(one, known, choice)]
    observer.begin(len(wanted), len(wanted) - len(missing))
    failures = _audit(missing, run, Setting(experiment, out), choice, engine, observer)
    tested = [results[one.name] for one in wanted if one.name in results]
    return Audited(chosen, out, _audits_of(wanted, out), tested, failures, choice)


def _audit(
    missing: Sequence[Run],
    run: Path,
    setting: Setting,
    choice: Choice,
    engine: Engine,
    observer: Observer,
) -> dict[str, str]:
    """Train runs of the folder `run` once more, and write their audits to the folder of the
    setting. Returns failures: title of the run → reason."""
    experiment, failures = setting.experiment, dict[str, str]()

    def keep(one: Run, outcome: Result | ColonnadeError) -> None:
        if isinstance(outcome, ColonnadeError):
            failures[one.title(experiment)] = str(outcome)
        observer.finish(one.name)

    setting = replace(setting, work=partial(audit_again, choice.attacks, run))
    engine.run(setting, bundles(experiment, missing), observer, keep)
    return failures


def _audits_of(runs: Iterable[Run], folder: Path) -> list[RunAudit]:
    audits = read_audits(folder)
    return [audits[one.name] for one in runs if one.name in audits]


def _check_data(run: Path, chosen: Experiment, results: Iterable[Result]) -> None:
    """InputError: it is not what the runs were trained with."""
    seed = chosen.seeds[0]
    now = load(chosen.data, seed).fingerprint
    if any(one.data not in ("", now) for one in results if one.seed == seed):
        raise InputError(
            f"{run}: the data has changed since this run; restore the data, or run anew with "
            "--fresh"
        )


def _wanted(one: Run, experiment: Experiment, chosen: Experiment) -> bool:
    method = experiment.methods[one.method]
    return one.fault == 0 and one.seed in chosen.seeds and method in chosen.methods


def _missing(one: Run, known: Mapping[str, RunAudit], choice: Choice) -> bool:
    return one.name not in known or known[one.name].attacks != choice.attacks
