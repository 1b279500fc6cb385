"""Predictions for many rows: asked for in batches, each of which is kept as soon as it is there.

The answers so far are in a journal beside the output file: one line that says what is asked for,
then one line of JSON for each batch. An interrupted command goes on after the last whole line.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from colonnade.errors import InputError
from colonnade.federation.asking.predictions import fits_together
from colonnade.federation.member.messages import AT_ONCE
from colonnade.federation.member.prediction_requests import Asked, Predicted

JOURNAL = ".answers"  # ends the name of a journal

Ask = Callable[[Asked], Predicted]
Watch = Callable[[int], None]  # takes how many rows are done


class About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line of a journal."""

    party: str
    keys: str  # digest of all keys
    count: int


class Journal:
    """The answers to some keys so far. `path`: None keeps them in memory only."""

    def __init__(self, path: Path | None, about: About, fresh: bool = False) -> None:
        self.path, self.about = path, about
        self.found: list[Predicted] = []
        if path is None:
            return
        if fresh or not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")
            self._append(about)
        else:
            self._take_up(path)

    @property
    def model(self) -> str:
        return self.found[0].model if self.found else ""

    def checked(self, found: Predicted) -> Predicted:
        """An answer, if it is of the same model as those before."""
        if self.found and found.model != self.model:
            raise InputError(
                f"{self._name}: was begun with the model of {self.model}, and {self.about.party} "
                f"now answers with that of {found.model}; --fresh starts over"
            )
        return found

    def add(self, found: Predicted) -> None:
        self.found.append(self.checked(found))
        if self.path is not None:
            self._append(found)

    def remove(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    @property
    def _name(self) -> str:
        return "this request" if self.path is None else str(self.path)

    def _append(self, line: Any) -> None:
        assert self.path is not None
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _take_up(self, path: Path) -> None:
        """Read what an interrupted command kept; a last line that is not whole is cut off."""
        lines = path.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        try:
            about = msgspec.json.decode(whole[0], type=About) if whole else self.about
            self.found = [msgspec.json.decode(line, type=Predicted) for line in whole[1:]]
        except msgspec.DecodeError as error:
            raise InputError(f"{path}: is damaged ({error}); --fresh starts over") from None
        if about != self.about or not all(map(fits_together, self.found)):
            raise InputError(
                f"{path}: holds answers of {about.party} about {about.count:,} other keys; give "
                "another --out, or start over with --fresh"
            )
        with path.open("r+b") as file:
            file.truncate(sum(map(len, whole)))
        if not whole:
            self._append(self.about)


def journal_of(out: Path) -> Path:
    return out.with_name(out.name + JOURNAL)


def about(party: str, keys: Sequence[str]) -> About:
    digest = hashlib.blake2b("\x1f".join(keys).encode(), digest_size=16).hexdigest()
    return About(party, digest, len(keys))


def answered(
    ask: Ask, keys: Sequence[str], journal: Journal, watch: Watch = lambda rows: None
) -> Predicted:
    """The answers to all keys, in their order. A key that is given twice is asked about once: with
    noise, every answer costs privacy. Keys that were unknown to an interrupted command are asked
    about again: rows may have been added since."""
    unique, before = list(dict.fromkeys(keys)), len(journal.found)
    for start in range(before * AT_ONCE, len(unique), AT_ONCE):
        watch(start)
        journal.add(ask(Asked(unique[start : start + AT_ONCE], truths=True)))
    watch(len(unique))
    again = [key for part in journal.found[:before] for key in part.unknown]
    found = [msgspec.structs.replace(part, unknown=[]) for part in journal.found[:before]]
    found += journal.found[before:]
    for start in range(0, len(again), AT_ONCE):
        found.append(journal.checked(ask(Asked(again[start : start + AT_ONCE], truths=True))))
    return _in_order(joined(found), keys)


def joined(parts: Sequence[Predicted]) -> Predicted:
    """All rows of several answers."""
    if len(parts) == 1:
        return parts[0]
    lists = ("ids", "predictions", "probabilities", "absent", "numbers", "truths", "unknown")
    whole: dict[str, Any] = {name: [] for name in lists}
    for part in parts:
        for name in lists:
            whole[name] += getattr(part, name)
    failed = {key: why for part in parts for key, why in part.failed.items()}
    classes = next((part.classes for part in parts if part.classes), [])
    return Predicted(classes=classes, failed=failed, model=parts[0].model, **whole)


def _in_order(found: Predicted, keys: Sequence[str]) -> Predicted:
    place = {one: i for i, one in enumerate(found.ids)}
    chosen = [place[key] for key in keys if key in place]
    if chosen == list(range(len(found.ids))):
        return found
    columns = ("ids", "predictions", "probabilities", "absent", "numbers", "truths")
    values = {name: getattr(found, name) for name in columns}
    picked = {name: [column[i] for i in chosen] for name, column in values.items() if column}
    return msgspec.structs.replace(found, **picked)
