"""The labels that a label holder knows, by row id: what a prediction can be compared with."""

from __future__ import annotations

from colonnade.federation.agreement.federation import Federation
from colonnade.federation.member.own_data import OwnData

Truth = str | float  # the name of a class, or a number


def truths(federation: Federation, own: OwnData) -> dict[str, Truth]:
    """Of a party that holds labels. Rows without a label are not among them."""
    rows, data = federation.rows, own.data
    if rows is None:  # `own` has the test rows
        return {one: _told(own, y) for one, y in zip(own.ids, data.test.y.tolist(), strict=True)}
    if own.labels is not None:  # -1: the row is another party's
        known = zip(own.ids, own.labels.tolist(), strict=False)
        return {one: _told(own, y) for one, y in known if y >= 0}
    split = rows.split(federation.seed)
    parts = (
        (split.train, data.train),
        (split.validation, data.validation),
        (split.test, data.test),
    )
    return {
        str(own.ids[place]): _told(own, y)
        for places, part in parts
        for place, y in zip(places.tolist(), part.y.tolist(), strict=True)
    }


def _told(own: OwnData, y: float) -> Truth:
    if not own.data.classes:
        return float(y)
    return own.classes[int(y)] if own.classes else str(int(y))
