"""The matrix products of a training step and nothing else: what no program can do without."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor


class Products:
    """Of each group (its members and the widths of their networks): forward, the gradients of all
    weights, and those of all inputs but the network's own."""

    def __init__(self, rows: int, *groups: tuple[int, Sequence[int]]) -> None:
        self.calls: list[tuple[Tensor, Tensor, Tensor]] = []
        for members, widths in groups:
            for i, (inputs, outputs) in enumerate(pairwise(widths)):
                x, gradient = torch.rand(members, rows, inputs), torch.rand(members, rows, outputs)
                weight = torch.rand(members, inputs, outputs)
                self._add(x, weight)
                self._add(x.transpose(1, 2), gradient)
                if i:
                    self._add(gradient, weight.transpose(1, 2))

    def _add(self, a: Tensor, b: Tensor) -> None:
        self.calls.append((a, b, torch.bmm(a, b)))

    @property
    def operations(self) -> int:
        return sum(2 * a.numel() * b.shape[2] for a, b, _ in self.calls)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            for a, b, out in self.calls:
                torch.bmm(a, b, out=out)
