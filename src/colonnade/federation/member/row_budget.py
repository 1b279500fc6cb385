"""How often rows have left a column holder, where noise is added to encodings.

The count is written down before rows leave, so that it holds after a crash: an epoch that has begun
counts as a whole. Every answer releases the rows that it is about once more. With `noise = {
epsilon, … }`, a party does not answer about a row any more whose budget is used up. `--fresh`
forgets the count, as it forgets the training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from colonnade.common.files import replacing
from colonnade.common.text import first_of
from colonnade.errors import ColonnadeError, InputError
from colonnade.federation.member.folder import RELEASED
from colonnade.federation.member.own_data import OwnData
from colonnade.learning.releases import Releases

Times = Annotated[int, msgspec.Meta(ge=0)]


class Count(msgspec.Struct):
    """How often rows left, or are about to."""

    train: Times = 0  # each training row, in training
    validation: Times = 0
    tests: Times = 0  # each test row
    answers: dict[str, Times] = {}  # by id


def some_rows(ids: Sequence[str], of: int) -> str:
    """`2 of 10 rows (17, 23)`"""
    return f"{len(ids):,} of {of:,} rows ({first_of(ids)})"


class RowBudget:
    """`aligned`: so many rows, the first ones of the party, take part in training and test."""

    def __init__(self, releases: Releases, own: OwnData, aligned: int, folder: Path) -> None:
        self.releases, self.own, self.aligned = releases, own, aligned
        self.path = folder / RELEASED
        self.count = Count()
        self._begin() if not self.path.exists() else self._read()
        releases.reserve = self.reserve

    def _begin(self) -> None:
        """Count from 0, unless rows have left before."""
        if any((self.path.parent / "checkpoints").glob("*")):
            raise InputError(
                f"{self.path}: is missing, but the party has been trained; it holds how often rows "
                "have left this party. Restore it, or start over with --fresh"
            )
        self._write()

    def _read(self) -> None:
        try:
            self.count = msgspec.json.decode(self.path.read_bytes(), type=Count)
        except msgspec.DecodeError as error:
            raise InputError(
                f"{self.path}: damaged ({error}); it holds how often rows have left this party. "
                "Restore it, or start over with --fresh"
            ) from None

    def _write(self) -> None:
        try:
            with replacing(self.path, durable=True) as partial:
                partial.write_bytes(msgspec.json.encode(self.count))
        except OSError as error:
            raise ColonnadeError(
                f"{self.path}: cannot be written ({error.strerror or error}), and no row leaves "
                "uncounted; make room, and start this party again"
            ) from error

    def take_up(self) -> None:
        """After a restart: what left since the last checkpoint counts, too."""
        for part in ("train", "validation"):
            self.releases.left.at_least(part, getattr(self.count, part))

    def reserve(self, part: str, times: int) -> None:
        if part != "test" and times > getattr(self.count, part):
            setattr(self.count, part, times)
            self._write()

    def used_up(self, ids: Sequence[str] | None) -> str:
        """Which of these rows (None: the test rows) an answer would release too often, in words; ""
        if none."""
        if ids is None:
            most = self.count.tests + max(self.count.answers.values(), default=0)
            return "" if most + 1 <= self.releases.allowed else "the test rows"
        spent = self.spent(ids)
        return some_rows(spent, len(set(ids))) if spent else ""

    def spent(self, ids: Sequence[str]) -> list[str]:
        """Those of these rows that an answer would release too often."""
        count, allowed = self.count, self.releases.allowed
        before = count.tests + max(count.train, count.validation)
        asked = Counter(ids)  # a row that is asked for twice leaves twice
        places = dict(zip(ids, self.own.positions(ids), strict=True))
        left = {
            one: count.answers.get(one, 0) + (before if place < self.aligned else 0)
            for one, place in places.items()
        }
        return [one for one, times in left.items() if times + asked[one] > allowed]

    def take(self, ids: Sequence[str] | None) -> None:
        """These rows leave, each as often as it is asked for."""
        count = self.count
        if ids is None:
            count.tests += 1
        else:
            count.answers = dict(Counter(count.answers) + Counter(ids))
        self._write()
