"""What receivers infer of labels that they do not hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import InputError
from colonnade.experiments.audit.findings import COMPLETION, FEW, LABELS
from colonnade.experiments.audit.recorder import Floats, Seen, Stream
from colonnade.experiments.audit.scene import GLANCE, Attempt, Baseline, Play, Scene, encodings
from colonnade.privacy import attacks, over_epochs

MEMORY = "direction, all epochs"
BESIDE = "norm beside the main axis"
LINES = "lines of batches"
CLUSTERS_MEMORY = "clusters, all epochs"
FEW_MEMORY = f"{FEW}, all epochs"
OWN_LABELS = "its own labels"
OWN_COLUMNS = "its own columns"
# By attack on labels: for which goals. 2: two classes; 3: more; 0: numbers.
GOALS = {
    "norm": (2, 0),
    "direction": (2, 0),
    MEMORY: (2,),
    BESIDE: (2,),
    LINES: (2,),
    "clusters": (3,),
    CLUSTERS_MEMORY: (3,),
    FEW: (2, 3, 0),
    FEW_MEMORY: (2, 3),
    COMPLETION: (2, 3, 0),
    OWN_LABELS: (2, 3),
}
FOR = {2: "two classes", 3: "more than two classes", 0: "labels that are numbers"}


def goal_of(classes: int) -> int:
    return min(classes, 3)


def check(names: Sequence[str], others: Sequence[str], classes: int, source: str) -> None:
    """InputError: an attack that there is not, or that does not apply to the labels. `others`:
    attacks on columns, which apply always."""
    for name in names:
        if name not in (*GOALS, *others):
            known = ", ".join(f"'{one}'" for one in (*GOALS, *others))
            raise InputError(f"--attack '{name}': there are {known}")
        if name in GOALS and goal_of(classes) not in GOALS[name]:
            goals = " or ".join(FOR[goal] for goal in GOALS[name])
            mine = FOR[goal_of(classes)]
            raise InputError(f"--attack '{name}': is for {goals}, and {source} has {mine}")


def label_attempts(scene: Scene) -> Iterator[Attempt]:
    """By every party that does not hold all labels, on rows whose labels it does not hold, epoch by
    epoch."""
    for receiver in sorted(scene.some([r for r, _ in scene.recorder.pairs()])):
        unknown = ~scene.labelled_by(receiver)
        if not unknown.any():
            continue
        streams = scene.recorder.streams_to(receiver)
        alone = [(stream.epoch, seen) for stream, seen in streams]
        for epoch, seen in [*alone, *scene.recorder.together(receiver)]:
            if scene.is_new(receiver, seen, LABELS):
                yield from _on(scene, receiver, epoch, seen, unknown)
        for stream, seen in streams if not unknown.all() else ():
            yield from _with_own_labels(scene, stream, seen, unknown)
        if scene.classes:
            yield from _with_memory(scene, receiver, unknown)


def _on(
    scene: Scene, receiver: str, epoch: int, seen: Seen, unknown: NDArray[np.bool_]
) -> Iterator[Attempt]:
    rows = np.nonzero(seen.there & unknown)[0]
    if len(rows) <= 2 * attacks.KNOWN_LABELS:
        return
    quick = _plays(scene, quick=True)
    for name, play in _plays(scene).items():
        baseline = partial(_own_columns, scene, receiver, rows, name)
        knows = FEW if name == FEW else ""
        at = (measure(scene), epoch + 1, seen, rows, play, baseline, knows, quick[name])
        yield Attempt(receiver, LABELS, name, *at)


def _own_columns(scene: Scene, receiver: str, rows: NDArray[np.int64], attack: str) -> Baseline:
    """The same attack on the columns that a column holder has."""
    if receiver not in scene.clients:
        return None, "", None
    play = lambda: _plays(scene)[attack](scene.columns(receiver)[rows], rows)  # noqa: E731
    return scene.once((receiver, attack, rows.tobytes()), play), OWN_COLUMNS, None


@dataclass(frozen=True)
class Remembered:
    """What a receiver makes of the messages of several epochs for one attack."""

    attack: str
    once: str  # the attack on a single epoch that it is compared with
    values: Floats  # [sample, numbers]
    play: Play
    quick: Play
    knows: str = ""


def _with_memory(scene: Scene, receiver: str, unknown: NDArray[np.bool_]) -> Iterator[Attempt]:
    """By what is known of a row from several epochs together."""
    memories = _sides(scene, receiver) if scene.classes == 2 else _pages(scene, receiver)
    for epoch, there, remembered in memories:
        rows = np.nonzero(there & unknown)[0]
        if len(rows) <= 2 * attacks.KNOWN_LABELS:
            continue
        for one in remembered:
            baseline = partial(_own_columns, scene, receiver, rows, one.once)
            seen = Seen(one.values.astype(np.float32), there)
            at = (measure(scene), epoch, seen, rows, one.play, baseline, one.knows, one.quick)
            yield Attempt(receiver, LABELS, one.attack, *at, tried=1)  # there are few, all alike


# The newest epoch (1 is the first), which rows of the sample are known, and what is made of them.
Memories = Iterator[tuple[int, NDArray[np.bool_], list[Remembered]]]


def _sides(scene: Scene, receiver: str) -> Memories:
    """Two classes: from each sender, the sides of all gradients of a row."""
    labels, sample = scene.labels, len(scene.recorder.sample)
    for sides in scene.recorder.remembered(receiver):
        batches = sides.batches
        along, units = sides.along.astype(np.float64), sides.units.astype(np.float64)
        forms = [one[:sample] for one in over_epochs.scaled(along, units, batches)]
        there = (batches[:sample] >= 0).sum(1) > 1

        def best(seen: Floats, at: NDArray[np.int64]) -> float:
            return over_epochs.by_best_score(seen, labels[at])

        scores = over_epochs.scores(forms)
        lengths = over_epochs.lengths(sides.beside[:sample].astype(np.float64), batches[:sample])
        found = [Remembered(MEMORY, "direction", scores, best, best)]
        found.append(Remembered(BESIDE, "norm", lengths, best, best))
        if sides.lines is not None and sides.feet is not None:
            pair = (sides.lines.astype(np.float64), sides.feet.astype(np.float64))
            lines = over_epochs.lines(*pair, batches[:sample])
            found.append(Remembered(LINES, "direction", lines, best, best))
        found.append(_few_of(scene, over_epochs.windows(forms), len(forms)))
        yield batches.shape[1], there, found


def _pages(scene: Scene, receiver: str) -> Memories:
    """More classes: over each link, the gradients of the epochs that the recorder keeps."""
    links: dict[tuple[str, str, str], list[tuple[Stream, Seen]]] = {}
    for stream, seen in scene.recorder.streams_to(receiver):
        links.setdefault(stream.link, []).append((stream, seen))
    for pages in links.values():
        if len(pages) < 2 or not scene.is_new(receiver, pages[-1][1], MEMORY):
            continue
        there = np.logical_and.reduce([seen.there for _, seen in pages])
        forms = over_epochs.together([seen.values for _, seen in pages], there, scene.classes)
        once, quick = (_plays(scene, quick=quick)["clusters"] for quick in (False, True))
        found = [
            Remembered(CLUSTERS_MEMORY, "clusters", forms[0], once, quick),
            _few_of(scene, np.concatenate(forms, 1), len(forms)),
        ]
        yield pages[-1][0].epoch + 1, there, found


def _few_of(scene: Scene, values: Floats, forms: int) -> Remembered:
    plays = (_best_of(forms, _few(scene, quick=quick)) for quick in (False, True))
    return Remembered(FEW_MEMORY, FEW, values, *plays, knows=FEW)


def _best_of(forms: int, play: Play) -> Play:
    """The best of several forms that stand side by side."""
    return lambda seen, rows: max(play(one, rows) for one in np.split(seen, forms, axis=1))


def _with_own_labels(
    scene: Scene, stream: Stream, seen: Seen, unknown: NDArray[np.bool_]
) -> Iterator[Attempt]:
    """A party that holds labels of some rows knows the gradients of these rows, because it computes
    them; a model of these is applied to the gradients that another label holder sends."""
    me = stream.receiver
    mine = scene.recorder.streams.get(Stream(stream.epoch, me, me, stream.kind))
    if mine is None:
        return
    own, rows = np.nonzero(mine.there & ~unknown)[0], np.nonzero(seen.there & unknown)[0]
    if min(len(own), len(rows)) <= attacks.KNOWN_LABELS:
        return
    fit = partial(attacks.by_own_labels, binary=scene.classes == 2)
    labels, columns = scene.labels, scene.columns(me)
    play: Play = lambda told, at: fit(mine.of(own), labels[own], told, labels[at])  # noqa: E731
    few = own[:GLANCE]
    quick: Play = lambda told, at: fit(  # noqa: E731
        mine.of(few), labels[few], told, labels[at], quick=True
    )
    anyway = lambda: fit(columns[own], labels[own], columns[rows], labels[rows])  # noqa: E731
    baseline = lambda: (anyway(), OWN_COLUMNS, None)  # noqa: E731
    at = (measure(scene), stream.epoch + 1, seen, rows, play, baseline, OWN_LABELS, quick)
    yield Attempt(me, LABELS, OWN_LABELS, *at)


def completions(scene: Scene) -> Iterator[Attempt]:
    """Model completion: a column holder reads labels from its own trained encoder."""
    told = encodings(scene.algorithm, scene.recorder.sample)
    if told is None:
        return
    for party in sorted(scene.some(scene.clients)):
        rows = np.nonzero(~scene.labelled_by(party))[0]
        if len(rows) <= 2 * attacks.KNOWN_LABELS:
            continue
        play = _few(scene)
        own = told[scene.clients.index(party)].astype(np.float32)
        seen = Seen(own, np.ones(len(own), dtype=bool))
        baseline = partial(_own_columns, scene, party, rows, FEW)
        at = (measure(scene), scene.epochs, seen, rows, play, baseline, FEW)
        at = (*at, _few(scene, quick=True))
        yield Attempt(party, LABELS, COMPLETION, *at)


def measure(scene: Scene) -> str:
    return {0: "R²", 2: "AUC"}.get(scene.classes, "accuracy")


def _few(scene: Scene, *, quick: bool = False) -> Play:
    labels = scene.labels
    if not scene.classes:
        return lambda seen, rows: attacks.number_by_few_labels(seen, labels[rows])
    few = partial(attacks.by_few_labels, binary=scene.classes == 2, quick=quick)
    return lambda seen, rows: few(seen, labels[rows])


def _plays(scene: Scene, *, quick: bool = False) -> dict[str, Play]:
    """`quick`: variants that tell much the same in less time, to compare attempts."""
    labels, few = scene.labels, {FEW: _few(scene, quick=quick)}
    if scene.classes > 2:
        find = partial(attacks.by_clusters, classes=scene.classes, seed=scene.seed, quick=quick)
        return {"clusters": lambda seen, rows: find(seen, labels[rows]), **few}
    if scene.classes == 2:
        by_norm, by_direction = attacks.by_norm, attacks.by_direction
    else:
        by_norm, by_direction = attacks.number_by_norm, attacks.number_by_direction
    return {
        "norm": lambda seen, rows: by_norm(seen, labels[rows]),
        "direction": lambda seen, rows: by_direction(seen, labels[rows]),
        **few,
    }
