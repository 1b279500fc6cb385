"""Large state on disk: a file to which every checkpoint adds what has changed.

A checkpoint holds the length that the journal had when the checkpoint was written. What a crash
leaves beyond that length belongs to no checkpoint and is cut off. A journal that is more than twice
as long as its first entry continues in a new file, whose first entry holds all of the state; the
old file is deleted when a checkpoint refers to the new one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import safetensors.torch

from colonnade.common.devices import to_device
from colonnade.errors import InputError
from colonnade.learning.state import Tensors

SUFFIX = ".journal"
HEAD = 8  # bytes before an entry, which hold its size
SLACK = 2**20  # bytes; a journal may be so much longer than twice its first entry


class Journal:
    """The journal of one party and one state."""

    def __init__(self, folder: Path, party: str, name: str) -> None:
        self.folder, self.stem = folder, f"{party}.{name.replace(' ', '-')}"
        self.number, self.length, self.first = 0, 0, 0  # of the file that is in use, in bytes
        self.incomplete = True  # the next entry has to hold all of the state

    def path(self, number: int) -> Path:
        return self.folder / f"{self.stem}.{number}{SUFFIX}"

    @property
    def at(self) -> tuple[int, int]:
        """Number and length of the file, which a checkpoint holds."""
        return self.number, self.length

    @property
    def wants_all(self) -> bool:
        """Whether the next entry should hold all of the state."""
        return self.incomplete or self.length > 2 * self.first + SLACK

    def begin(self) -> None:
        """The next entry opens a new file."""
        self.number, self.length, self.first = self.number + 1, 0, 0

    def add(self, tensors: Tensors) -> None:
        """Add an entry; it is on the disk when this returns. OSError: it was not added, and the
        next entry takes its place."""
        data = safetensors.torch.save({k: v.contiguous() for k, v in tensors.items()})
        path = self.path(self.number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.truncate(self.length)
            file.seek(self.length)
            file.write(len(data).to_bytes(HEAD, "little") + data)
            file.flush()
            os.fsync(file.fileno())
        self.length += HEAD + len(data)
        self.first = self.first or self.length

    def read(self, number: int, length: int) -> Iterator[Tensors]:
        """The entries that a checkpoint refers to; the next entry is added after them."""
        self.number, self.length, self.incomplete = number, length, False
        path = self.path(number)
        if not length:
            return
        try:
            data = path.read_bytes()[:length]
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from error
        at = 0
        while at < length:
            size = int.from_bytes(data[at : at + HEAD], "little")
            entry = data[at + HEAD : at + HEAD + size]
            at += HEAD + size
            self.first = self.first or at
            if len(entry) < size or at > length:
                raise InputError(f"{path}: is shorter than its checkpoint says")
            try:
                yield {k: to_device(v) for k, v in safetensors.torch.load(entry).items()}
            except safetensors.SafetensorError as error:
                raise InputError(f"{path}: is damaged ({error})") from error

    def tidy(self) -> None:
        """Delete the files that no checkpoint refers to any more."""
        for path in self.folder.glob(f"{self.stem}.*{SUFFIX}"):
            if path != self.path(self.number):
                path.unlink(missing_ok=True)
