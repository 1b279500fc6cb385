"""`decorrelate`: column holders learn encodings that tell less of their columns.

Each of them adds `decorrelate` times the distance correlation between its columns and its encodings
of a batch to what it minimises (NoPeek, Vepakomma et al., 2020). It needs nobody else for that:
nothing more is sent.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from colonnade.errors import InputError
from colonnade.models.stack import Penalty
from colonnade.privacy.distance_correlation import distance_correlation

if TYPE_CHECKING:
    from colonnade.learning.algorithm import Algorithm


def correlation(x: Tensor, encodings: Tensor, weight: float) -> Tensor:
    """[members, rows, width] each → [members]"""
    return weight * distance_correlation(x, encodings)


def penalty_of(algorithm: Algorithm) -> Penalty | None:
    """What the settings of an algorithm add to the objective of its encoders."""
    weight = algorithm.set.decorrelate
    if not weight:
        return None
    if not any(exchange.encodes for exchange in algorithm.exchanges):
        raise InputError(
            f"decorrelate: in {algorithm.name} nobody is told the encodings of a column holder; "
            "leave it out"
        )
    if algorithm.epochs_alone:
        raise InputError(
            f"decorrelate: in {algorithm.name} encoders learn alone, without labels, to tell as "
            "much of the columns as they can, which is the opposite; leave it out"
        )
    return partial(correlation, weight=weight)
