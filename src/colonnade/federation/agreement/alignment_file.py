"""The alignment of one party: which of its rows are the common ones, in the common order.

`colonnade align`, or `join`, writes it into the party's folder. It is private: row numbers of this
party only, and no key. Every party has a file of the same name of alignment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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

Count = Annotated[int, msgspec.Meta(ge=0)]


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

    @property
    def found(self) -> dict[str, str | int]:
        """What completes `[rows]` of the federation file."""
        return {"alignment": self.name, "aligned": self.aligned, "extra": self.extra}


@dataclass(frozen=True)
class Alignment:
    facts: Facts
    rows: Indices  # row numbers of this party from 0, in the common order; -1: it lacks the row
    # With `partial`, by column holder, as far as this party knows it: whether it has each row.
    held: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    @property
    def everywhere(self) -> int:
        """The number of the rows that every party has."""
        whole = np.ones(len(self.rows), dtype=bool)
        return int(np.logical_and.reduce([whole, *self.held.values()]).sum())

    @property
    def notes(self) -> tuple[str, ...]:
        """How many rows matched, for the result; nothing where this party is not the leader."""
        facts, common = self.facts, len(self.rows)
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
        return (
            f"rows were matched by their keys: of {facts.rows:,} rows here{empty}, {pairs}; "
            f"{common:,} are {where}{labels}; {others}",
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
    fits = fits and np.all((rows >= least) & (rows < facts.rows))
    fits = fits and all(m.dtype == np.bool_ and m.shape == rows.shape for m in held.values())
    here = rows[rows >= 0]
    if told.get("colonnade") != VERSION or not (fits and len(np.unique(here)) == len(here)):
        raise InputError(f"{path}: is no alignment of this version; {AGAIN}")
    return Alignment(facts, rows, held)
