"""Parties that have only some of the rows each, as real organisations do: for simulations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from colonnade.common.seeds import numpy_stream
from colonnade.data.rows import Indices, RowSplit
from colonnade.data.spec import DataSpec
from colonnade.errors import InputError


def overlapping(
    chosen: RowSplit, spec: DataSpec, clients: Sequence[str], count: int, seed: int
) -> tuple[RowSplit, tuple[str, ...]]:
    """The rows that are left when each client has a random share of them, and what to say about it.
    `count`: all rows there are.

    A row that no client has is left out. A training or validation row that some client lacks is
    kept with `partial`; without, clients that learn alone may use those that they have. Test rows
    are kept, so that both can be compared.
    """
    if spec.overlap is None and spec.test_overlap is None:
        return chosen, ()
    learnt = np.concatenate([chosen.train, chosen.validation])
    held = np.zeros((len(clients), count), dtype=bool)
    for which, share, purpose in (
        (learnt, spec.overlap, "overlap"),
        (chosen.test, spec.test_overlap, "overlap of test rows"),
    ):
        for i, client in enumerate(clients):
            random = numpy_stream(seed, client, purpose).permutation(which)
            held[i, random[: round((1.0 if share is None else share) * len(which))]] = True
    everywhere, somewhere = np.asarray(held.all(0)), np.asarray(held.any(0))
    kept = somewhere if spec.partial else everywhere
    train, validation = (rows[kept[rows]] for rows in (chosen.train, chosen.validation))
    test = chosen.test[somewhere[chosen.test]]
    if not len(train):
        raise InputError(
            f"data.overlap = {spec.overlap}: leaves no training row that all {len(clients)} "
            "parties have; raise it, or set data.partial = true."
        )
    alone = () if spec.partial else _alone(held, chosen.train, everywhere)
    split = RowSplit(train, validation, test, alone, _unless_whole(held, train, validation, test))
    return split, (_note(spec, learnt, everywhere, somewhere),)


def _alone(
    held: NDArray[np.bool_], train: Indices, everywhere: NDArray[np.bool_]
) -> tuple[Indices, ...]:
    """Training rows that a client has, but not every client; none if some client has none."""
    found = tuple(train[mine[train] & ~everywhere[train]] for mine in held)
    return found if all(map(len, found)) else ()


def _unless_whole(held: NDArray[np.bool_], *parts: Indices) -> NDArray[np.bool_] | None:
    return None if all(held[:, rows].all() for rows in parts) else held


def _note(
    spec: DataSpec,
    learnt: Indices,
    everywhere: NDArray[np.bool_],
    somewhere: NDArray[np.bool_],
) -> str:
    all_, some = int(everywhere[learnt].sum()), int(somewhere[learnt].sum())
    used = f"{some:,} are used" if spec.partial else f"{all_:,} are used"
    return (
        f"overlap: of {len(learnt):,} rows to train and validate with, {all_:,} are at every party "
        f"and {some:,} at one or more; {used}"
    )
