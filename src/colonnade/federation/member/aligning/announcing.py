"""How the leader tells the others which rows are used, once it has found them.

Rows are known by their places among the leader's tokens, which stand for its keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import numpy as np
from numpy.typing import NDArray

from colonnade.federation.member.aligning.messages import Tell
from colonnade.privacy.alignment.keys import common_order


def news_for_all(
    run: bytes, tokens: Sequence[str], common: Sequence[int], aligned: int, seed: int
) -> Tell:
    """Of rows that all parties have, which are trained on: a bit for each in the order of the
    digests of their keys. The first `aligned` of `common` are."""
    order = common_order([tokens[place] for place in common], seed)
    return Tell(run, len(common), np.packbits(order < aligned).tobytes())


def news_for_one(
    run: bytes,
    tokens: Sequence[str],
    found: Set[int],
    common: Sequence[int],
    aligned: int,
    seed: int,
) -> tuple[list[int], Tell]:
    """With `rows.partial`: the rows that the leader and one party have, and for that party where
    they are in the common order, which is a secret otherwise."""
    numbers = {place: i for i, place in enumerate(common)}
    shared = sorted(found)
    order = common_order([tokens[place] for place in shared], seed)
    places = np.array([numbers[shared[i]] for i in order], dtype="<u4").tobytes()
    return shared, Tell(run, len(shared), places=places, rows=len(common), aligned=aligned)


def held_by(
    parties: Sequence[str], found: Mapping[str, Set[int]], common: Sequence[int]
) -> dict[str, NDArray[np.bool_]]:
    """By party, which of the common rows it has; the leader, which is not in `found`, has all."""
    every = set(common)
    return {
        party: np.array([place in found.get(party, every) for place in common], dtype=bool)
        for party in parties
    }
