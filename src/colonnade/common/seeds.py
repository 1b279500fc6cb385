"""Named streams of randomness: (root seed, party, purpose) → generator. Never global state."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from colonnade.common.devices import on_cpu

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


def seed_of(root: int, *names: str | int) -> int:
    """A 63-bit seed that depends on every name, equal on every machine and in every process."""
    text = "\x1f".join([str(root), *map(str, names)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def torch_stream(root: int, *names: str | int) -> torch.Generator:
    import torch

    return torch.Generator("cpu").manual_seed(seed_of(root, *names))


def numpy_stream(root: int, *names: str | int) -> np.random.Generator:
    return np.random.default_rng(seed_of(root, *names))


def seeded(seed: int, make: Callable[..., T], *args: object) -> T:
    """Call `make` with torch's global random stream seeded, and restore that stream afterwards. On
    the CPU, whichever device is in use: its stream gives the same numbers everywhere."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed: 100 times slower
        with nullcontext() if on_cpu() else torch.device("cpu"):
            return make(*args)
