"""Where the masks of secret shares come from: the operating system's generator in a real
federation, a named stream of the seed in a simulation."""

from __future__ import annotations

import hashlib
import os
from typing import Protocol

import numpy as np


class Randomness(Protocol):
    """A source of independent, uniform 32-bit words. `origin` says in words where they come
    from."""

    origin: str

    def words(self, count: int) -> np.ndarray:
        """[count] uint32"""
        ...


class SystemRandomness:
    """The operating system's generator: what protects real data."""

    origin = "the operating system's generator"

    def words(self, count: int) -> np.ndarray:
        return np.frombuffer(bytearray(os.urandom(4 * count)), dtype=np.uint32)


class SeededRandomness:
    """Repeatable, and therefore no protection at all: for simulations."""

    origin = "the seed, as in every simulation, and protect nothing"

    def __init__(self, stream: np.random.Generator) -> None:
        self.stream = stream

    def words(self, count: int) -> np.ndarray:
        # Two words of each number of the generator: half the time of `integers`.
        raw = self.stream.bit_generator.random_raw(-(-count // 2))
        return raw.view(np.uint32)[:count]


class HashedRandomness:
    """What SHAKE-256 makes of a secret and a purpose: the same whenever it is asked for, and nobody
    who does not know the secret can tell it from that of the operating system. So a party that must
    draw the same after a restart keeps the secret alone."""

    def __init__(self, secret: bytes, *purpose: int) -> None:
        self.origin = "a secret of the party"
        self._key, self._calls = secret + b"".join(n.to_bytes(8, "little") for n in purpose), 0

    def words(self, count: int) -> np.ndarray:
        text = hashlib.shake_256(self._key + self._calls.to_bytes(8, "little")).digest(4 * count)
        self._calls += 1
        return np.frombuffer(bytearray(text), dtype=np.uint32)
