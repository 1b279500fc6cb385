"""Which rows go where: test, validation, training, and rows that only one party holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.common.seeds import numpy_stream
from colonnade.data.row_splits import TEST, TRAIN, VALIDATION, Parts
from colonnade.errors import InputError

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class RowSplit:
    train: Indices
    validation: Indices
    test: Indices
    extra: tuple[Indices, ...] = ()  # per party; empty unless `labelled` or `overlap` gave some
    held: NDArray[np.bool_] | None = None  # [parties, all rows there are]; None: all have all


def split_rows(
    y: NDArray[np.int64],
    seed: int,
    *,
    official: int | None,
    test: float,
    validation: float,
    cap: int | None = None,
    labelled: int | None = None,
    parties: int = 1,
    given: Parts | None = None,
) -> RowSplit:
    """Cut test rows, then the cap, then validation rows (all stratified), then labelled rows.
    `given`: which part each row is in, as a column says; then the cap is of training rows."""
    everything = np.arange(len(y))
    if given is not None:
        return _given_split(given, y, seed, cap, labelled, parties)
    if official is None:
        held_out, pool = cut(
            y, everything, _share(test, len(y)), numpy_stream(seed, "split", "test")
        )
    else:
        held_out, pool = everything[official:], everything[:official]
    if cap is not None and cap < len(pool):
        pool, _ = cut(y, pool, cap, numpy_stream(seed, "split", "rows"))
    count = _share(validation, len(pool))
    validation_rows, train = cut(y, pool, count, numpy_stream(seed, "split", "validation"))
    if not len(train):
        raise InputError(
            f"data: {len(y)} rows with test = {test}, validation = {validation} and "
            f"rows = {cap} leave no training rows; lower the shares or give more rows."
        )
    return _labelled(RowSplit(train, validation_rows, held_out), y, seed, labelled, parties)


def _given_split(
    given: Parts, y: Indices, seed: int, cap: int | None, labelled: int | None, parties: int
) -> RowSplit:
    train, validation, test = (np.flatnonzero(given == part) for part in (TRAIN, VALIDATION, TEST))
    if not len(train):
        raise InputError("data.split_by: leaves no training rows.")
    if cap is not None and cap < len(train):
        train, _ = cut(y, train, cap, numpy_stream(seed, "split", "rows"))
    return _labelled(RowSplit(train, validation, test), y, seed, labelled, parties)


def _labelled(
    chosen: RowSplit, y: Indices, seed: int, labelled: int | None, parties: int
) -> RowSplit:
    train, validation_rows, held_out = chosen.train, chosen.validation, chosen.test
    if labelled is None:
        return chosen
    if labelled > len(train):
        raise InputError(
            f"data.labelled = {labelled}: only {len(train)} training rows are left after test and "
            f"validation rows are set aside; give 1 to {len(train)}."
        )
    random = numpy_stream(seed, "split", "labelled")
    aligned, rest = cut(y, train, labelled, random)
    return RowSplit(
        aligned, validation_rows, held_out, tuple(np.array_split(random.permutation(rest), parties))
    )


def cut(
    y: NDArray[np.int64], rows: Indices, count: int, random: np.random.Generator
) -> tuple[Indices, Indices]:
    """`count` of the rows with every class in proportion, and the rest. The rest is not in random
    order: its first rows are of the classes whose share was complete first."""
    shuffled = random.permutation(rows)
    labels = y[shuffled]
    if not len(labels) or (labels == labels[0]).all():  # rows by the million, in a federation
        return shuffled[:count].copy(), shuffled[count:].copy()
    chosen = np.zeros(len(shuffled), dtype=bool)
    classes, sizes = np.unique(labels, return_counts=True)
    for label, quota in zip(classes, _quotas(sizes, count), strict=True):
        chosen[np.flatnonzero(labels == label)[:quota]] = True
    return shuffled[chosen], shuffled[~chosen]


def _quotas(sizes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Largest remainders: whole numbers in proportion to `sizes` that sum to `count`."""
    exact = sizes * count
    total = int(sizes.sum()) or 1
    quotas = exact // total
    # A stable sort gives ties to the lower class, on every platform.
    neediest = np.argsort(-(exact % total), kind="stable")
    quotas[neediest[: count - int(quotas.sum())]] += 1
    return quotas


def _share(share: float, rows: int) -> int:
    return round(share * rows)
