"""How long things take in a simulation: computing a message, the lag before it leaves, and its
transfer to the receiver.

The times of a whole exchange are drawn at once from one stream, so every process of a simulation
knows all of them.
"""

from __future__ import annotations

import math
from collections.abc import Collection
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
    """`compute`, `lag` and `latency`: seconds, `{ exponential = mean }`, or a table from party or
    group name to either. `speed`: factors by party or group name (0.5 takes twice as long to
    compute). `bandwidth`: bits per second and link.

    A sender computes, and can do nothing else meanwhile. Its messages leave later by its lag, which
    is drawn once for all receivers of an exchange, while the sender goes on. `lag_factors`: by kind
    of message, how many times as long the lag is. The latency is drawn for each message."""

    compute: Spec = 0.0
    latency: Spec = 0.0
    bandwidth: float | None = None
    speed: dict[str, float] = {}
    lag: Spec = 0.0
    lag_factors: dict[str, float] = {}

    def check(self) -> None:
        _check(self.compute, "compute")
        _check(self.latency, "latency")
        _check(self.lag, "lag")
        if self.bandwidth is not None and self.bandwidth <= 0:
            raise InputError(f"bandwidth = {self.bandwidth:g}: expected bits per second above 0")
        for name, factor in self.speed.items():
            if factor <= 0:
                raise InputError(f"speed.{name} = {factor:g}: expected a factor above 0")
        for kind, factor in self.lag_factors.items():
            if not 0 <= factor < math.inf:
                raise InputError(f"lag_factors.{kind} = {factor:g}: expected a factor, 0 or more")

    @property
    def any(self) -> bool:
        return bool(self.compute or self.latency or self.lag or self.bandwidth)

    def check_names(self, known: Collection[str]) -> None:
        """`known`: the names of all parties and groups. A misspelt name would mean no delay at
        all."""
        for key in ("compute", "latency", "lag", "speed"):
            table = getattr(self, key)
            if isinstance(table, dict) and "exponential" not in table:
                for name in table.keys() - known:
                    raise InputError(
                        f"{key}.{name}: no party or group has this name; there are "
                        f"{', '.join(known)}"
                    )

    def sampler(self, seed: int) -> DelaySampler:
        return DelaySampler(self, numpy_stream(seed, "delays"))


@dataclass
class DelaySampler:
    spec: Delays
    stream: np.random.Generator
    _means: dict[tuple[str, Group], tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def compute(self, group: Group, work: float = 1.0) -> np.ndarray:
        """Nanoseconds each member computes before it sends; `work`: in plain steps. [members]"""
        return self._draw("compute", group, work)

    def transfer(self, links: Links, bytes: int | np.ndarray, kind: str = "") -> np.ndarray:
        """Nanoseconds until each message of a kind arrives, once its sender has computed it: lag,
        latency and bandwidth. A party's message to itself takes none. [receivers, slots]"""
        constant, random = self._parameters("latency", links.src)
        time = constant[links.senders]
        if random.any():
            time = time + self.stream.exponential(1.0, links.shape) * random[links.senders]
        if self.spec.bandwidth is not None:
            time = time + bytes * (8 * SECOND / self.spec.bandwidth)
        if self.spec.lag:
            lag = self._draw("lag", links.src, self.spec.lag_factors.get(kind, 1.0))
            time = time + lag[links.senders]
        return np.where(links.own, 0, time).astype(np.int64)

    def _draw(self, what: str, group: Group, factor: float) -> np.ndarray:
        constant, random = self._parameters(what, group)
        if random.any():
            constant = constant + self.stream.exponential(1.0, len(group)) * random
        return (factor * constant).astype(np.int64)

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
    elif isinstance(spec, bool) or not isinstance(spec, int | float) or not (0 <= spec < math.inf):
        raise InputError(
            f"{key} = {spec!r}: expected seconds (0 or more) or {{ exponential = mean }}"
        )
