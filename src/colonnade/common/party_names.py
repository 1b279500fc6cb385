"""The names that a party may have, in experiments and in real federations."""

from __future__ import annotations

import re

from colonnade.errors import InputError

AUTHORITY = "authority"
NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


def is_party_name(text: str) -> bool:
    """Whether a party may be called so. The name becomes part of file names, of certificates and of
    the network's key expressions, in which a wildcard would stand for every party."""
    return NAME.fullmatch(text) is not None and text != AUTHORITY


def check_party(name: str, where: str = "party") -> None:
    """`where`: the key or file that gives the name; the error begins with it."""
    if name == AUTHORITY:
        raise InputError(
            f"{where}: the name {AUTHORITY!r} belongs to the files of the authority; choose "
            "another one."
        )
    if not is_party_name(name):
        raise InputError(
            f"{where}: {name!r} cannot name a party; a name has 1 to 40 characters, the first a "
            "small letter (a-z), then small letters, digits, '_' or '-'."
        )
