"""Versions of a model, and which party keeps its part of which version.

A model is one thing across the parties. The part of each party has a version: a generation, which
changes whenever the training is started again, and the round after which the part was copied. Parts
of different versions are never used together.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from colonnade.network.wire import Name

MOST = 8  # versions that one party keeps
GENERATIONS = 1 << 53
ROUNDS = 1 << 40

Generation = Annotated[int, msgspec.Meta(ge=0, lt=GENERATIONS)]
Round = Annotated[int, msgspec.Meta(ge=0, lt=ROUNDS)]
Version = tuple[Generation, Round]


class Kept(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A party's part of one version."""

    version: Version
    durable: bool = True  # on disk; else in memory, because the disk is full
    final: bool = False  # the part does not change any more: it is also that of later versions

    def serves(self, version: Version) -> bool:
        """Whether this is the party's part of that version."""
        return self.version == version or (self.final and version[1] >= self.version[1])


class Parts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which parts of the model a party keeps, as it tells the others."""

    kept: Annotated[tuple[Kept, ...], msgspec.Meta(max_length=MOST)] = ()
    # Parties whose messages were left out of what this party's part was made of.
    missed: Annotated[tuple[Name, ...], msgspec.Meta(max_length=4096)] = ()
    committed: Round | None = None  # told by the leader: parts that were final then are in use

    def text(self) -> str:
        return msgspec.json.encode(self).decode()

    def have(self, version: Version) -> bool:
        return any(kept.serves(version) for kept in self.kept)

    def durable(self, version: Version) -> bool:
        return any(kept.serves(version) and kept.durable for kept in self.kept)

    def final(self, round: int) -> bool:
        """Whether a part is kept that was final at this round."""
        return any(kept.final and kept.version[1] <= round for kept in self.kept)

    def newest(self) -> str:
        """The newest part, as text for a person."""
        if not self.kept:
            return "untrained"
        return f"round {max(kept.version for kept in self.kept)[1] + 1}"

    def lack(self, version: Version) -> str:
        """Why a party cannot take part in using a version; "" if it can."""
        if self.have(version):
            return ""
        if not self.kept:
            return "untrained"
        newest = max(kept.version for kept in self.kept)
        if newest[1] == version[1]:
            return f"has round {newest[1] + 1} of another training"
        return f"has round {newest[1] + 1}, the model is of round {version[1] + 1}"
