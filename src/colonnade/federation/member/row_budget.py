"""How often a column holder has answered about each of its rows, where noise is added to encodings.

Every answer releases the rows that it is about once more, beside the releases of the training. With
`noise = { epsilon, … }`, a party does not answer about a row any more whose budget is used up. The
count is written down before the answer leaves. `--fresh` forgets it, as it forgets the training.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from colonnade.common.files import replacing
from colonnade.errors import InputError
from colonnade.federation.member.folder import ASKED
from colonnade.federation.member.own_data import OwnData
from colonnade.learning.releases import Releases


class Answered(msgspec.Struct):
    """How often, by id; and all test rows together."""

    tests: int = 0
    rows: dict[str, int] = {}


class RowBudget:
    """`aligned`: so many rows, the first ones of the party, take part in training and test."""

    def __init__(self, releases: Releases, own: OwnData, aligned: int, folder: Path) -> None:
        self.releases, self.own, self.aligned = releases, own, aligned
        self.path = folder / ASKED
        self.answered = Answered()
        if self.path.exists():
            try:
                self.answered = msgspec.json.decode(self.path.read_bytes(), type=Answered)
            except msgspec.DecodeError as error:
                raise InputError(
                    f"{self.path}: damaged ({error}); it holds how often rows were answered about. "
                    "Restore it, or start over with --fresh"
                ) from None

    def allows(self, ids: Sequence[str] | None) -> bool:
        """Whether an answer about these rows (None: the test rows) is within the budget."""
        known, left = self.answered, self.releases.left
        if ids is None:
            most = known.tests + max(known.rows.values(), default=0)
        else:
            trained = known.tests + max(left.times("train"), left.times("validation"))
            places = self.own.positions(ids)
            most = max(
                known.rows.get(one, 0) + (trained if place < self.aligned else 0)
                for one, place in zip(ids, places, strict=True)
            )
        return most + 1 <= self.releases.allowed

    def take(self, ids: Sequence[str] | None) -> None:
        """These rows leave once more."""
        known = self.answered
        if ids is None:
            known.tests += 1
        else:
            known.rows |= {one: known.rows.get(one, 0) + 1 for one in set(ids)}
        with replacing(self.path) as partial:
            partial.write_bytes(msgspec.json.encode(known))
