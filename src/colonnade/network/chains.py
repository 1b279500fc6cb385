"""Two-state Markov chains: which parties or links are up, and which are down.

A `Chain` serves one program. Programs that run side by side share a `History`: each reads it at its
own pace, and after the same number of moves all of them find the same state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from colonnade.common.seeds import numpy_stream

BLOCK = 256  # states that are drawn at a time


class Chains(Protocol):
    """One chain per name (a party or a link). True in `state` means up."""

    state: np.ndarray  # [names] bool

    def ids(self, names: Sequence[object]) -> np.ndarray:
        """The places of these names in `state`; a new name gets a chain."""
        ...

    def move(self, ids: np.ndarray | slice = ...) -> None:
        """Draw the next state of the chains in these places."""
        ...

    def side_by_side(self, seed: int) -> History:
        """For programs that run side by side: their states begin with the present ones."""
        ...


class Chain:
    """The chains of one program, all drawn from one stream."""

    def __init__(self, down: float, up: float, start: float, stream: np.random.Generator) -> None:
        self.down, self.up, self.start, self.stream = down, up, start, stream
        self.index: dict[object, int] = {}
        self.state = np.zeros(0, dtype=bool)

    def ids(self, names: Sequence[object]) -> np.ndarray:
        new = [name for name in dict.fromkeys(names) if name not in self.index]
        for name in new:
            self.index[name] = len(self.index)
        begun = self.stream.random(len(new)) < self.start
        self.state = np.concatenate([self.state, begun])
        return np.array([self.index[name] for name in names], dtype=np.int64)

    def move(self, ids: np.ndarray | slice = slice(None)) -> None:
        state = self.state[ids]
        draw = self.stream.random(len(state))
        self.state[ids] = np.where(state, draw >= self.down, draw < self.up)

    def side_by_side(self, seed: int) -> History:
        states = {name: bool(self.state[i]) for name, i in self.index.items()}
        return History(self, (self.down, self.up, self.start), states, seed)


class History:
    """The states of chains after each move, beginning with the states of another set of chains.

    Each name has a stream of its own, so that its states do not depend on the order in which
    programs, or the parties' copies of a program, ask for them."""

    def __init__(
        self,
        of: Chains,
        rates: tuple[float, float, float],
        begun: dict[object, bool],
        seed: int,
    ) -> None:
        self.of, self.rates, self.begun, self.seed = of, rates, begun, seed
        self.readers: list[Reader] = []
        self._states: dict[object, list[bool]] = {}
        self._streams: dict[object, np.random.Generator] = {}

    def reader(self) -> Reader:
        self.readers.append(Reader(self))
        return self.readers[-1]

    def state(self, name: object, moves: int) -> bool:
        if name not in self._states:
            stream = self._streams[name] = numpy_stream(self.seed, repr(name))
            first = self.begun.get(name)
            self._states[name] = [bool(stream.random() < self.rates[2]) if first is None else first]
        states, (down, up, _) = self._states[name], self.rates
        while len(states) <= moves:
            for draw in self._streams[name].random(BLOCK):
                states.append(bool(draw >= down if states[-1] else draw < up))
        return states[moves]

    def settle(self) -> None:
        """The programs have ended: give the chains that they began with the states of the program
        that has moved furthest."""
        names = dict.fromkeys(name for reader in self.readers for name in reader.index)
        ids = self.of.ids(list(names))
        for name, i in zip(names, ids, strict=True):
            moves = max(reader.moves_of(name) for reader in self.readers)
            self.of.state[i] = self.state(name, moves)


class Reader:
    """The chains of one of several programs side by side: their history, at its own pace."""

    def __init__(self, history: History) -> None:
        self.history, self.index = history, dict[object, int]()
        self.state = np.zeros(0, dtype=bool)
        self._names: list[object] = []
        self._moves: list[int] = []
        self._together = 0  # moves of all names at once

    def ids(self, names: Sequence[object]) -> np.ndarray:
        new = [name for name in dict.fromkeys(names) if name not in self.index]
        for name in new:
            self.index[name] = len(self.index)
            self._names.append(name)
            self._moves.append(self._together)
        begun = [self.history.state(name, self._together) for name in new]
        self.state = np.concatenate([self.state, np.array(begun, dtype=bool)])
        return np.array([self.index[name] for name in names], dtype=np.int64)

    def move(self, ids: np.ndarray | slice = slice(None)) -> None:
        self._together += isinstance(ids, slice)
        chosen = range(len(self._names)) if isinstance(ids, slice) else ids.tolist()
        for i in chosen:
            self._moves[i] += 1
            self.state[i] = self.history.state(self._names[i], self._moves[i])

    def moves_of(self, name: object) -> int:
        return self._moves[self.index[name]] if name in self.index else 0

    def side_by_side(self, seed: int) -> History:
        states = dict(zip(self._names, self.state.tolist(), strict=True))
        return History(self, self.history.rates, self.history.begun | states, seed)
