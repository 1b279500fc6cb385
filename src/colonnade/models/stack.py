"""The models of one group as one object: parameters with a leading axis over the members here.

Members of equal architecture form a cohort and are computed together; members of unequal
architecture form several. A stack with no members here computes nothing and answers with the
absent value.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, grad_and_value, vjp
from torch.utils.weak import WeakTensorKeyDictionary

from colonnade.models.cohort import Cohort, alike
from colonnade.models.layers import Loss
from colonnade.models.optim import Optimizer, clipped, masked_update
from colonnade.network.absent import ABSENT
from colonnade.network.inbox import Inbox

log = logging.getLogger(__name__)

State = list[dict[str, Tensor]]
# Of the inputs and the outputs of a stack, [members, rows, width] each → [members]
Penalty = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Tape:
    """What `backward` must know of one forward computation."""

    x: Tensor  # [members here, rows, width]
    changes: int  # of the parameters that there had been by then


@dataclass(slots=True)
class Changes:
    """Of a stack's parameters, whether of all members or of one; see `Stack.only`."""

    made: int = 0


class Stack:
    """`stack(x)` computes; `backward`, `pass_back`, `learn` and `fit` train. x is [members here,
    rows, width].

    Those that train take `where` ([members here] bool): which members take a step. Without it,
    those do that are up. The others keep their parameters, moments and step counts.
    """

    def __init__(
        self,
        modules: Sequence[nn.Module],
        optimizer: Optimizer,
        *,
        input_widths: Sequence[int] | None = None,
        seeds: Sequence[int] | None = None,
        up: Callable[[], Tensor | None] = lambda: None,
        up_alone: Callable[[int], Tensor | None] = lambda place: None,
        places: Sequence[int] | None = None,
        compile: bool = False,
        penalty: Penalty | None = None,
    ) -> None:
        """`input_widths`: true widths by member where x is padded. `seeds`: by member, for modules
        that draw random numbers (dropout). `up`: which members are up now; None: all. `places`: of
        the members here in their group; `up_alone`: whether the one at a place is up now.
        `penalty`: what members add to everything that they minimise."""
        self.members = len(modules)
        self.up, self.up_alone = up, up_alone
        self.places = list(range(self.members) if places is None else places)
        seeds = seeds if seeds is not None else range(self.members)
        self.cohorts = [
            Cohort(index, [modules[i] for i in index], [seeds[i] for i in index], width)
            for index, width in alike(modules, input_widths)
        ]
        self.optimizers = [optimizer.of(list(c.parameters.values())) for c in self.cohorts]
        self.optimizer, self.penalty = optimizer, penalty
        self._order = torch.tensor([i for c in self.cohorts for i in c.index]).argsort()
        self._compile = compile and all(c.can_be_compiled for c in self.cohorts)
        if compile and not self._compile:
            log.warning("%s: its steps are not compiled", type(modules[0]).__name__)
        self._compiled: dict[Any, Any] = {}
        # One tape for each output that is still in use: programs that run side by side compute
        # forward and backward in any order.
        self._tapes: Any = WeakTensorKeyDictionary()
        self._changes = Changes()
        # Parameters had changed before the newest backward: then most likely before the next one
        # too, and a graph would be of no use (saves 6 % of a step of convolutions).
        self._again = False
        self._always_the_same = all(c.plan is not None for c in self.cohorts)  # computed twice
        self._everyone = torch.ones(self.members, dtype=torch.bool)
        self._alone: dict[int, Stack] = {}

    def only(self, place: int) -> Stack:
        """The model of the member at a place in the group as a stack of one, for a program in which
        the others have no part; empty if that member is not here. Both share parameters, moments
        and step counts."""
        if place not in self._alone:
            self._alone[place] = self._view(place)
        return self._alone[place]

    def _view(self, place: int) -> Stack:
        up = partial(self.up_alone, place)
        if place not in self.places:
            return Stack([], self.optimizer, up=up)
        view, member = copy.copy(self), self.places.index(place)
        cohort, optimizer = next(
            (c, o) for c, o in zip(self.cohorts, self.optimizers, strict=True) if member in c.index
        )
        k = cohort.index.index(member)
        view.members, view.places, view.up = 1, [place], up
        view.cohorts = [cohort.only(k)]
        view.optimizers = [optimizer.only(k, list(view.cohorts[0].parameters.values()))]
        view._order, view._everyone = torch.zeros(1, dtype=torch.int64), self._everyone[:1]
        view._compiled, view._tapes, view._alone = {}, WeakTensorKeyDictionary(), {}
        return view

    def twin(self) -> Stack:
        """Another stack of the same models as they are now, with parameters, moments and step
        counts of its own."""
        other = copy.copy(self)
        other.cohorts = [cohort.twin() for cohort in self.cohorts]
        other.optimizers = [self.optimizer.of(list(c.parameters.values())) for c in other.cohorts]
        other._compiled, other._tapes, other._alone = {}, WeakTensorKeyDictionary(), {}
        other._changes = Changes()
        return other

    # -- computing --------------------------------------------------------------------------------

    def __call__(self, x: Tensor) -> Tensor:
        """[members here, rows, width], ready for `backward`."""
        if not self.members:
            return ABSENT  # pyright: ignore[reportReturnType]
        # The compiled backward step computes forward again, inside one graph.
        again = self._compile or self._again
        with torch.set_grad_enabled(torch.is_grad_enabled() and not again):
            out = self._forward(self._state(), x)
        self._tapes[out] = Tape(x, self._changes.made)
        return out

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """As in use, not in training: no dropout, fixed normalisation, nothing to differentiate."""
        if not self.members:
            return ABSENT  # pyright: ignore[reportReturnType]
        return self._forward(self._state(), x, training=False)

    # -- learning ---------------------------------------------------------------------------------

    def backward(self, out: Tensor, gradient: Tensor | Inbox, where: Tensor | None = None) -> None:
        """Back-propagate a gradient that came over the network. An inbox stands for the sum of the
        gradients in it, and then only members that were sent one take a step. `out` is what the
        stack computed. If the parameters have changed since then, by a step or a restored version
        of another program, the derivative is taken at the present ones, as a compiled step does."""
        gradient, where = self._came(gradient, where)
        if self.members and self._parameters():
            self._back(out, gradient, where, None)

    def pass_back(
        self, x: Tensor, out: Tensor, gradient: Tensor | Inbox, where: Tensor | None = None
    ) -> Tensor:
        """`backward` for those in the middle: also the gradient with respect to x, which
        `requires_grad`."""
        gradient, where = self._came(gradient, where)
        if not self.members:
            return ABSENT  # pyright: ignore[reportReturnType]
        return self._back(out, gradient, where, x)

    def _came(self, gradient: Tensor | Inbox, where: Tensor | None) -> tuple[Tensor, Tensor]:
        if isinstance(gradient, Inbox):
            return gradient.total(), gradient.any if where is None else where
        # Absent here, it may be an inbox elsewhere. Asking then draws no faults: the exchange did.
        return gradient, self.stepping(where)

    def stepping(self, where: Tensor | None = None) -> Tensor:
        """Which members take a step if it is asked for now. A stack without members asks the
        network as well, so that all parties draw the same faults. [members here] bool"""
        if where is not None:
            return where
        up = self.up()
        return self._everyone if up is None else up

    def _back(self, out: Tensor, gradient: Tensor, where: Tensor, x: Tensor | None) -> Any:
        # A message is padded to the widest member of the group, which may not be here.
        gradient = gradient[..., : out.shape[-1]]
        tape: Tape | None = self._tapes.get(out)
        if self._compile:
            assert tape is not None, "the backward of a compiled stack takes what it computed"
            step = self._backward_step if x is None else self._pass_back_step
            return self._compiled_step(step, where, tape.x, gradient)
        inputs = [] if x is None else [x]
        if tape is not None:
            changed = tape.changes != self._changes.made
            if changed or not out.requires_grad:
                out = self._forward(self._state(), tape.x)
            self._again = changed and self._always_the_same
        if self.penalty is not None:
            assert tape is not None, "a penalty is on what the stack computed"
            gradient = gradient + _pull(self.penalty, tape.x, out)
        found = torch.autograd.grad(out, [*self._parameters(), *inputs], gradient)
        self._apply(found[: len(found) - len(inputs)], where)
        return None if x is None else found[-1]

    def _losses(self, state: State, x: Tensor, target: Tensor, loss: Loss) -> Tensor:
        """Of a local loss. [members here]"""
        out = self._forward(state, x)
        losses = loss(out, target)
        return losses if self.penalty is None else losses + self.penalty(x.detach(), out)

    def learn(
        self, x: Tensor, target: Tensor, loss: Loss, where: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """One step on a local loss; the loss by member, and its gradient with respect to x."""
        where = self.stepping(where)
        if not self.members:
            return ABSENT, ABSENT  # pyright: ignore[reportReturnType]
        if self._compile:
            return self._compiled_step(self._learn_step, where, x, target, loss)
        x = x.detach().requires_grad_()
        losses = self._losses(self._state(), x, target, loss)
        *gradients, input_gradient = torch.autograd.grad(losses.sum(), [*self._parameters(), x])
        self._apply(tuple(gradients), where)
        return losses.detach(), input_gradient

    def fit(self, x: Tensor, target: Tensor, loss: Loss, where: Tensor | None = None) -> Tensor:
        """`learn` where no gradient of x is needed: 7 % faster for an autoencoder."""
        where = self.stepping(where)
        if not self.members or self._compile:
            return self.learn(x, target, loss, where)[0]
        losses = self._losses(self._state(), x, target, loss)
        self._apply(torch.autograd.grad(losses.sum(), self._parameters()), where)
        return losses.detach()

    # -- parameters and their gradients as rows of numbers, for messages; one architecture -------

    def derivatives(self, x: Tensor, target: Tensor, loss: Loss) -> tuple[Tensor, Tensor, Tensor]:
        """Of a local loss, without a step: the loss by member, its gradient with respect to the
        parameters as one row [members here, size], and with respect to x."""
        if not self.members:
            return ABSENT, ABSENT, ABSENT  # pyright: ignore[reportReturnType]
        x = x.detach().requires_grad_()
        losses = loss(self._forward(self._state(), x), target)
        *gradients, to_input = torch.autograd.grad(losses.sum(), [*self._parameters(), x])
        return losses.detach(), self.cohorts[0].as_row(gradients), to_input

    def step(self, gradient: Tensor, where: Tensor) -> None:
        """One step by a gradient [members here, size], where members are told to."""
        if self.members:
            self._apply(tuple(self.cohorts[0].from_row(gradient)), where)

    def as_row(self) -> Tensor:
        """The parameters. [members here, size]"""
        if not self.members:
            return ABSENT  # pyright: ignore[reportReturnType]
        return self.cohorts[0].as_row(self._parameters()).detach()

    @torch.no_grad()
    def take(self, row: Tensor, where: Tensor) -> None:
        """Parameters from elsewhere [members here, size], where members are told to take them."""
        if not self.members:
            return
        self._changes.made += 1  # what was computed before is of other parameters
        everyone = bool(where.all())
        for mine, new in zip(self._parameters(), self.cohorts[0].from_row(row), strict=True):
            mine.copy_(new if everyone else torch.where(_along(where, mine), new, mine))

    @torch.no_grad()
    def follow(self, twin: Stack, steps: int, where: Tensor) -> None:
        """Where members are told to, come closer to a twin that has just taken a step: the
        parameters are a running mean of the twin's, over about so many steps; while there were few,
        over the newest tenth of them. Statistics (buffers) are the twin's."""
        if not self.members:
            return
        self._changes.made += 1
        for mine, other, rule in zip(self.cohorts, twin.cohorts, self.optimizers, strict=True):
            chosen = where[mine.index]
            rule.steps += chosen
            share = chosen / (1 + rule.steps / 10).clamp(max=steps)  # [members]
            for name, value in mine.parameters.items():
                value.lerp_(other.parameters[name], _along(share.to(value.dtype), value))
            for name, value in mine.buffers.items():
                value.copy_(torch.where(_along(chosen, value), other.buffers[name], value))

    def squares(self) -> Tensor:
        """The sum of all squared parameters. [members here]"""
        if not self.members:
            return ABSENT  # pyright: ignore[reportReturnType]
        total = torch.zeros(self.members)
        for cohort in self.cohorts:
            parts = [p.detach().flatten(1).square().sum(1) for p in cohort.parameters.values()]
            total[cohort.index] = torch.stack(parts).sum(0).to(total.dtype)
        return total

    def _parameters(self) -> list[Tensor]:
        return [p for cohort in self.cohorts for p in cohort.parameters.values()]

    def _apply(self, gradients: tuple[Tensor, ...], where: Tensor) -> None:
        self._changes.made += 1
        first = 0
        for cohort, optimizer in zip(self.cohorts, self.optimizers, strict=True):
            size = len(cohort.parameters)
            chosen = where if len(self.cohorts) == 1 else where[cohort.index]
            optimizer.step(gradients[first : first + size], chosen)
            first += size

    # -- compiled local steps ---------------------------------------------------------------------

    def _compiled_step(
        self,
        function: Callable[..., Any],
        where: Tensor,
        x: Tensor,
        other: Tensor,
        *fixed: Any,
    ) -> Any:
        """One graph per function and shape, looked up by us. Everything else about a stack is
        fixed, so the 40 µs that torch would spend on guards at each call are saved."""
        key = (
            function.__name__,
            fixed,
            x.shape,
            x.stride(),
            other.shape,
            other.stride(),
            other.dtype,
        )
        if key not in self._compiled:
            options: dict[str, Any] = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe}
            whole = torch.compile(_of_its_own(function, *fixed), dynamic=False, options=options)
            self._compiled[key] = torch.no_grad()(whole)
        moments = []
        for cohort, optimizer in zip(self.cohorts, self.optimizers, strict=True):
            chosen = where if len(self.cohorts) == 1 else where[cohort.index]
            moments.append((optimizer.first, optimizer.second, optimizer.rates(chosen), chosen))
        return self._compiled[key](self._state(), moments, x, other)

    def _learn_step(
        self, loss: Loss, parameters: State, moments: list[Any], x: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor]:
        def objective(parameters: State, x: Tensor) -> tuple[Tensor, Tensor]:
            losses = self._losses(parameters, x, target, loss)
            return losses.sum(), losses

        differentiate = grad_and_value(objective, argnums=(0, 1), has_aux=True)
        (gradients, input_gradient), (_, losses) = differentiate(parameters, x)
        self._update(parameters, gradients, moments)
        return losses, input_gradient

    def _backward_step(
        self, parameters: State, moments: list[Any], x: Tensor, gradient: Tensor
    ) -> None:
        out, pull = vjp(lambda p: self._forward(p, x), parameters)[:2]
        (gradients,) = pull(self._with_penalty(x, out, gradient))
        self._update(parameters, gradients, moments)

    def _pass_back_step(
        self, parameters: State, moments: list[Any], x: Tensor, gradient: Tensor
    ) -> Tensor:
        out, pull = vjp(self._forward, parameters, x)[:2]
        gradients, input_gradient = pull(self._with_penalty(x, out, gradient))
        self._update(parameters, gradients, moments)
        return input_gradient

    def _with_penalty(self, x: Tensor, out: Tensor, gradient: Tensor) -> Tensor:
        penalty = self.penalty
        if penalty is None:
            return gradient
        return gradient + grad(lambda out: penalty(x, out).sum())(out)

    def _update(self, parameters: State, gradients: State, moments: list[Any]) -> None:
        for p, g, (first, second, rates, chosen) in zip(
            parameters, gradients, moments, strict=True
        ):
            found = clipped([g[name] for name in p], self.optimizer.clip)
            values = list(p.values()), list(found)
            masked_update(self.optimizer, *values, first, second, rates, chosen)

    # -- state ------------------------------------------------------------------------------------

    def _state(self) -> State:
        return [c.parameters for c in self.cohorts]

    def _forward(self, state: State, x: Tensor, training: bool = True) -> Tensor:
        if len(self.cohorts) == 1:
            return self.cohorts[0].forward(state[0], x, training)
        parts = [
            cohort.forward(parameters, x[cohort.index], training)
            for cohort, parameters in zip(self.cohorts, state, strict=True)
        ]
        width = max(part.shape[-1] for part in parts)
        padded = [nn.functional.pad(part, (0, width - part.shape[-1])) for part in parts]
        return torch.cat(padded).index_select(0, self._order)

    def member_state(self, member: int) -> dict[str, Tensor]:
        """Parameters and buffers of one member, named as in its module."""
        for cohort in self.cohorts:
            if member in cohort.index:
                return cohort.member_state(cohort.index.index(member))
        raise IndexError(member)

    @torch.no_grad()
    def load_member_state(self, member: int, state: dict[str, Tensor]) -> None:
        self._changes.made += 1
        for name, value in self.member_state(member).items():
            value.copy_(state[name])

    def optimizer_state(self, member: int) -> dict[str, Tensor]:
        """Moments and step count of one member; views, not copies."""
        for cohort, optimizer in zip(self.cohorts, self.optimizers, strict=True):
            if member in cohort.index:
                return optimizer.member_state(cohort.index.index(member))
        raise IndexError(member)

    def resumed(self) -> None:
        """After states were written into the views: what is known about all members at once."""
        for optimizer in self.optimizers:
            optimizer.resumed()

    def snapshot(self) -> list[dict[str, Tensor]]:
        return [
            {name: value.clone() for name, value in self.member_state(i).items()}
            for i in range(self.members)
        ]

    def restore(self, snapshot: list[dict[str, Tensor]]) -> None:
        for member, state in enumerate(snapshot):
            self.load_member_state(member, state)


@torch.enable_grad()
def _pull(penalty: Penalty, x: Tensor, out: Tensor) -> Tensor:
    """The gradient of a penalty with respect to outputs."""
    out = out.detach().requires_grad_()
    return torch.autograd.grad(penalty(x, out).sum(), out)[0]


def _along(by_member: Tensor, value: Tensor) -> Tensor:
    """[members], shaped so that it applies to a value [members, ...]."""
    return by_member.view(-1, *[1] * (value.dim() - 1))


def _of_its_own(function: Callable[..., Any], *fixed: Any) -> Callable[..., Any]:
    """The function with a code object that no other function shares: torch files compiled graphs
    under the code object, and without guards it could not tell two stacks apart."""

    def step(*args: Any) -> Any:
        return function(*fixed, *args)

    code = step.__code__.replace(co_name=f"step_{next(_numbers)}")
    return FunctionType(code, step.__globals__, code.co_name, None, step.__closure__)


_numbers = count()
