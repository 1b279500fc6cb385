"""How long things take: computing before a message leaves, and its way to the receiver.

Times are drawn for whole exchanges at once from one stream, so every process of a simulation knows
all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from colonnade.common.seeds import numpy_stream
from colonnade.errors import InputError
from colonnade.network.clock import SECOND
from colonnade.network.topology import Group, Links

Spec = float | dict[str, Any]


class Delays(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`compute` and `latency`: seconds, `{ exponential = mean }`, or a table from party or group
    name to either. `speed`: factors by party or group name (0.5 takes twice as long to compute).
    `bandwidth`: bits per second and link."""

    compute: Spec = 0.0
    latency: Spec = 0.0
    bandwidth: float | None = None
    speed: dict[str, float] = {}

    def check(self) -> None:
        _check(self.compute, "compute")
        _check(self.latency, "latency")
        if self.bandwidth is not None and self.bandwidth <= 0:
            raise InputError(f"bandwidth = {self.bandwidth:g}: expected bits per second above 0")
        for name, factor in self.speed.items():
            if factor <= 0:
                raise InputError(f"speed.{name} = {factor:g}: expected a factor above 0")

    @property
    def any(self) -> bool:
        return bool(self.compute or self.latency or self.bandwidth)

    def sampler(self, seed: int) -> DelaySampler:
        return DelaySampler(self, numpy_stream(seed, "delays"))


@dataclass
class DelaySampler:
    spec: Delays
    stream: np.random.Generator
    _means: dict[tuple[str, Group], tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def compute(self, group: Group) -> np.ndarray:
        """Nanoseconds each member computes before it sends. [members]"""
        return self._draw("compute", group)

    def transfer(self, links: Links, bytes: np.ndarray) -> np.ndarray:
        """Nanoseconds each message is under way; a party's message to itself takes none.
        [receivers, slots]"""
        constant, random = self._parameters("latency", links.src)
        time = constant[links.senders]
        if random.any():
            time = time + self.stream.exponential(1.0, links.shape) * random[links.senders]
        if self.spec.bandwidth is not None:
            time = time + bytes * (8 * SECOND / self.spec.bandwidth)
        return np.where(links.own, 0, time).astype(np.int64)

    def _draw(self, what: str, group: Group) -> np.ndarray:
        constant, random = self._parameters(what, group)
        if random.any():
            constant = constant + self.stream.exponential(1.0, len(group)) * random
        return constant.astype(np.int64)

    def _parameters(self, what: str, group: Group) -> tuple[np.ndarray, np.ndarray]:
        """Per member: the constant part and the mean of the exponential part, in nanoseconds."""
        known = self._means.get((what, group))
        if known is not None:
            return known
        pairs = [
            _lookup(getattr(self.spec, what), party, group.declared) for party in group.parties
        ]
        constant, random = (
            np.array(column, dtype=float) * SECOND for column in zip(*pairs, strict=True)
        )
        if what == "compute":
            speed = self.spec.speed
            factor = [speed.get(party, speed.get(group.declared, 1.0)) for party in group.parties]
            constant, random = constant / factor, random / factor
        self._means[what, group] = constant, random
        return constant, random


def _lookup(spec: Spec, party: str, group: str) -> tuple[float, float]:
    if isinstance(spec, dict) and "exponential" not in spec:
        spec = spec.get(party, spec.get(group, 0.0))
    return (0.0, float(spec["exponential"])) if isinstance(spec, dict) else (float(spec), 0.0)


def _check(spec: object, key: str, nested: bool = False) -> None:
    if isinstance(spec, dict):
        if "exponential" in spec:
            if set(spec) != {"exponential"}:
                raise InputError(f"{key}: beside `exponential` nothing else is expected")
            _check(spec["exponential"], f"{key}.exponential", nested=True)
        elif nested:
            raise InputError(f"{key}: expected seconds or {{ exponential = mean }}")
        else:
            for name, inner in spec.items():
                _check(inner, f"{key}.{name}", nested=True)
    elif isinstance(spec, bool) or not isinstance(spec, int | float) or spec < 0:
        raise InputError(
            f"{key} = {spec!r}: expected seconds (0 or more) or {{ exponential = mean }}"
        )
