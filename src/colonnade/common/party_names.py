"""The names that a party may have.

In a simulation a name is part of file names: letters, digits, spaces and a few signs will do. In a
real federation it also stands in certificates and in the network's access rules, where a wildcard
would stand for every party and a capital letter may be lost: small letters only.
"""

from __future__ import annotations

import re

from colonnade.errors import InputError

AUTHORITY = "authority"
SIMULATED = re.compile(r"\w[\w .-]*")
NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


def is_simulated_name(text: str) -> bool:
    """Whether a party of a simulation may be called so."""
    return SIMULATED.fullmatch(text) is not None


def check_simulated(name: str, where: str) -> None:
    if not is_simulated_name(name):
        raise InputError(
            f"{where}: {name!r} cannot name a party; use letters, digits, '_', '-', '.' and "
            "spaces, beginning with a letter or digit."
        )


def check_party(name: str, where: str = "party") -> None:
    """A party of a real federation. `where`: the key or file that gives the name; the error begins
    with it."""
    if name == AUTHORITY:
        raise InputError(
            f"{where}: the name {AUTHORITY!r} belongs to the files of the authority; choose "
            "another one."
        )
    if not NAME.fullmatch(name):
        raise InputError(
            f"{where}: {name!r} cannot name a party; a name has 1 to 40 characters, the first a "
            "small letter (a-z), then small letters, digits, '_' or '-'."
        )
