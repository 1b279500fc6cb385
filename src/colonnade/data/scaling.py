"""Scaling that a party fits on its training rows, and applies to all later rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Scaler:
    """(x − centre) / spread, column by column."""

    centre: NDArray[np.float64]  # [width]
    spread: NDArray[np.float64]  # [width]

    @classmethod
    def standardising(cls, x: NDArray[np.generic]) -> Scaler:
        """Zero mean and unit variance over these rows; a constant column is only centred."""
        # A column of 0.1 has a standard deviation of 1e-17, not 0: compare the values.
        constant = x.max(axis=0) == x.min(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = x.mean(axis=0, dtype=np.float64)
            deviation = x.std(axis=0, dtype=np.float64)
        huge = ~np.isfinite(mean) | ~np.isfinite(deviation)
        if huge.any():  # from 1e154 on, squares overflow
            largest = np.abs(x[:, huge]).max(axis=0)
            mean[huge] = (x[:, huge] / largest).mean(axis=0) * largest
            deviation[huge] = (x[:, huge] / largest).std(axis=0) * largest
        return cls(mean, np.where(constant, 1.0, deviation))

    @classmethod
    def of_pixels(
        cls, width: int, maximum: float, mean: float = 0.0, spread: float = 1.0
    ) -> Scaler:
        """Pixels to [0, 1]; then (pixel − mean) / spread."""
        return cls(np.full(width, mean * maximum), np.full(width, spread * maximum))

    def apply(self, x: NDArray[np.generic]) -> Tensor:
        """Rows [rows, width] of any number type to a float32 tensor."""
        import torch  # 2 s: who only looks at a table does not wait for it

        # Amounts of money lose digits when centred in float32; bytes do not.
        exact = np.float32 if x.dtype == np.uint8 else np.float64
        scaled = np.array(x, dtype=exact, order="C")
        scaled -= self.centre.astype(exact)
        scaled /= self.spread.astype(exact)
        return torch.from_numpy(scaled.astype(np.float32, copy=False))
