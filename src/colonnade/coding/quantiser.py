"""Real numbers as elements of a field, and back: fixed-point numbers with so many binary places."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.coding.field import Field


@dataclass(frozen=True)
class Quantiser:
    """x ↦ round(2^bits · x)."""

    field: Field
    bits: int

    @property
    def limit(self) -> float:
        """The largest absolute value that can be quantised."""
        return (self.field.largest - 1) * 2.0**-self.bits

    def nearest(self, x: Tensor) -> Tensor:
        """Rounded to the nearest, halves up."""
        return self.rounded(x, 0.5)

    def rounded(self, x: Tensor, chance: Tensor | float) -> Tensor:
        """Rounded up where the fraction that is cut off, and `chance`, add up to 1 or more. With
        chances drawn uniformly from 0 to 1 the expectation is x."""
        return self.field.element(self._whole(x, chance))

    def fixed(self, x: Tensor) -> Tensor:
        """The nearest fixed-point numbers, also those that are too large for the field. float64"""
        return self._whole(x, 0.5) * 2.0**-self.bits

    def _whole(self, x: Tensor, chance: Tensor | float) -> Tensor:
        return torch.floor(x.double() * 2.0**self.bits + chance)

    def real(self, x: Tensor) -> Tensor:
        """The real numbers that elements stand for. float64"""
        return x.double() * 2.0**-self.bits
