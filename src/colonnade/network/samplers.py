"""The samplers of faults: they draw, exchange by exchange, which messages leave and arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Protocol

import numpy as np

from colonnade.errors import InputError
from colonnade.network.chains import Chains, History
from colonnade.network.topology import Group, Links

Mask = np.ndarray | None  # bool; None stands for "all"


@dataclass(frozen=True)
class Passage:
    """Which messages of one exchange left their senders, and which of these arrived, by receiver
    and slot."""

    sent: Mask  # [receivers, in-degree]
    arrived: Mask  # [receivers, in-degree]
    attempts: np.ndarray | None = None  # how often each message was sent [receivers, in-degree]


CLEAR = Passage(None, None)
PROGRAM = "program "  # and its number: whose masks these are, in a trace


class Shared(Protocol):
    """The faults of programs that run side by side: after the same number of rounds or
    communications, all of them find the same parties and links down."""

    def sampler(self) -> Sampler:
        """For one of the programs."""
        ...

    def settle(self) -> None:
        """The programs have ended: what is down now is down in the surrounding program."""
        ...


class Sampler(Protocol):
    """Draws the faults of one program."""

    def exchange(self, links: Links, round: int, again: bool = False) -> Passage:
        """What happens to the messages of the next exchange. `again`: another attempt of the same
        exchange, after some time."""
        ...

    def call(self, group: Group, round: int) -> None:
        """The group computes without an exchange: draw faults that are drawn at each call."""
        ...

    def alive(self, group: Group, round: int) -> Mask:
        """Which members of the group are up now. [members]"""
        ...

    def side_by_side(self, seed: int) -> Shared:
        """The faults of programs that start side by side now."""
        ...


@dataclass(frozen=True)
class Copies:
    """Each program has its own copy of a sampler without randomness."""

    sampler: Callable[[], Sampler]

    def settle(self) -> None:
        """Nothing is shared."""


@dataclass(frozen=True)
class Readers:
    """Each program reads the same history at its own pace."""

    history: History
    of: Callable[[Chains], Sampler]

    def sampler(self) -> Sampler:
        return self.of(self.history.reader())

    def settle(self) -> None:
        self.history.settle()


@dataclass(frozen=True)
class InTurn:
    """The programs' samplers by number, each going on where it was when programs last ran side by
    side."""

    of: Callable[[int], Sampler]
    given: Iterator[int] = field(default_factory=count)

    def sampler(self) -> Sampler:
        return self.of(next(self.given))

    def settle(self) -> None:
        """Each keeps its own place."""


class Calm:
    """Nothing ever fails."""

    def exchange(self, links: Links, round: int, again: bool = False) -> Passage:
        return CLEAR

    def call(self, group: Group, round: int) -> None:
        """Nothing to draw."""

    def alive(self, group: Group, round: int) -> Mask:
        return None

    def side_by_side(self, seed: int) -> Shared:
        return Copies(lambda: self)


class PartyFaults:
    """Parties that are away neither compute, nor send, nor receive."""

    def __init__(self, chain: Chains, struck: tuple[str, ...], every_round: bool) -> None:
        self.chain, self.struck, self.every_round = chain, struck, every_round
        self._place = dict(zip(struck, chain.ids(struck).tolist(), strict=True))
        self._round = -1
        self._tables: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._called: dict[tuple[str, ...], np.ndarray] = {}

    def exchange(self, links: Links, round: int, again: bool = False) -> Passage:
        if not self.every_round:
            self.chain.move(self._struck_among(links.src, links.dst))
        elif again:
            self.chain.move()
        else:
            self._new_round(round)
        senders, receivers = self._state(links.src), self._state(links.dst)
        if senders.all() and receivers.all():
            return CLEAR
        sent = senders[links.senders]
        return Passage(sent, sent & receivers[:, None])

    def call(self, group: Group, round: int) -> None:
        if not self.every_round:
            self.chain.move(self._struck_among(group))

    def alive(self, group: Group, round: int) -> Mask:
        if self.every_round:
            self._new_round(round)
        return self._state(group)

    def side_by_side(self, seed: int) -> Shared:
        of = lambda chain: PartyFaults(chain, self.struck, self.every_round)  # noqa: E731
        return Readers(self.chain.side_by_side(seed), of)

    def _new_round(self, round: int) -> None:
        if round != self._round:
            self.chain.move()
            self._round = round

    def _struck_among(self, *groups: Group) -> np.ndarray:
        key = tuple(group.name for group in groups)
        if key not in self._called:
            called = dict.fromkeys(party for group in groups for party in group.parties)
            ids = [i for party, i in self._place.items() if party in called]
            self._called[key] = np.array(ids, dtype=np.int64)
        return self._called[key]

    def _state(self, group: Group) -> np.ndarray:
        if group.name not in self._tables:
            members = [i for i, party in enumerate(group.parties) if party in self._place]
            ids = [self._place[group.parties[i]] for i in members]
            self._tables[group.name] = np.array(members, np.int64), np.array(ids, np.int64)
        members, ids = self._tables[group.name]
        state = np.ones(len(group), dtype=bool)
        state[members] = self.chain.state[ids]
        return state


class LinkFaults:
    """A message over a link that is down does not leave its sender."""

    def __init__(self, chain: Chains, directed: bool, every_round: bool) -> None:
        self.chain, self.directed, self.every_round = chain, directed, every_round
        self._round = -1
        self._tables: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]] = {}

    def exchange(self, links: Links, round: int, again: bool = False) -> Passage:
        each, by_slot = self._chains_of(links)
        if not self.every_round:
            self.chain.move(each)
        elif again or round != self._round:
            self.chain.move()
            self._round = round
        up = self.chain.state[by_slot] | links.own
        return Passage(up, up)

    def call(self, group: Group, round: int) -> None:
        """Computing alone uses no link."""

    def alive(self, group: Group, round: int) -> Mask:
        return None

    def side_by_side(self, seed: int) -> Shared:
        of = lambda chain: LinkFaults(chain, self.directed, self.every_round)  # noqa: E731
        return Readers(self.chain.side_by_side(seed), of)

    def _chains_of(self, links: Links) -> tuple[np.ndarray, np.ndarray]:
        """The chains of these links: each once, and by receiver and slot."""
        key = (links.src.name, links.dst.name)
        if key not in self._tables:
            pairs = [
                (links.src.parties[sender], receiver)
                for receiver, row in zip(links.dst.parties, links.senders, strict=True)
                for sender in row
            ]
            names = pairs if self.directed else [tuple(sorted(pair)) for pair in pairs]
            ids = self.chain.ids(names).reshape(links.shape)
            self._tables[key] = np.unique(ids), ids
        return self._tables[key]


@dataclass
class CatastropheFaults:
    """From round `at` on, the parties in `back` are down until their return."""

    at: int
    back: dict[str, float]  # the round of return
    waited: int = 0  # repeated attempts so far; each takes as long as a round

    def exchange(self, links: Links, round: int, again: bool = False) -> Passage:
        self.waited += again
        if round + self.waited < self.at:
            return CLEAR
        sent = self._state(links.src, round)[links.senders]
        return Passage(sent, sent & self._state(links.dst, round)[:, None])

    def call(self, group: Group, round: int) -> None:
        """Nothing to draw: the lost parties were drawn at the start."""

    def alive(self, group: Group, round: int) -> Mask:
        return None if round + self.waited < self.at else self._state(group, round)

    def side_by_side(self, seed: int) -> Shared:
        return Copies(lambda: replace(self))

    def _state(self, group: Group, round: int) -> np.ndarray:
        now = round + self.waited
        return np.array([self.back.get(party, -1) <= now for party in group.parties])


class TraceReplay:
    """Replays recorded masks, exchange by exchange."""

    def __init__(self, masks: dict[str, np.ndarray]) -> None:
        self.masks = masks
        self.position: dict[str, int] = {}
        self.programs: dict[int, TraceReplay] = {}

    def exchange(self, links: Links, round: int, again: bool = False) -> Passage:
        pair = f"{links.src.name}>{links.dst.name}"
        k = self.position.get(pair, 0)
        self.position[pair] = k + 1
        sent, arrived = (self._row(f"{key}:{pair}", k, links.shape) for key in ("sent", "arrived"))
        return Passage(sent, arrived)

    def call(self, group: Group, round: int) -> None:
        """Nothing to draw: the trace holds which members were up, round by round."""

    def alive(self, group: Group, round: int) -> Mask:
        return self._row(f"alive:{group.name}", round, (len(group),))

    def side_by_side(self, seed: int) -> Shared:
        return InTurn(
            lambda k: self.programs.setdefault(k, TraceReplay(_of_program(self.masks, k)))
        )

    def _row(self, key: str, k: int, shape: tuple[int, ...]) -> Mask:
        recorded = self.masks.get(key)
        if recorded is None or not len(recorded):
            return None
        if recorded.shape[1:] != shape:
            raise InputError(f"the trace has {recorded.shape[1:]} in {key}, expected {shape}")
        return recorded[k % len(recorded)]


class Recorder:
    """Wraps a sampler and keeps what it drew, for `Trace` to replay."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self.rows: dict[str, list[np.ndarray]] = {}
        self.programs: dict[int, Recorder] = {}

    def exchange(self, links: Links, round: int, again: bool = False) -> Passage:
        passage = self.sampler.exchange(links, round, again)
        pair = f"{links.src.name}>{links.dst.name}"
        full = np.ones(links.shape, dtype=bool)
        for key, mask in (("sent", passage.sent), ("arrived", passage.arrived)):
            self.rows.setdefault(f"{key}:{pair}", []).append(full if mask is None else mask.copy())
        return passage

    def call(self, group: Group, round: int) -> None:
        self.sampler.call(group, round)

    def alive(self, group: Group, round: int) -> Mask:
        mask = self.sampler.alive(group, round)
        rows = self.rows.setdefault(f"alive:{group.name}", [])
        state = np.ones(len(group), dtype=bool) if mask is None else mask.copy()
        rows.extend([state] * (round + 1 - len(rows)))
        rows[round] = state
        return mask

    def side_by_side(self, seed: int) -> Shared:
        """What each of the programs side by side draws is recorded under its number."""
        shared = self.sampler.side_by_side(seed)

        def recorder(k: int) -> Sampler:
            one = self.programs.setdefault(k, Recorder(Calm()))
            one.sampler = shared.sampler()
            return one

        return Recorded(recorder, shared=shared)

    def masks(self) -> dict[str, np.ndarray]:
        own = {key: np.stack(rows) for key, rows in self.rows.items()}
        return own | {
            f"{PROGRAM}{k}/{key}": mask
            for k, program in self.programs.items()
            for key, mask in program.masks().items()
        }

    def save(self, path: Path) -> None:
        with path.open("wb") as file:
            np.savez_compressed(file, **self.masks())  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class Recorded(InTurn):
    """While they are recorded."""

    shared: Shared = field(kw_only=True)

    def settle(self) -> None:
        self.shared.settle()


def _of_program(masks: dict[str, np.ndarray], k: int) -> dict[str, np.ndarray]:
    """What was recorded of one of several programs; of a trace without programs, everything."""
    if not any(key.startswith(PROGRAM) for key in masks):
        return masks
    mine = f"{PROGRAM}{k}/"
    return {key.removeprefix(mine): mask for key, mask in masks.items() if key.startswith(mine)}
