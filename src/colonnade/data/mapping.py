"""The `columns` table of an experiment file: which party holds which named columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from colonnade.common.party_names import check_simulated
from colonnade.common.text import nearest
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
        check_simulated(party, "data.columns")
        if not chosen:
            raise InputError(
                f"data.columns.{party}: has no columns; name at least one of {source}."
            )
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


def _twice(first: str, second: str) -> str:
    return f"party {first!r} twice" if first == second else f"two parties, {first!r} and {second!r}"
