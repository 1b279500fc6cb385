"""What attackers work with: a trained algorithm, and what each receiver got in its training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.experiments.audit.findings import ALL_COLUMNS, COLUMNS, LABELS, Finding
from colonnade.experiments.audit.recorder import Floats, Recorder, Seen, Stream
from colonnade.learning.algorithm import Algorithm
from colonnade.privacy.over_epochs import spread

PER_GROUP = 4  # receivers of one group, and senders of one group, that are looked at
GLANCE = 500  # rows on which attempts are compared, before the best are made on all rows
TRIED = 2  # of each attack by each group: attempts that are made on all rows, unless said otherwise

# How well a secret is inferred from what was seen of some rows, and which rows these are.
Play = Callable[[Floats, NDArray[np.int64]], float]
# What the attacker has anyway, what that is, and what encoders told before the training.
Baseline = tuple[float | None, str, float | None]


@dataclass(frozen=True)
class Scene:
    """Rows are those of the recorder's sample."""

    algorithm: Algorithm
    recorder: Recorder
    seed: int
    untrained: Floats | None  # encodings before the training [column holders, rows, width]
    _played: set[tuple[str, ...]] = field(default_factory=set)
    _columns: dict[str, Floats] = field(default_factory=dict)
    _baselines: dict[Any, float] = field(default_factory=dict)

    @cached_property
    def labels(self) -> NDArray[Any]:
        """Classes, or numbers."""
        y = self.algorithm.data.train.y.numpy()[self.recorder.sample]
        return y.astype(np.int64 if self.classes else np.float64)

    @property
    def classes(self) -> int:
        return self.algorithm.task.classes

    @property
    def clients(self) -> tuple[str, ...]:
        return self.algorithm.task.clients

    def columns(self, party: str) -> Floats:
        """Of a column holder; of anybody else: all columns, side by side."""
        if party not in self._columns:
            self._columns[party] = self._columns_of(party)
        return self._columns[party]

    def _columns_of(self, party: str) -> Floats:
        widths = self.algorithm.task.widths
        wanted = [party] if party in self.clients else list(self.clients)
        places = [self.clients.index(one) for one in wanted]
        x = self.algorithm.data.train.x[places][:, self.recorder.sample].double().numpy()
        return np.concatenate([x[k, :, : widths[i]] for k, i in enumerate(places)], 1)

    def labelled_by(self, party: str) -> NDArray[np.bool_]:
        """Which rows a party holds labels of."""
        held = np.zeros(self.recorder.rows, dtype=bool)
        held[self.algorithm.labelled_by(party).numpy()] = True
        return held[self.recorder.sample]

    def group_of(self, party: str) -> str:
        """The name of the smallest group that a party belongs to."""
        return group_of(self.algorithm, party)

    def is_new(self, receiver: str, seen: Seen, secret: str) -> bool:
        """Whether nobody else of the receiver's group was sent the same before: where one message
        goes to a whole group, the attack of a second receiver would be that of the first."""
        key = (self.group_of(receiver), str(seen.digest), secret)
        known = key in self._played
        self._played.add(key)
        return not known

    def once(self, key: Any, play: Callable[[], float]) -> float:
        """What several attacks are compared with is made once."""
        if key not in self._baselines:
            self._baselines[key] = play()
        return self._baselines[key]

    @cached_property
    def epochs(self) -> int:
        """In which anybody received anything, up to the last."""
        return 1 + max((stream.epoch for stream in self.recorder.streams), default=0)

    def some(self, parties: Iterable[str]) -> set[str]:
        """A few parties of each group."""
        chosen = first_few(self.algorithm)
        return {party for party in parties if chosen(party)}


def group_of(algorithm: Algorithm, party: str) -> str:
    """The name of the smallest group that a party belongs to."""
    groups = [g for g in algorithm.groups if party in g.parties]
    return min(groups, key=len).name if groups else party


def first_few(algorithm: Algorithm) -> Callable[[str], bool]:
    """Whether a party is one of the first of its group that are asked about."""
    found: dict[str, list[str]] = {}

    def chosen(party: str) -> bool:
        members = found.setdefault(group_of(algorithm, party), [])
        if party not in members and len(members) < PER_GROUP:
            members.append(party)
        return party in members

    return chosen


def encodings(algorithm: Algorithm, rows: NDArray[np.int64]) -> Floats | None:
    """Of some training rows as they are now, [column holders, rows, width], where anybody ever sees
    encodings."""
    if not any(exchange.encodes for exchange in algorithm.exchanges):
        return None
    told = algorithm.embed(algorithm.data.train)
    return None if told is None else told[:, rows].detach().double().numpy()


def stacked(streams: Iterable[tuple[Stream, Seen]]) -> Iterator[tuple[Stream, Seen]]:
    """What came over each link in several epochs, side by side, of rows of which something came in
    all of these; with the newest stream. Nothing for links on which something came in one epoch
    only. `streams`: in the order of their epochs."""
    links: dict[tuple[str, str, str], list[tuple[Stream, Seen]]] = {}
    for stream, seen in streams:
        links.setdefault(stream.link, []).append((stream, seen))
    for pages in links.values():
        if len(pages) > 1:
            few = [seen for _, seen in spread(pages)]
            there = np.logical_and.reduce([seen.there for seen in few])
            yield pages[-1][0], Seen(np.concatenate([seen.values for seen in few], 1), there)


@dataclass(frozen=True)
class Attempt:
    """One attack by one receiver, on some rows of what it saw in one epoch, or in several."""

    receiver: str
    secret: str
    attack: str
    measure: str
    epoch: int  # 1 is the first; of several, the newest
    seen: Seen
    rows: NDArray[np.int64]
    play: Play
    baseline: Callable[[], Baseline] = lambda: (None, "", None)
    knows: str = ""
    quick: Play | None = None  # tells much the same as `play`, in less time
    tried: int = TRIED

    @cached_property
    def glance(self) -> float:
        """About how well it does: on some of the rows, and quickly."""
        rows = self.rows[:GLANCE]
        return (self.quick or self.play)(self.seen.of(rows), rows)

    @cached_property
    def success(self) -> float:
        """On all rows."""
        return self.play(self.seen.of(self.rows), self.rows)

    def finding(self, scene: Scene, method: str) -> Finding:
        """With its control: the same attack, with rows out of order."""
        seen = self.seen.of(self.rows)
        control = self.play(np.roll(seen, len(seen) // 2, axis=0), self.rows)
        return Finding(
            method,
            scene.group_of(self.receiver),
            self.receiver,
            self.secret,
            self.attack,
            self.measure,
            self.success,
            self.epoch,
            control,
            *self.baseline(),
            knows=self.knows,
            seed=scene.seed,
        )


def best(attempts: Iterator[Attempt], scene: Scene) -> list[Attempt]:
    """Of all receivers of a group, all senders of a group and all epochs: the best attempt of each
    kind. A few are made on all rows, and the best of these is given a control and a baseline."""
    found: dict[tuple[str, ...], list[Attempt]] = {}
    for one in attempts:
        kind = one.secret if one.secret in (LABELS, ALL_COLUMNS) else COLUMNS
        few = found.setdefault((scene.group_of(one.receiver), kind, one.attack), [])
        few.append(one)
        few.sort(key=lambda one: -one.glance)
        del few[one.tried :]
    return [max(few, key=lambda one: one.success) for few in found.values()]
