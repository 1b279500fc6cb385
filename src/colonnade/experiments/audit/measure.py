"""Train once more with a recorder, and play each receiver: what can it infer from what it got?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from colonnade.common.processes import one_thread
from colonnade.data import load
from colonnade.errors import InputError
from colonnade.experiments.audit.recorder import Recorder, Seen
from colonnade.experiments.config import Experiment
from colonnade.experiments.run import RunSpec, build, drive
from colonnade.learning.algorithm import Algorithm
from colonnade.network import Network
from colonnade.privacy import attacks

PER_GROUP = 4  # receivers of one group, and senders of one group, that are looked at
LABELS, COLUMNS = "labels", "columns"
FEW = f"{attacks.KNOWN_LABELS} known labels"
COMPLETION = "model completion"
OWN = f"its own columns and {FEW}"

Floats = NDArray[np.float64]
Attack = Callable[[Floats], float]  # how well a secret is inferred from what was seen


class Finding(msgspec.Struct, frozen=True):
    """The best that receivers of one kind did with one attack, over all of them and all epochs."""

    method: str
    receiver: str
    secret: str  # LABELS, or COLUMNS of somebody
    attack: str
    measure: str  # AUC, accuracy or R²
    success: float
    epoch: int  # 1 is the first
    control: float  # the same with rows out of order: what chance gives
    baseline: float | None = None
    baseline_of: str = ""  # what the baseline is

    @property
    def about_labels(self) -> bool:
        return self.secret == LABELS


@dataclass(frozen=True)
class Scene:
    """A trained algorithm, and what was recorded in its training."""

    algorithm: Algorithm
    net: Network
    recorder: Recorder
    method: str
    seed: int

    @property
    def labels(self) -> NDArray[np.int64]:
        return self.algorithm.data.train.y.numpy().astype(np.int64)

    @property
    def classes(self) -> int:
        return self.algorithm.task.classes

    def columns(self, party: str) -> Floats:
        """Of a column holder; of anybody else: all columns, side by side."""
        clients, widths = self.algorithm.task.clients, self.algorithm.task.widths
        x = self.algorithm.data.train.x.double().numpy()
        wanted = [party] if party in clients else list(clients)
        return np.concatenate(
            [x[clients.index(p), :, : widths[clients.index(p)]] for p in wanted], 1
        )


@one_thread()
def audit_run(experiment: Experiment, spec: RunSpec) -> list[Finding]:
    """Train as the run did, and attack."""
    data = load(experiment.data, spec.seed)
    facts = {"topology": experiment.network.graph, "delays": experiment.network.delays}
    algorithm, net = build(spec.settings, data, spec.seed, fault=spec.fault, **facts)
    if algorithm.pooled:
        return []
    if not algorithm.data.train.rows:
        raise InputError(f"{spec.settings.name}: there are no training rows to audit")
    untrained = _embedded(algorithm)
    net.recorder = recorder = Recorder(algorithm.data.train.rows)
    drive(algorithm.train(net))
    scene = Scene(algorithm, net, recorder, spec.settings.name, spec.seed)
    found = [*label_findings(scene), *completions(scene), *column_findings(scene, untrained)]
    return worst(found, scene)


def _embedded(algorithm: Algorithm) -> Floats | None:
    """The encodings of the training rows as they are now, [column holders, rows, width], where
    anybody ever sees them."""
    if not any(exchange.encodes for exchange in algorithm.exchanges):
        return None
    told = algorithm.embed(algorithm.data.train)
    return None if told is None else told.detach().double().numpy()


def group_of(scene: Scene, party: str) -> str:
    """The name of the first group that a party belongs to."""
    groups = scene.algorithm.groups
    return next((g.name for g in groups if party in g.parties), party)


def worst(found: list[Finding], scene: Scene) -> list[Finding]:
    """Of all receivers of a group, and all senders of a group: the best attack of each kind."""
    best: dict[tuple[str, ...], Finding] = {}
    for one in found:
        secret = one.secret if one.about_labels else group_of(scene, one.secret.split(" of ")[-1])
        key = (group_of(scene, one.receiver), secret, one.attack)
        if key not in best or one.success > best[key].success:
            best[key] = one
    return list(best.values())


# -- labels ----------------------------------------------------------------------------------------


def label_findings(scene: Scene) -> Iterator[Finding]:
    """What those who hold no labels infer of them, epoch by epoch."""
    if not scene.classes:
        return
    for receiver in _some(scene, [r for r, _ in scene.recorder.pairs()]):
        if receiver in scene.algorithm.labels.parties:
            continue
        alone = [(s.epoch, seen) for s, seen in scene.recorder.streams_to(receiver)]
        for epoch, seen in [*alone, *scene.recorder.together(receiver)]:
            if len(seen.rows) > 2 * attacks.KNOWN_LABELS:
                yield from _attack_labels(scene, receiver, epoch, seen)
        if scene.classes == 2:
            yield from _attack_with_memory(scene, receiver)


def _attack_with_memory(scene: Scene, receiver: str) -> Iterator[Finding]:
    """Directions of all epochs added up: noise that is drawn anew in each epoch averages out."""
    for epochs, seen in scene.recorder.remembered(receiver):
        rows = _sample(seen.rows, scene.seed)
        side, positive = seen.values[rows, 0], scene.labels[rows] == 1
        control = attacks.auc(np.roll(side, len(side) // 2), positive)
        figures = ("AUC", attacks.auc(side, positive), epochs, control)
        yield Finding(scene.method, receiver, LABELS, "direction, all epochs", *figures)


def _attack_labels(scene: Scene, receiver: str, epoch: int, seen: Seen) -> Iterator[Finding]:
    rows = _sample(seen.rows, scene.seed)
    values, labels = seen.values[rows], scene.labels[rows]
    measure = "AUC" if scene.classes == 2 else "accuracy"
    for name, attack in _label_attacks(scene, labels).items():
        control = attack(np.roll(values, len(values) // 2, axis=0))
        base, said = None, ""  # whoever knows no labels has nothing else to go by
        if name == FEW and receiver in scene.algorithm.task.clients:
            base, said = attack(scene.columns(receiver)[rows]), OWN
        figures = (measure, attack(values), epoch + 1, control, base, said)
        yield Finding(scene.method, receiver, LABELS, name, *figures)


def _few(scene: Scene, labels: NDArray[np.int64]) -> Attack:
    binary = scene.classes == 2
    return lambda seen: attacks.by_few_labels(seen, labels, scene.seed, binary=binary)


def _label_attacks(scene: Scene, labels: NDArray[np.int64]) -> dict[str, Attack]:
    few = {FEW: _few(scene, labels)}
    if scene.classes == 2:
        return {
            "norm": lambda seen: attacks.by_norm(seen, labels),
            "direction": lambda seen: attacks.by_direction(seen, labels),
            **few,
        }
    clusters = lambda seen: attacks.by_clusters(seen, labels, scene.classes, scene.seed)  # noqa: E731
    return {"clusters": clusters, **few}


def completions(scene: Scene) -> Iterator[Finding]:
    """Model completion: a column holder reads labels from its own trained encoder."""
    told = _embedded(scene.algorithm)
    if told is None or not scene.classes:
        return
    rows = _sample(np.arange(scene.recorder.rows), scene.seed)
    labels = scene.labels[rows]
    if len(rows) <= 2 * attacks.KNOWN_LABELS:
        return
    measure = "AUC" if scene.classes == 2 else "accuracy"
    attack, clients = _few(scene, labels), scene.algorithm.task.clients
    for party in _some(scene, list(clients)):
        if party in scene.algorithm.labels.parties:
            continue
        own = told[clients.index(party)][rows]
        base = attack(scene.columns(party)[rows])
        control = attack(np.roll(own, len(own) // 2, axis=0))
        last = max(scene.recorder.epochs(party), default=0) + 1
        figures = (measure, attack(own), last, control, base, OWN)
        yield Finding(scene.method, party, LABELS, COMPLETION, *figures)


# -- columns ---------------------------------------------------------------------------------------


def column_findings(scene: Scene, untrained: Floats | None) -> Iterator[Finding]:
    """What receivers infer of the columns behind what a party sent."""
    pairs = scene.recorder.pairs()
    receivers, senders = (_some(scene, [pair[k] for pair in pairs]) for k in range(2))
    outside = set(scene.algorithm.labels.parties) - set(scene.algorithm.task.clients)
    for receiver, sender in pairs:
        if receiver not in receivers or sender not in senders or sender in outside:
            continue
        for stream, seen in scene.recorder.streams_to(receiver):
            if stream.sender == sender and len(seen.rows) > 5 * attacks.LEAST_KNOWN:
                yield _attack_columns(scene, receiver, sender, stream.epoch, seen, untrained)


def _attack_columns(
    scene: Scene, receiver: str, sender: str, epoch: int, seen: Seen, untrained: Floats | None
) -> Finding:
    rows = _sample(seen.rows, scene.seed)
    values, columns = seen.values[rows], scene.columns(sender)[rows]
    attack: Attack = lambda told: attacks.reconstruction(told, columns, scene.seed)  # noqa: E731
    baselines = {}
    if scene.classes:
        baselines["the mean of each class"] = attacks.class_means(scene.labels[rows], columns)
    if untrained is not None and sender in scene.algorithm.task.clients:
        fresh = untrained[scene.algorithm.task.clients.index(sender)][rows]
        baselines["its encoder before the training"] = attack(fresh)
    said = max(baselines, key=baselines.__getitem__, default="")
    control = attack(np.roll(values, len(values) // 2, axis=0))
    figures = ("R²", attack(values), epoch + 1, control, baselines.get(said), said)
    name = f"{attacks.KNOWN_ROWS:.0%} known rows"
    return Finding(scene.method, receiver, f"{COLUMNS} of {sender}", name, *figures)


# -- samples ---------------------------------------------------------------------------------------


def _sample(rows: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    order = np.random.default_rng(seed).permutation(len(rows))
    return rows[order[: attacks.MOST]]


def _some(scene: Scene, parties: list[str]) -> set[str]:
    """A few parties of each group."""
    chosen: dict[str, list[str]] = {}
    for party in dict.fromkeys(parties):
        chosen.setdefault(group_of(scene, party), []).append(party)
    return {party for members in chosen.values() for party in members[:PER_GROUP]}


def specs(experiment: Experiment, method: str | None, seed: int | None) -> list[RunSpec]:
    """The runs to audit: of each method, with the first faults."""
    names = [one.name for one in experiment.methods]
    if method is not None and method not in names:
        raise InputError(f"--method {method}: there are {', '.join(names)}")
    chosen = experiment.seeds[0] if seed is None else seed
    return [
        RunSpec(one, experiment.faults[0], chosen, one.name)
        for one in experiment.methods
        if method in (None, one.name)
    ]
