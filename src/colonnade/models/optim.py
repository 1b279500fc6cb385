"""SGD and Adam over a stack of models, with `where`.

A party that missed a message keeps its parameters, its moments and its own step count, exactly as
if it had an optimiser of its own. When every member takes part and all have taken as many steps,
the update is one fused kernel over the stack; otherwise the same kernel runs over the members that
take part. `masked_update` is the same arithmetic in plain operations, for compiled steps.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

BETAS = (0.9, 0.999)
EPSILON = 1e-8


@dataclass
class Share:
    """How much of the learning rate is in use now; all optimisers of an algorithm read the same
    one."""

    value: float = 1.0


@dataclass(frozen=True)
class Optimizer:
    """The settings of an optimiser; `of` makes the optimiser of a stack."""

    kind: Literal["sgd", "adam"] = "adam"
    lr: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None  # longest gradient of a member; longer ones are scaled down
    share: Share = field(default_factory=Share, repr=False, compare=False)

    @property
    def rate(self) -> float:
        """The learning rate of the present epoch."""
        return self.lr * self.share.value

    def of(self, parameters: list[Tensor]) -> StackedOptimizer:
        return StackedOptimizer(self, parameters)


class StackedOptimizer:
    """State per member: moments like the parameters, and a count of steps."""

    def __init__(self, rule: Optimizer, parameters: list[Tensor]) -> None:
        self.rule = rule
        self.parameters = parameters  # each [members, ...]
        members = parameters[0].shape[0] if parameters else 0
        with torch.no_grad():
            self.first = [torch.zeros_like(p) for p in parameters]
            self.second = [torch.zeros_like(p) for p in parameters] if rule.kind == "adam" else []
        # Shape [members], never 0-dim float64: torch 2.13 loses in-place updates of those in
        # compiled code.
        self.steps = torch.zeros(members, dtype=torch.float64)
        self._together = True  # all members have taken the same number of steps
        self._rates = (torch.ones(members), torch.ones(members))
        self._whole: StackedOptimizer | None = None  # set by `only`: the optimiser of all members

    def only(self, k: int, parameters: list[Tensor]) -> StackedOptimizer:
        """The optimiser of member k, whose parameters are given; its moments and its step count are
        views of those here."""
        one = copy.copy(self)
        one.parameters, one.steps = parameters, self.steps[k : k + 1]
        one.first, one.second = ([m[k : k + 1] for m in all_] for all_ in (self.first, self.second))
        one._together, one._whole = True, self
        one._rates = (torch.ones(1), torch.ones(1))
        return one

    @torch.no_grad()
    def step(self, gradients: tuple[Tensor, ...], where: Tensor | None = None) -> None:
        """One step for the members where `where` is True ([members] bool; None: all)."""
        # The fused kernels assume that all tensors have the same memory layout.
        gradients = tuple(g.contiguous() for g in clipped(gradients, self.rule.clip))
        self._leave_the_others()
        if where is None or bool(where.all()):
            self.steps += 1
            if self._together or self.rule.kind == "sgd":
                steps = self.steps[:1].float()[0]
                self._fused(
                    self.parameters, gradients, self.first, self.second, [steps] * len(gradients)
                )
                return
            chosen = range(len(self.steps))
        else:
            self._together = False
            chosen = where.nonzero()[:, 0].tolist()
            self.steps[where] += 1
        if len(chosen):
            self._fused_members(list(chosen), gradients)

    def member_state(self, i: int) -> dict[str, Tensor]:
        """Moments and step count of member i; views, not copies."""
        moments = {f"first.{k}": m[i] for k, m in enumerate(self.first)}
        moments |= {f"second.{k}": m[i] for k, m in enumerate(self.second)}
        return {**moments, "steps": self.steps[i : i + 1]}

    def resumed(self) -> None:
        """To be called after states were written into the views of `member_state`."""
        self._together = bool((self.steps == self.steps[:1]).all())

    def _leave_the_others(self) -> None:
        """In a view of one member (`only`): its step count will differ from those of the others."""
        if self._whole is not None:
            self._whole._together = False

    def rates(self, where: Tensor) -> tuple[Tensor, Tensor]:
        """Counts a step and gives the step size and the scale, with Adam's correction of its bias.
        Each [members]"""
        if self.rule.kind == "sgd":
            self._rates[0].fill_(self.rule.rate)
            return self._rates
        self._leave_the_others()
        if not bool(where.all()):
            self._together = False
        self.steps += where
        if self._together:  # the common case: a few numbers are faster than many small tensors
            count = float(self.steps[0])
            self._rates[0].fill_(self.rule.rate / (1 - BETAS[0] ** count))
            self._rates[1].fill_((1 - BETAS[1] ** count) ** -0.5)
            return self._rates
        counts = self.steps.clamp(min=1)
        size = self.rule.rate / (1 - BETAS[0] ** counts)
        return size.float(), (1 - BETAS[1] ** counts).rsqrt().float()

    def _fused_members(self, chosen: list[int], gradients: tuple[Tensor, ...]) -> None:
        """One call of the kernel over slices of the chosen members, each with its own step
        count."""

        def slices(tensors: list[Tensor] | tuple[Tensor, ...]) -> list[Tensor]:
            parts = [tensor.unbind(0) for tensor in tensors]
            return [part[i] for part in parts for i in chosen]

        counts = self.steps.float().unbind(0)
        steps = [counts[i] for i in chosen] * len(gradients)
        self._fused(
            slices(self.parameters),
            slices(gradients),
            slices(self.first),
            slices(self.second),
            steps,
        )

    def _fused(
        self,
        parameters: list[Tensor],
        gradients: list[Tensor] | tuple[Tensor, ...],
        first: list[Tensor],
        second: list[Tensor],
        steps: list[Tensor],
    ) -> None:
        rule = self.rule
        if rule.kind == "adam":
            torch._fused_adam_(  # pyright: ignore[reportPrivateImportUsage]
                parameters,
                list(gradients),
                first,
                second,
                [],
                steps,
                lr=rule.rate,
                beta1=BETAS[0],
                beta2=BETAS[1],
                weight_decay=rule.weight_decay,
                eps=EPSILON,
                amsgrad=False,
                maximize=False,
            )
        else:
            # A buffer of zeros makes the first step like every other: m·0 + g = g.
            torch._fused_sgd_(  # pyright: ignore[reportPrivateImportUsage]
                parameters,
                list(gradients),
                first if rule.momentum else [],
                weight_decay=rule.weight_decay,
                momentum=rule.momentum,
                lr=rule.rate,
                dampening=0.0,
                nesterov=False,
                maximize=False,
                is_first_step=False,
            )


def clipped(gradients: Sequence[Tensor], limit: float | None) -> Sequence[Tensor]:
    """Gradients [members, ...], scaled down so that no member's gradient is longer than the limit;
    a gradient that is not finite becomes zeros."""
    if limit is None or not gradients:
        return gradients
    norm = torch.linalg.vector_norm
    lengths = norm(torch.stack([norm(g.flatten(1), dim=1) for g in gradients]), dim=0)  # [members]
    if not torch.compiler.is_compiling() and bool((lengths <= limit).all()):
        return gradients  # as most are: saves 14 % of a step of convolutions
    scale = (limit / lengths.clamp(min=limit)).nan_to_num(0.0)
    shapes = [(-1, *[1] * (g.dim() - 1)) for g in gradients]
    usable = lengths.isfinite()
    return [
        torch.where(usable.view(shape), g * scale.view(shape), 0)
        for g, shape in zip(gradients, shapes, strict=True)
    ]


def masked_update(
    rule: Optimizer,
    parameters: list[Tensor],
    gradients: list[Tensor],
    first: list[Tensor],
    second: list[Tensor],
    rates: tuple[Tensor, Tensor],
    where: Tensor,
) -> None:
    """The same step in plain operations, in place; meant to be compiled.

    `where` is [members] bool; `rates` come from `StackedOptimizer.rates`, outside the compiled
    code: inside, the powers would be taken anew for every single parameter.
    """
    for k, (p, g) in enumerate(zip(parameters, gradients, strict=True)):
        axes = (-1, *[1] * (p.dim() - 1))
        chosen, size, scale = where.view(axes), rates[0].view(axes), rates[1].view(axes)
        g = g + rule.weight_decay * p if rule.weight_decay else g
        if rule.kind == "sgd":
            velocity = rule.momentum * first[k] + g if rule.momentum else g
            if rule.momentum:
                first[k].copy_(torch.where(chosen, velocity, first[k]))
            p.copy_(torch.where(chosen, p - size * velocity, p))
            continue
        m = first[k] + (1 - BETAS[0]) * (g - first[k])
        v = BETAS[1] * second[k] + (1 - BETAS[1]) * g * g
        moved = p - size * m / (v.sqrt() * scale + EPSILON)
        first[k].copy_(torch.where(chosen, m, first[k]))
        second[k].copy_(torch.where(chosen, v, second[k]))
        p.copy_(torch.where(chosen, moved, p))
