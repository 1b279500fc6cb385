"""The kinds of faults: which parties and links fail, and when.

A fault is a small frozen struct; `sampler(...)` gives the object that draws its states. Every
process of a simulation draws the same numbers, because every party executes every exchange of the
program.

When states are drawn, as in the papers: `connection` and `client` faults are drawn at each
communication (DVFL, section 6.1 and appendix D.2: alive → down with probability `down`, dead → up
with probability `up`); `aggregator` faults once per round; `device` and `communication` faults once
per round, independently (MAGS, definitions 2 and 3), or with `stay` as a Markov chain that moves at
each communication and keeps the long-run fault rate (MAGS, appendix G.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

import msgspec
import numpy as np

from colonnade.common.seeds import numpy_stream
from colonnade.errors import InputError
from colonnade.network.chains import Chain
from colonnade.network.samplers import (
    Calm,
    CatastropheFaults,
    LinkFaults,
    PartyFaults,
    Sampler,
    TraceReplay,
)
from colonnade.network.topology import Group

Phase = Literal["training", "supervision", "validation", "inference"]
When = Literal["training", "inference", "always"]


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No fault at all; the base of all kinds."""

    struck: ClassVar[str | None] = None  # the role of parties that it strikes; None: links, or none

    name: str
    when: When = "training"

    def sampler(self, seed: int, groups: Sequence[Group], settled: bool = False) -> Sampler:
        """Draws which parties and links are down. `settled`: the states are those after a long
        time, not those at the start."""
        return Calm()

    def stream(self, seed: int) -> np.random.Generator:
        return numpy_stream(seed, type(self).__name__)

    def strikes(self, phase: Phase) -> bool:
        """Whether this fault happens in a phase. Validation only measures the method, so no fault
        disturbs it; nor the supervised learning on encodings that were learnt without labels
        (DVFL, section 6.1)."""
        return phase in ("training", "inference") and self.when in (phase, "always")

    def training(self) -> Fault | None:
        """The fault that strikes the training; equal for faults under which the same models are
        trained."""
        return self if type(self) is not Fault and self.strikes("training") else None

    def check(self) -> None:
        for key in ("down", "up", "rate", "stay"):
            value = getattr(self, key, None)
            if value is not None and not 0 <= value <= 1:
                raise InputError(f"{key} = {value:g} is not a probability; expected 0 to 1")


class DownUp(Fault, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """In each draw, what is up goes down with probability `down`, and what is down returns with
    probability `up`."""

    down: float
    up: float = 1.0

    def chain(self, seed: int, settled: bool) -> Chain:
        """All are up at the start; `settled`: as many are up as after a long time."""
        share = self.up / (self.up + self.down) if settled and self.up + self.down else 1.0
        return Chain(self.down, self.up, share, self.stream(seed))


class Absence(Fault, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A party or link is absent with probability `rate`: drawn anew each round, or with `stay` (the
    probability that it stays up) by a Markov chain with the same rate of absence at every time."""

    rate: float
    stay: float | None = None

    def check(self) -> None:
        """With a small `stay`, parties leave so often that a small `rate` of absence would need a
        probability of return above 1."""
        super().check()
        rate, stay = self.rate, self.stay
        if stay is not None and 0 < rate < 0.5 and stay < (least := 1 - rate / (1 - rate)) - 1e-9:
            raise InputError(
                f"stay = {stay:g}: a fault rate of {rate:g} needs at least {least:.3g}"
            )

    def chain(self, seed: int) -> Chain:
        down, up = self.rate, 1 - self.rate
        if self.stay is not None:
            down = 1 - self.stay if self.rate else 0.0
            up = min(1.0, down * (1 - self.rate) / self.rate) if self.rate else 1.0
        return Chain(down, up, 1 - self.rate, self.stream(seed))


class Connection(DownUp, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A link between two parties dies with `down` and returns with `up`, drawn at each
    communication."""

    def sampler(self, seed: int, groups: Sequence[Group], settled: bool = False) -> Sampler:
        return LinkFaults(
            self.chain(seed, settled),
            directed=False,
            every_round=False,
        )


class Client(DownUp, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A column holder dies with `down` and returns with `up`, drawn at each forward or backward
    call."""

    struck: ClassVar[str | None] = "client"

    def sampler(self, seed: int, groups: Sequence[Group], settled: bool = False) -> Sampler:
        struck = _playing("client", groups)
        return PartyFaults(self.chain(seed, settled), struck, every_round=False)


class Aggregator(DownUp, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server or aggregator dies with `down` and returns with `up`, drawn once per round."""

    struck: ClassVar[str | None] = "aggregator"

    def sampler(self, seed: int, groups: Sequence[Group], settled: bool = False) -> Sampler:
        struck = _playing("aggregator", groups)
        return PartyFaults(self.chain(seed, settled), struck, every_round=True)


class Device(Absence, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A device is absent with probability `rate`: anew each round, or with `stay` as a Markov
    chain."""

    struck: ClassVar[str | None] = "client"

    def sampler(self, seed: int, groups: Sequence[Group], settled: bool = False) -> Sampler:
        return PartyFaults(
            self.chain(seed), _playing("client", groups), every_round=self.stay is None
        )


class Communication(Absence, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A directed link is absent with probability `rate`: anew each round, or with `stay` as a
    Markov chain."""

    def sampler(self, seed: int, groups: Sequence[Group], settled: bool = False) -> Sampler:
        return LinkFaults(self.chain(seed), directed=True, every_round=self.stay is None)


class Catastrophe(Fault, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """In round `at` each column holder is lost with probability `rate`; the lost ones return one
    after the other, spread evenly over the following `recovery` rounds (0: never)."""

    struck: ClassVar[str | None] = "client"

    at: int
    rate: float
    recovery: int = 0

    def check(self) -> None:
        super().check()
        if self.at < 0 or self.recovery < 0:
            raise InputError("at and recovery are numbers of rounds; expected 0 or more")

    def sampler(self, seed: int, groups: Sequence[Group], settled: bool = False) -> Sampler:
        struck = _playing("client", groups)
        stream = self.stream(seed)
        lost = stream.random(len(struck)) < self.rate
        order = stream.permutation(len(struck)) + 1
        returns = self.at + np.ceil(order * self.recovery / max(len(struck), 1))
        back = np.where(lost, returns if self.recovery else np.inf, -1)
        return CatastropheFaults(self.at, dict(zip(struck, back.tolist(), strict=True)))


class Trace(Fault, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replays a recording (`.npz`): arrays `sent:a>b` and `arrived:a>b` [exchanges, receivers,
    slots] and `alive:a` [rounds, members]; those of programs that ran side by side begin with
    `program 0/` and the like. A trace that is shorter than the run starts again."""

    path: str

    def sampler(self, seed: int, groups: Sequence[Group], settled: bool = False) -> Sampler:
        try:
            with np.load(Path(self.path), allow_pickle=False) as file:
                return TraceReplay({key: file[key].astype(bool) for key in file.files})
        except (OSError, ValueError) as error:
            raise InputError(f"{self.path}: not a readable fault trace ({error})") from error


KINDS: dict[str | None, type[Fault]] = {
    None: Fault,
    "none": Fault,
    "connection": Connection,
    "client": Client,
    "aggregator": Aggregator,
    "device": Device,
    "communication": Communication,
    "catastrophe": Catastrophe,
    "trace": Trace,
}


def _playing(role: str, groups: Sequence[Group]) -> tuple[str, ...]:
    parties = (party for group in groups if group.role == role for party in group.parties)
    return tuple(dict.fromkeys(parties))
