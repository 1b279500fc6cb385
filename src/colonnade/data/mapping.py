"""The `columns` table of an experiment file: which party holds which named columns."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

from colonnade.errors import InputError


def check(
    mapping: Mapping[str, Sequence[str]],
    names: Sequence[str],
    source: str,
    label: str | None = None,
) -> None:
    """Refuse columns that are not there, that are given twice, or that are the label."""
    holder: dict[str, str] = {}
    features = [name for name in names if name != label]
    for party, chosen in mapping.items():
        _check_party(party, chosen, source)
        for column in chosen:
            if column == label:
                raise InputError(
                    f"{source}: column {column!r} is the label and is given to party {party!r} "
                    "as a feature; take it out of data.columns."
                )
            if column not in features:
                raise InputError(
                    f"{source}: no column {column!r}, which data.columns gives to party {party!r}"
                    f"{nearest(column, features)}."
                )
            if column in holder:
                raise InputError(
                    f"{source}: column {column!r} is given to {_twice(holder[column], party)}; "
                    "a column has one holder."
                )
            holder[column] = party


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error sentence that names what was probably meant."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)
    return f"; the nearest is {close[0]!r}" if close else ""


def is_name(text: str) -> bool:
    """Whether a party may be called so: its name becomes a file name and a network key."""
    return re.fullmatch(r"\w[\w .-]*", text) is not None


def _check_party(party: str, chosen: Sequence[str], source: str) -> None:
    if not is_name(party):
        raise InputError(
            f"data.columns: {party!r} cannot name a party; use letters, digits, '_', '-', '.' "
            "and spaces, beginning with a letter or digit."
        )
    if not chosen:
        raise InputError(f"data.columns.{party}: has no columns; name at least one of {source}.")


def _twice(first: str, second: str) -> str:
    return f"party {first!r} twice" if first == second else f"two parties, {first!r} and {second!r}"
