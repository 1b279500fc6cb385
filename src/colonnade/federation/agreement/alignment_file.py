"""The alignment of one party: which of its rows are the common ones, in the common order.

`colonnade align`, or `join`, writes it into the party's folder. It is private: row numbers of this
party only, and no key. Every party has a file of the same name of alignment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from colonnade.common.files import replacing
from colonnade.data.rows import Indices
from colonnade.errors import InputError

ALIGNMENT = "alignment.safetensors"
VERSION = "1"
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
    keys: str = ""  # a digest of this party's keys, to notice when its file changes
    matched: dict[str, Count] = {}  # at the label holder: rows that it has in common with each

    @property
    def found(self) -> dict[str, str | int]:
        """What completes `[rows]` of the federation file."""
        return {"alignment": self.name, "aligned": self.aligned, "extra": self.extra}


@dataclass(frozen=True)
class Alignment:
    facts: Facts
    rows: Indices  # row numbers of this party from 0, in the common order

    @property
    def notes(self) -> tuple[str, ...]:
        """How many rows matched, for the result; nothing where this party is not the leader."""
        facts, common = self.facts, len(self.rows)
        if not facts.matched:
            return ()
        pairs = ", ".join(f"{count:,} at {party}" for party, count in facts.matched.items())
        empty = f", {facts.empty:,} of them without a key" if facts.empty else ""
        labels = f", {facts.aligned:,} of them with a label" if facts.aligned < common else ""
        others = "the others were left out"
        if facts.extra:
            others = f"of its others each column holder uses {facts.extra:,}, without labels"
        return (
            f"rows were matched by their keys: of {facts.rows:,} rows here{empty}, {pairs}; "
            f"{common:,} are at every party{labels}; {others}",
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
            save_file({"rows": alignment.rows}, partial, {"colonnade": VERSION, "facts": facts})
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
        facts = msgspec.json.decode(told["facts"], type=Facts)
    except (OSError, SafetensorError, KeyError, msgspec.MsgspecError) as error:
        raise InputError(f"{path}: cannot be read ({error}); {AGAIN}") from error
    fits = rows.ndim == 1 and rows.dtype == np.int64 and np.all((rows >= 0) & (rows < facts.rows))
    if told.get("colonnade") != VERSION or not (fits and len(np.unique(rows)) == len(rows)):
        raise InputError(f"{path}: is no alignment of this version; {AGAIN}")
    return Alignment(facts, rows)
