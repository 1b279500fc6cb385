"""Stacks of models, their optimisers and the layers the papers use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colonnade.common import lazy

if TYPE_CHECKING:
    from colonnade.models.layers import cross_entropy, mlp
    from colonnade.models.optim import Optimizer
    from colonnade.models.stack import Stack

__all__ = ["Optimizer", "Stack", "cross_entropy", "mlp"]

__getattr__ = lazy.attributes(
    __name__,
    {"layers": ("cross_entropy", "mlp"), "optim": ("Optimizer",), "stack": ("Stack",)},
)
