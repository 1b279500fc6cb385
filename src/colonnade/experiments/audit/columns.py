"""What receivers infer of the columns behind what they got."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from colonnade.experiments.audit.findings import COLUMNS
from colonnade.experiments.audit.recorder import Seen, Stream
from colonnade.experiments.audit.scene import Attempt, Baseline, Floats, Play, Scene, best
from colonnade.privacy import reconstruction

KNOWN = f"{reconstruction.KNOWN_ROWS:.0%} known rows".replace("%", " %")
RIDGE, NETWORK = "ridge", "network"
ATTACKS = (RIDGE, NETWORK)
ALL = "all clients"
CLASS_MEANS = "the mean of each class"


def column_attempts(scene: Scene) -> list[Attempt]:
    """Ridge regression in every epoch; a small network, which costs a hundred times as much, in the
    epoch, and on the link, where ridge regression did best."""
    found = best(_ridge_attempts(scene), scene)
    return [*found, *(_by_network(scene, one) for one in found)]


def _ridge_attempts(scene: Scene) -> Iterator[Attempt]:
    pairs = scene.recorder.pairs()
    receivers, senders = (scene.some([pair[k] for pair in pairs]) for k in range(2))
    outside = set(scene.algorithm.labels.parties) - set(scene.clients)
    for receiver in sorted(receivers):
        for stream, seen in scene.recorder.streams_to(receiver):
            new = scene.is_new(receiver, seen, COLUMNS)
            if stream.sender in senders - outside and new:
                yield from _attempts(scene, stream, seen)


def _attempts(scene: Scene, stream: Stream, seen: Seen) -> Iterator[Attempt]:
    rows = np.nonzero(seen.there)[0]
    if len(rows) <= 5 * reconstruction.LEAST_KNOWN:
        return
    owners, attack = [stream.sender], RIDGE
    if stream.sender == ALL:  # something about all clients, of whom each is somebody
        owners, attack = [ALL, *scene.clients], f"{RIDGE} on the {stream.kind}"
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
