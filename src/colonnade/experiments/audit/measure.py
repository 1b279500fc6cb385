"""Record a training, and then play each receiver: what can it infer from what it got?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import ceil, sqrt
from pathlib import Path

import msgspec
import numpy as np

from colonnade.common.processes import one_thread
from colonnade.common.results import Result, read_results
from colonnade.data import VerticalData, load
from colonnade.data.loading import Source
from colonnade.errors import ColonnadeError
from colonnade.experiments.audit.columns import ATTACKS, LEAST, column_attempts, is_told
from colonnade.experiments.audit.findings import ALL, CHANCE, Attacks, Finding, RunAudit
from colonnade.experiments.audit.labels import completions, label_attempts
from colonnade.experiments.audit.recorder import Recorder
from colonnade.experiments.audit.scene import Attempt, Scene, best, encodings, first_few
from colonnade.experiments.config import Experiment
from colonnade.experiments.run import Progress, RunSpec, build, drive
from colonnade.learning.algorithm import Algorithm
from colonnade.network import Network, StackedNetwork
from colonnade.privacy.attacks import KNOWN_LABELS

Found = tuple[list[Finding], list[str]]  # and sentences about what could not be attacked


def record(algorithm: Algorithm, net: Network, seed: int, attacks: Attacks) -> Callable[[], Found]:
    """Record the training of an algorithm. The result attacks, when the training is over."""
    rows, binary = algorithm.data.train.rows, algorithm.task.classes == 2
    full = cache(lambda one: len(algorithm.labelled_by(one)))
    recorder = Recorder(
        rows,
        seed,
        first_few(algorithm),
        alone=algorithm.epochs_alone,
        remembers=lambda receiver: binary and full(receiver) < rows,
        every_epoch=attacks.every_epoch,
    )
    untrained = None if algorithm.set.pooled else encodings(algorithm, recorder.sample)
    net.recorder = recorder

    def attack() -> Found:
        net.recorder = None
        if algorithm.set.pooled:
            return [], [POOLED]
        return findings(Scene(algorithm, recorder, seed, untrained), attacks)

    return attack


def recorded(
    attacks: Attacks, algorithm: Algorithm, net: Network, specs: Sequence[RunSpec], folder: Path
) -> Callable[[], None]:
    """The same; the result writes the findings of each of these runs."""
    seed = specs[0].seed
    attack = record(algorithm, net, seed, attacks)

    def write() -> None:
        from threadpoolctl import threadpool_limits  # comes with scikit-learn

        began = time.perf_counter()
        with threadpool_limits(1):  # small matrices: several threads mostly wait for each other
            found, sayings = attack()
        took = round(time.perf_counter() - began, 3)
        for spec in specs:
            name, faults = spec.settings.name, spec.fault.name
            named = [msgspec.structs.replace(one, method=name) for one in found]
            RunAudit(spec.run, name, faults, seed, took, named, sayings, attacks).write(folder)

    return write


@one_thread()
def audit_again(
    attacks: Attacks,
    run: Path,
    experiment: Experiment,
    specs: Sequence[RunSpec],
    folder: Path,
    progress: Progress,
    track: Sequence[str] = (),
    source: Source | None = None,
) -> list[Result | ColonnadeError]:
    """Train runs of the output folder `run` once more, and attack. Their results stay as they
    are."""
    first, known = specs[0], {result.run: result for result in read_results(run)}
    data = load(experiment.data, first.seed, source)
    algorithm, net = _built(experiment, first, data)
    net.watch = lambda round: progress(min(1.0, round / algorithm.total_rounds))
    write = recorded(attacks, algorithm, net, specs, folder)
    drive(algorithm.train(net))
    write()
    return [known.get(spec.run) or _untested(spec) for spec in specs]


@one_thread()
def audit_run(experiment: Experiment, spec: RunSpec) -> list[Finding]:
    """Train, and attack; nothing is written."""
    algorithm, net = _built(experiment, spec, load(experiment.data, spec.seed))
    attack = record(algorithm, net, spec.seed, ALL)
    drive(algorithm.train(net))
    found, _ = attack()
    return [msgspec.structs.replace(one, method=spec.settings.name) for one in found]


def _built(
    experiment: Experiment, spec: RunSpec, data: VerticalData
) -> tuple[Algorithm, StackedNetwork]:
    facts = {"topology": experiment.network.graph, "delays": experiment.network.delays}
    algorithm, net = build(spec.settings, data, spec.seed, fault=spec.fault, **facts)
    if experiment.stop_at_target:
        algorithm.training.target = experiment.target
    return algorithm, net


def _untested(spec: RunSpec) -> Result:
    return Result(spec.settings.name, spec.fault.name, spec.seed, spec.run, {}, {})


def findings(scene: Scene, attacks: Attacks) -> Found:
    """The best attempts, and sentences about what could not be attempted."""
    wanted = lambda one: one.attack.split(" on the ")[0] in attacks  # noqa: E731
    labels = best(filter(wanted, _on_labels(scene)), scene)
    about_columns = any(name in attacks for name in ATTACKS)
    columns = list(filter(wanted, column_attempts(scene))) if about_columns else []
    found = [one.finding(scene, "") for one in [*labels, *columns]]
    sayings = [] if attacks.names else list(_sayings(scene, found))
    rarest = min((_rarer(scene, one) for one in labels), default=ENOUGH)
    return found, [*sayings, FEW_OF_A_CLASS] if rarest < ENOUGH else sayings


def _on_labels(scene: Scene) -> Iterator[Attempt]:
    yield from label_attempts(scene)
    yield from completions(scene)


def standard_error(rows: int) -> float:
    """Of an AUC at chance, with so many rows of one class and many more of the other (Hanley and
    McNeil, 1982, "The meaning and use of the area under a receiver operating characteristic (ROC)
    curve")."""
    return 1 / sqrt(12 * rows)


def _rarer(scene: Scene, attempt: Attempt) -> int:
    """Rows of the rarer of two classes that an attempt on labels is measured on."""
    if scene.classes != 2:
        return ENOUGH
    return int(np.bincount(scene.labels[attempt.rows], minlength=2).min())


# Rows of the rarer class from which on two standard errors of the difference between an attack and
# its control, each √2 of that of one AUC, are at most CHANCE.
ENOUGH = ceil(8 / (12 * CHANCE**2))
FEW_OF_A_CLASS = (
    f"Fewer than {ENOUGH} of the attacked rows have the rarer label, so that figures of labels are "
    f"uncertain: an attack that tells nothing may be {CHANCE:g} above its control, or below. "
    "(The standard error of an AUC at chance is 1/√(12 n) with n such rows: "
    f"{standard_error(10):.2f} with 10, {standard_error(ENOUGH):.2f} with {ENOUGH}.)"
)
POOLED = "One party holds all columns, so that nothing is sent."


def _sayings(scene: Scene, found: Sequence[Finding]) -> Iterator[str]:
    receivers = {receiver for receiver, _ in scene.recorder.pairs()}
    if all(scene.labelled_by(receiver).all() for receiver in receivers):
        yield "Whoever is sent anything about single rows holds all labels anyway."
    elif not any(one.about_labels for one in found):
        least = 2 * KNOWN_LABELS + 1
        yield f"Labels were not attacked: that needs {least} rows whose labels a receiver lacks."
    elif not scene.classes:
        yield (
            "The label is a number: clusters are not attacked, because there are no classes; "
            "norm and direction are compared with the number."
        )
    if all(one.about_labels for one in found):
        if is_told(scene):
            needed = f"{LEAST} rows that a receiver is told about"
            yield f"Columns were not attacked: that needs {needed}."
        else:
            yield "Nobody receives anything about single rows of another party's columns."
