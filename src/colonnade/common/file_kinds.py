"""The three kinds of TOML files, and which command takes which.

The types of values are not declared here: they need torch, and an error about a file of the wrong
kind or an unknown key should come before torch is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colonnade.common.toml import Table, known_keys, read_toml
from colonnade.common.user_code import FACTORIES
from colonnade.errors import InputError


@dataclass(frozen=True)
class Kind:
    """A kind of file, by the keys at its top."""

    name: str
    command: str  # the command that takes such a file
    required: tuple[str, ...]
    optional: tuple[str, ...]
    mark: str  # by what a person recognises such a file, in words

    @property
    def keys(self) -> tuple[str, ...]:
        return self.required + self.optional

    def own(self) -> set[str]:
        """Keys that no other kind of file has."""
        return set(self.keys) - {key for kind in KINDS if kind is not self for key in kind.keys}

    def check(self, table: Mapping[str, Any]) -> None:
        """Refuse unknown and missing keys."""
        known_keys(table, self.keys, "")
        for key in self.required:
            if key not in table:
                raise InputError(f"{key}: missing")


EXPERIMENT = Kind(
    "an experiment file",
    "colonnade run",
    ("name", "data", "methods"),
    (
        "seeds",
        "network",
        "faults",
        "target",
        "stop_at_target",
        "summarise",
        "plugins",
        "code",
        "sha256",
    ),
    "[[methods]] tables",
)
FEDERATION = Kind(
    "a federation file",
    "colonnade up",
    ("name", "method"),
    ("parties", "seed", "rows", "data", "network", "plugins", "code"),
    "one [method] table",
)
PARTY = Kind(
    "a party file",
    "colonnade join",
    ("federation", "party"),
    ("folder", "keys", "authority", "certificate", "key", "listen", "data", *FACTORIES, "code"),
    "the keys federation and party",
)
KINDS = (EXPERIMENT, FEDERATION, PARTY)


def read_kind(path: Path, expected: Kind) -> Table:
    """The table in a file of this kind; a file of another kind is refused."""
    table = read_toml(path)
    if expected.own() & table.keys():
        return table
    for kind in KINDS:
        if found := kind.own() & table.keys():
            raise InputError(
                f"{path}: this is {kind.name} (it has the key {min(found)!r}), which "
                f"`{kind.command}` takes. Expected here: {expected.name}, with {expected.mark}."
            )
    return table


def check_kind(path: Path, expected: Kind) -> None:
    """Check what can be checked in a file without importing torch, which takes seconds."""
    table = read_kind(path, expected)
    try:
        expected.check(table)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
