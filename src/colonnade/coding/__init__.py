"""Computing on secret shares: exact arithmetic modulo a prime, and Lagrange codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colonnade.common import lazy
from colonnade.common.randomness import Randomness, SeededRandomness, SystemRandomness

if TYPE_CHECKING:
    from colonnade.coding.field import Field
    from colonnade.coding.lagrange import LagrangeCode, TooFewAnswers, WrongAnswers
    from colonnade.coding.quantiser import Quantiser

__all__ = [
    "Field",
    "LagrangeCode",
    "Quantiser",
    "Randomness",
    "SeededRandomness",
    "SystemRandomness",
    "TooFewAnswers",
    "WrongAnswers",
]

__getattr__ = lazy.attributes(
    __name__,
    {
        "field": ("Field",),
        "lagrange": ("LagrangeCode", "TooFewAnswers", "WrongAnswers"),
        "quantiser": ("Quantiser",),
    },
)
