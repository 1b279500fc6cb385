"""Keys of rows, made comparable: the same person must have the same key in every file.

What is done to a key is declared in the federation file, so that every party does the same. A key
enters a protocol as a digest of fixed length, which never leaves its party as it is.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ColonnadeError

Step = Literal["trim", "nfc", "nfkc", "case", "zeros"]
Kind = Literal["numbers", "text"]

USUAL: tuple[Step, ...] = ("trim", "nfc")
ZEROS = re.compile(r"0+([0-9]+)")  # before a number
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)")


class DuplicateKeys(ColonnadeError):
    """Some keys are those of several rows. It says how many, never which."""

    def __init__(self, keys: int, rows: int) -> None:
        self.keys, self.rows = keys, rows
        what = "key is that" if keys == 1 else "keys are those"
        super().__init__(f"{keys:,} {what} of more than one row, {rows:,} rows in all")


@dataclass(frozen=True)
class KeyColumn:
    """The keys of one party's rows."""

    keys: tuple[str, ...]  # normalised, no two alike
    rows: NDArray[np.int64]  # the row of each key, from 0; rows without a key are not among them
    empty: int  # rows without a key
    kind: Kind  # numbers: every key is a whole number
    written: tuple[str, ...] = ()  # the keys as they are in the file, without spaces around


def normalised(key: str, steps: Sequence[Step]) -> str:
    """The same result whatever the order of `steps`."""
    form: Literal["NFKC", "NFC"] | None = (
        "NFKC" if "nfkc" in steps else "NFC" if "nfc" in steps else None
    )
    if form:
        key = unicodedata.normalize(form, key)
    if "case" in steps:
        key = key.casefold()
        key = unicodedata.normalize(form, key) if form else key
    key = key.strip() if "trim" in steps else key
    padded = ZEROS.fullmatch(key) if "zeros" in steps else None
    return padded[1] if padded else key


def key_column(texts: Sequence[str], steps: Sequence[Step] = USUAL) -> KeyColumn:
    """The keys in a column of texts; DuplicateKeys if a key is there twice after normalisation."""
    known = [normalised(text, steps) for text in texts]
    # A key of spaces only is no key, also where keys are not trimmed.
    rows = [row for row, key in enumerate(known) if key.strip()]
    keys = tuple(known[row] for row in rows)
    if len(set(keys)) < len(keys):
        several = [times for times in Counter(keys).values() if times > 1]
        raise DuplicateKeys(len(several), sum(several))
    kind = "numbers" if all(map(NUMBER.fullmatch, keys)) else "text"
    written = tuple(texts[row].strip() for row in rows)
    places = np.array(rows, dtype=np.int64)
    return KeyColumn(keys, places, len(known) - len(rows), kind, written)


def token(key: str) -> str:
    """A key as a protocol takes it: of one length, and of characters that every library takes."""
    content = key.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=32, person=b"colonnade key").hexdigest()


def common_order(tokens: Sequence[str], seed: int | str) -> NDArray[np.int64]:
    """An order of keys that every party finds by itself from the same keys and the same seed,
    whatever the order of its file; so the same rows are for training and test each time. `seed`
    may be a secret: then nobody else can tell where a key is."""
    salt = f"order {seed}".encode()
    marks = [hashlib.blake2b(one.encode(), digest_size=16, key=salt).digest() for one in tokens]
    return np.array(sorted(range(len(marks)), key=marks.__getitem__), dtype=np.int64)
