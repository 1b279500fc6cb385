"""The labels that a label holder knows, by row id: what a prediction can be compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from colonnade.federation.agreement.federation import Federation
from colonnade.federation.member.own_data import OwnData
from colonnade.federation.member.row_ids import places_of

Truth = str | float  # the name of a class, or a number


class Truths(Mapping[str, Truth]):
    """`y`: of the aligned rows, in their order; NaN: no label."""

    def __init__(self, own: OwnData, y: NDArray[np.float64]) -> None:
        self.own, self.y = own, y
        self.places = own.places if own.held is None else places_of(own.ids, None)

    def __getitem__(self, one: str) -> Truth:
        place = self.places[one]
        if place >= len(self.y) or np.isnan(self.y[place]):
            raise KeyError(one)
        return _told(self.own, float(self.y[place]))

    def __iter__(self) -> Iterator[str]:
        return (str(self.own.ids[place]) for place in np.flatnonzero(~np.isnan(self.y)).tolist())

    def __len__(self) -> int:
        return int((~np.isnan(self.y)).sum())


def truths(federation: Federation, own: OwnData) -> Truths:
    """Of a party that holds labels. Rows without a label are not among them."""
    rows, data = federation.rows, own.data
    if rows is None:  # `own` has the test rows
        return Truths(own, data.test.y.numpy().astype(np.float64))
    if own.labels is not None:  # -1: the row is another party's
        y = own.labels.numpy().astype(np.float64)
        return Truths(own, np.where(y < 0, np.nan, y))
    split = rows.split(federation.seed)
    y = np.full(rows.size, np.nan)
    for places, part in (
        (split.train, data.train),
        (split.validation, data.validation),
        (split.test, data.test),
    ):
        y[places] = part.y.numpy()
    return Truths(own, y)


def _told(own: OwnData, y: float) -> Truth:
    if not own.data.classes:
        return y
    return own.classes[int(y)] if own.classes else str(int(y))
