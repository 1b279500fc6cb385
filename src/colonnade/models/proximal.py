"""The step that ADMM takes on a loss, row by row: the z that minimises loss(z, y) + ρ/2 |z − v|².

For the cross entropy by Newton's method on all rows at once, in double precision: the Hessian
diag(π) − ππᵀ + ρI is inverted by the formula of Sherman and Morrison, in as many operations as
there are classes. For the squared error in closed form.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

# v [members, rows, outputs], labels [rows] or evidence [rows, outputs], ρ, where to begin → z
Proximal = Callable[[Tensor, Tensor, float, Tensor], Tensor]

ITERATIONS = 100  # 5 to 10 are usual
ENOUGH = 1e-20  # the square of Newton's decrement, beside the size of the objective
ARMIJO = 0.25  # of the decrease that the slope promises, a step must bring so much
HALVINGS = 40


def nearest_logits(
    v: Tensor, labels: Tensor, rho: float, begin: Tensor, weights: Tensor | None = None
) -> Tensor:
    """For the cross entropy, each row weighted by its class (`weights` [classes])."""
    truth = F.one_hot(labels, v.shape[-1]).double()  # [rows, classes]
    # A weight of the loss is as good as its inverse on the penalty.
    rhos = v.new_full((len(labels), 1), rho, dtype=torch.float64)
    if weights is not None:
        rhos = rhos / weights[labels].double()[:, None]
    return _nearest(v, truth, rhos, begin)


def nearest_by_evidence(v: Tensor, evidence: Tensor, rho: float, begin: Tensor) -> Tensor:
    """For labels with noise, `layers.evidence_loss`: the cross entropy with the posterior of each
    class, whose prior is `begin`, is nowhere below that loss and touches it there."""
    truth = (begin.double().log_softmax(-1) + evidence.double()).softmax(-1)
    rhos = v.new_full((v.shape[1], 1), rho, dtype=torch.float64)
    return _nearest(v, truth, rhos, begin)


def _nearest(v: Tensor, truth: Tensor, rhos: Tensor, begin: Tensor) -> Tensor:
    """truth [..., rows, classes]: probabilities; rhos [rows, 1]"""
    centre, z = v.double(), begin.double()
    for _ in range(ITERATIONS):
        slope, step = _newton(z, centre, truth, rhos)
        decrement = -(slope * step).sum(-1, keepdim=True)  # [members, rows, 1], 0 or more
        value = _objective(z, centre, truth, rhos)
        if bool((decrement <= ENOUGH * (1 + value.abs())).all()):
            break
        z = z + _length(z, step, value, decrement, centre, truth, rhos) * step
    return z.to(v.dtype)


def nearest_numbers(v: Tensor, labels: Tensor, rho: float, begin: Tensor) -> Tensor:
    """For the squared error."""
    return (2 * labels[:, None] + rho * v) / (2 + rho)


def _objective(z: Tensor, v: Tensor, truth: Tensor, rho: Tensor) -> Tensor:
    """[members, rows, 1]"""
    loss = z.logsumexp(-1, keepdim=True) - (truth * z).sum(-1, keepdim=True)
    return loss + rho / 2 * (z - v).square().sum(-1, keepdim=True)


def _newton(z: Tensor, v: Tensor, truth: Tensor, rho: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient, and Newton's step."""
    p = z.softmax(-1)
    gradient = p - truth + rho * (z - v)
    inverse = 1 / (p + rho)  # of the diagonal
    # 1 − Σ p²/(p + ρ), without a difference of nearly equal numbers.
    rest = rho * (p * inverse).sum(-1, keepdim=True)
    along = (p * inverse * gradient).sum(-1, keepdim=True) / rest
    return gradient, -inverse * (gradient + p * along)


def _length(
    z: Tensor,
    step: Tensor,
    value: Tensor,
    decrement: Tensor,
    v: Tensor,
    truth: Tensor,
    rho: Tensor,
) -> Tensor:
    """How much of the step each row takes: halved until the objective falls enough, but for
    rounding. [members, rows, 1]"""
    length, rounding = torch.ones_like(value), 1e-14 * (1 + value.abs())
    for _ in range(HALVINGS):
        allowed = value - ARMIJO * length * decrement + rounding
        short = _objective(z + length * step, v, truth, rho) > allowed
        if not bool(short.any()):
            break
        length = torch.where(short, length / 2, length)
    return length
