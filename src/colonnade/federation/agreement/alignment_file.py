"""The alignment of one party: which of its rows are the common ones, in the common order.

`colonnade align`, or `join`, writes it into the party's folder. It is private: row numbers of this
party only, and no key. Every party has a file of the same name of alignment. `colonnade align
--add` puts rows behind those of the match: they are not trained on, so that the match, its name and
its split stay what they were.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from colonnade.common.files import replacing
from colonnade.data.rows import Indices
from colonnade.errors import InputError

ALIGNMENT = "alignment.safetensors"
VERSION = "2"
HELD = "held by "  # the names of tensors
AGAIN = "match the rows again: colonnade align, at every party"
ADD = "run colonnade align --add at every party"

Count = Annotated[int, msgspec.Meta(ge=0)]


class Addition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows that were put behind those of a match, all at once."""

    name: str  # the same at every party, drawn anew for each addition
    rows: Count  # so many
    file: Count  # rows of this party's file at that time
    others: Count = 0  # keys of this party that were not in the alignment before
    keys: str = ""  # a digest of the keys of the added rows, to notice when they change
    matched: dict[str, Count] = {}  # as in `Facts`, of these keys only
    sizes: dict[str, Count] = {}


class Facts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of an alignment beside the rows."""

    name: str  # the same at every party, drawn anew for each alignment
    federation: str  # `Federation.matching` when it was made
    aligned: Count  # the first so many of the common rows are for training, validation and test
    extra: Count  # rows that every column holder has beside the common ones, and may learn from
    rows: Count  # of this party's file
    empty: Count = 0  # of them without a key
    keys: str = ""  # a digest of the keys of the rows in use, to notice when they change
    matched: dict[str, Count] = {}  # at the label holder: rows that it has in common with each
    sizes: dict[str, Count] = {}  # of the parties matched with: how many keys each says it has
    partial: bool = False  # the rows are those that the label holder and some other party have
    order: str = ""  # at the label holder: the secret that decides their order
    added: tuple[Addition, ...] = ()

    @property
    def found(self) -> dict[str, str | int | None]:
        """What completes `[rows]` of the federation file."""
        added = self.newest if self.added else None
        return {
            "alignment": self.name,
            "aligned": self.aligned,
            "extra": self.extra,
            "added": added,
        }

    @property
    def newest(self) -> str:
        """The name of the last addition, or of the match."""
        return self.names[-1]

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *(one.name for one in self.added))

    @property
    def file(self) -> int:
        """Rows of this party's file when rows were matched or added last."""
        return self.added[-1].file if self.added else self.rows


@dataclass(frozen=True)
class Alignment:
    facts: Facts
    rows: Indices  # row numbers of this party from 0, in the common order; -1: it lacks the row
    # With `partial`, by column holder, as far as this party knows it: whether it has each row.
    held: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[Indices, ...]:
        """The rows of the match, then those of each addition."""
        if not len(self.rows):  # of a party that has none
            return (self.rows,) * len(self.facts.names)
        counts = [one.rows for one in self.facts.added]
        ends = len(self.rows) - np.cumsum([0, *reversed(counts)])[::-1]
        return tuple(np.split(self.rows, ends[:-1]))

    def at(self, name: str) -> Alignment:
        """As it was with this match or addition, without later ones."""
        number = self.facts.names.index(name)
        rows = np.concatenate(self.parts[: number + 1])
        facts = msgspec.structs.replace(self.facts, added=self.facts.added[:number])
        held = {party: mine[: len(rows)] for party, mine in self.held.items()}
        return replace(self, facts=facts, rows=rows, held=held)

    def with_added(
        self, addition: Addition, rows: Indices, held: Mapping[str, NDArray[np.bool_]]
    ) -> Alignment:
        facts = msgspec.structs.replace(self.facts, added=(*self.facts.added, addition))
        known = {p: np.concatenate([mine, held[p]]) for p, mine in self.held.items()}
        return Alignment(facts, np.concatenate([self.rows, rows]), known)

    @property
    def added(self) -> int:
        """The number of the rows behind those of the match."""
        return sum(one.rows for one in self.facts.added)

    @property
    def everywhere(self) -> int:
        """The number of the rows of the match that every party has."""
        count = len(self.parts[0])
        held = [mine[:count] for mine in self.held.values()]
        return int(np.logical_and.reduce([np.ones(count, dtype=bool), *held]).sum())

    @property
    def notes(self) -> tuple[str, ...]:
        """How many rows matched, for the result; nothing where this party is not the leader."""
        facts, common = self.facts, len(self.parts[0])
        if not facts.matched:
            return ()
        pairs = ", ".join(
            f"{count:,} at {party} (of {facts.sizes.get(party, count):,})"
            for party, count in facts.matched.items()
        )
        empty = f", {facts.empty:,} of them without a key" if facts.empty else ""
        labels = f", {facts.aligned:,} of them with a label" if facts.aligned < common else ""
        others = "the others were left out"
        where = "at every party"
        if facts.partial:
            where = f"at one of them or more ({self.everywhere:,} at every party)"
        if facts.extra:
            others = f"of its others each column holder uses {facts.extra:,}, without labels"
        added = f"; {self.added:,} were added since, without training" if self.added else ""
        return (
            f"rows were matched by their keys: of {facts.rows:,} rows here{empty}, {pairs}; "
            f"{common:,} are {where}{labels}; {others}{added}",
        )


def digest_of(keys: Sequence[str], rows: Indices, name: str) -> str:
    """Of a party's keys and the rows they are in. It stays in the party's folder."""
    found = hashlib.blake2b(rows.tobytes(), digest_size=16, key=name.encode()[:64])
    for key in keys:
        content = key.encode("utf-8", "surrogatepass")
        found.update(len(content).to_bytes(8, "little") + content)
    return found.hexdigest()


def write_alignment(folder: Path, alignment: Alignment) -> None:
    path = folder / ALIGNMENT
    facts = msgspec.json.encode(alignment.facts).decode()
    try:
        with replacing(path, durable=True) as partial:
            held = {f"{HELD}{party}": mine for party, mine in alignment.held.items()}
            told = {"colonnade": VERSION, "facts": facts}
            save_file({"rows": alignment.rows, **held}, partial, told)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error


def read_alignment(folder: Path) -> Alignment | None:
    """The alignment in a party's folder; None if there is none."""
    path = folder / ALIGNMENT
    if not path.exists():
        return None
    try:
        with safe_open(path, "numpy") as file:
            told, rows = file.metadata() or {}, file.get_tensor("rows")
            names = [name for name in file.keys() if name.startswith(HELD)]  # noqa: SIM118
            held = {name.removeprefix(HELD): file.get_tensor(name) for name in names}
        facts = msgspec.json.decode(told["facts"], type=Facts)
    except (OSError, SafetensorError, KeyError, msgspec.MsgspecError) as error:
        raise InputError(f"{path}: cannot be read ({error}); {AGAIN}") from error
    least = -1 if facts.partial else 0
    fits = rows.ndim == 1 and rows.dtype == np.int64
    fits = fits and np.all((rows >= least) & (rows < facts.file))
    fits = fits and (not len(rows) or len(rows) > sum(one.rows for one in facts.added))
    fits = fits and all(m.dtype == np.bool_ and m.shape == rows.shape for m in held.values())
    here = rows[rows >= 0]
    if told.get("colonnade") != VERSION or not (fits and len(np.unique(here)) == len(here)):
        raise InputError(f"{path}: is no alignment of this version; {AGAIN}")
    return Alignment(facts, rows, held)
