"""Whether parties have the same federation file, and if not, where it differs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any


def flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and their values. Tables in a list are called by their names."""
    for key, value in table.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from flat(value, f"{path}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield path, [entry["name"] for entry in value]
            for entry in value:
                yield from flat(entry, f"{path}.{entry['name']}.")
        else:
            yield path, value


def digest(value: Any, size: int) -> str:
    """`size` bytes in hexadecimal, equal on every machine."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


def differences(mine: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """The dotted keys that two parties' `Federation.digests` disagree about."""
    return sorted(key for key in {*mine, *theirs} if mine.get(key) != theirs.get(key))
