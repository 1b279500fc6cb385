"""Stacks of models, their optimisers and the layers the papers use."""

from colonnade.models.layers import cross_entropy, mlp
from colonnade.models.optim import Optimizer
from colonnade.models.stack import Stack

__all__ = ["Optimizer", "Stack", "cross_entropy", "mlp"]
