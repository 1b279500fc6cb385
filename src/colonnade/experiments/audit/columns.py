"""What receivers infer of the columns behind what they got."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from colonnade.experiments.audit.findings import COLUMNS
from colonnade.experiments.audit.recorder import Seen, Stream
from colonnade.experiments.audit.scene import Attempt, Baseline, Floats, Play, Scene, best, stacked
from colonnade.privacy import reconstruction

KNOWN = f"{reconstruction.KNOWN_ROWS:.0%} known rows".replace("%", " %")
LEAST = 5 * reconstruction.LEAST_KNOWN + 1  # rows that are attacked: most of them are not known
RIDGE, NETWORK = "ridge", "network"
MEMORY = f"{RIDGE}, all epochs"
ATTACKS = (RIDGE, MEMORY, NETWORK)
ALL = "all clients"
CLASS_MEANS = "the mean of each class"


def column_attempts(scene: Scene) -> list[Attempt]:
    """Ridge regression in every epoch, and on several epochs together; a small network, which costs
    a hundred times as much, in the epoch, and on the link, where ridge regression did best."""
    found = best(_ridge_attempts(scene), scene)
    alone = [one for one in found if not one.attack.startswith(MEMORY)]
    return [*found, *(_by_network(scene, one) for one in alone)]


def is_told(scene: Scene) -> bool:
    """Whether anybody received anything about single rows of another party's columns, be it too
    little to attack."""
    return any(_told(scene, receiver) for receiver in {r for r, _ in scene.recorder.pairs()})


def _told(scene: Scene, receiver: str) -> list[tuple[Stream, Seen]]:
    """What a receiver got from a few of those who hold columns."""
    senders = scene.some([sender for _, sender in scene.recorder.pairs()])
    senders -= set(scene.algorithm.labels.parties) - set(scene.clients)
    return [one for one in scene.recorder.streams_to(receiver) if one[0].sender in senders]


def _ridge_attempts(scene: Scene) -> Iterator[Attempt]:
    for receiver in sorted(scene.some([receiver for receiver, _ in scene.recorder.pairs()])):
        told = _told(scene, receiver)
        for attack, streams in ((RIDGE, told), (MEMORY, stacked(told))):
            for stream, seen in streams:
                if scene.is_new(receiver, seen, COLUMNS):
                    yield from _attempts(scene, stream, seen, attack)


def _attempts(scene: Scene, stream: Stream, seen: Seen, attack: str) -> Iterator[Attempt]:
    rows = np.nonzero(seen.there)[0]
    if len(rows) < LEAST:
        return
    owners = [stream.sender]
    if stream.sender == ALL:  # something about all clients, of whom each is somebody
        owners, attack = [ALL, *scene.clients], f"{attack} on the {stream.kind}"
    elif stream.sender not in scene.clients:
        owners = [ALL]
    for owner in owners:
        play = _play(scene, owner, network=False)
        baseline = partial(_baseline, scene, owner, rows, play, len(owners) == 1)
        at = (attack, "R²", stream.epoch + 1, seen, rows, play, baseline, KNOWN)
        yield Attempt(stream.receiver, f"{COLUMNS} of {owner}", *at)


def _play(scene: Scene, owner: str, *, network: bool) -> Play:
    columns, training = scene.columns(owner), scene.recorder.rows

    def play(told: Floats, rows: NDArray[np.int64]) -> float:
        known = reconstruction.known_count(training, len(rows))
        return reconstruction.reconstruction(told, columns[rows], known, network=network)

    return play


def _by_network(scene: Scene, ridge: Attempt) -> Attempt:
    owner = ridge.secret.removeprefix(f"{COLUMNS} of ")
    play = _play(scene, owner, network=True)
    alone = ridge.attack == RIDGE
    return replace(
        ridge,
        attack=ridge.attack.replace(RIDGE, NETWORK),
        play=play,
        baseline=partial(_baseline, scene, owner, ridge.rows, play, alone),
    )


def _baseline(
    scene: Scene, owner: str, rows: NDArray[np.int64], play: Play, alone: bool
) -> Baseline:
    """What the classes tell of the columns; and what an encoder tells that has learnt nothing.
    `alone`: the receiver gets encodings of this owner alone."""
    columns: Floats = scene.columns(owner)[rows]
    means = untrained = None
    if scene.classes:
        means = reconstruction.class_means(scene.labels[rows], columns)
    if alone and scene.untrained is not None and owner in scene.clients:
        untrained = play(scene.untrained[scene.clients.index(owner)][rows], rows)
    return means, CLASS_MEANS if scene.classes else "", untrained
