"""The models of one group as one object: parameters with a leading axis over the members here.

Members of equal architecture are stacked and computed together: a plain `Sequential` of `Linear`
and activations by batched matrix products, any other module by `vmap`, and what `vmap` refuses one
after the other. Members of unequal architecture form several cohorts. A stack with no members here
computes nothing and answers with the absent value.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state, vjp, vmap

from colonnade.models.layers import Loss
from colonnade.models.optim import Optimizer, masked_update
from colonnade.network.absent import ABSENT

log = logging.getLogger(__name__)

ELEMENTWISE = (
    nn.ReLU,
    nn.LeakyReLU,
    nn.Sigmoid,
    nn.Tanh,
    nn.GELU,
    nn.SiLU,
    nn.ELU,
    nn.Softplus,
    nn.Identity,
)

WIDE = 16  # batched products with fewer outputs than this are slow

State = list[dict[str, Tensor]]


class Stack:
    """`stack(x)` computes; `backward` and `learn` train. x is [members here, rows, width]."""

    def __init__(
        self,
        modules: Sequence[nn.Module],
        optimizer: Optimizer,
        *,
        input_widths: Sequence[int] | None = None,
        seeds: Sequence[int] | None = None,
        compile: bool = False,
    ) -> None:
        """`input_widths`: true widths by member where x is padded. `seeds`: by member, for modules
        that draw random numbers (dropout)."""
        self.members = len(modules)
        seeds = seeds if seeds is not None else range(self.members)
        self.cohorts = [
            Cohort(index, [modules[i] for i in index], [seeds[i] for i in index], width)
            for index, width in _alike(modules, input_widths)
        ]
        self.optimizers = [optimizer.of(list(c.parameters.values())) for c in self.cohorts]
        self.optimizer = optimizer
        self._order = torch.tensor([i for c in self.cohorts for i in c.index]).argsort()
        self._compile = compile and all(c.how != "loop" for c in self.cohorts)
        self._compiled: dict[Any, Any] = {}
        self._tape: tuple[Any, Any] = (None, None)
        self._everyone = torch.ones(self.members, dtype=torch.bool)

    # -- computing --------------------------------------------------------------------------------

    def __call__(self, x: Tensor) -> Tensor:
        """[members here, rows, width], ready for `backward`."""
        if not self.members:
            return ABSENT  # pyright: ignore[reportReturnType]
        if not self._compile:
            return self._forward(self._state(), x)
        with torch.no_grad():  # the compiled backward step computes forward again, inside one graph
            out = self._forward(self._state(), x)
        self._tape = (out, x)
        return out

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """As in use, not in training: no dropout, fixed normalisation, nothing to differentiate."""
        if not self.members:
            return ABSENT  # pyright: ignore[reportReturnType]
        return self._forward(self._state(), x, training=False)

    # -- learning ---------------------------------------------------------------------------------

    def backward(self, out: Tensor, gradient: Tensor, where: Tensor | None = None) -> None:
        """Back-propagate a gradient that came over the network, and step where `where` is True."""
        if not self.members:
            return
        if self._compile:
            computed, x = self._tape
            assert computed is out, "backward takes what the stack computed last"
            self._compiled_step(self._backward_step, where, x, gradient)
            return
        self._apply(torch.autograd.grad(out, self._parameters(), gradient), where)

    def learn(
        self, x: Tensor, target: Tensor, loss: Loss, where: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """One step on a local loss; the loss by member, and its gradient with respect to x."""
        if not self.members:
            return ABSENT, ABSENT  # pyright: ignore[reportReturnType]
        if self._compile:
            return self._compiled_step(self._learn_step, where, x, target, loss)
        x = x.detach().requires_grad_()
        losses = loss(self._forward(self._state(), x), target)
        *gradients, input_gradient = torch.autograd.grad(losses.sum(), [*self._parameters(), x])
        self._apply(tuple(gradients), where)
        return losses.detach(), input_gradient

    def fit(self, x: Tensor, target: Tensor, loss: Loss, where: Tensor | None = None) -> Tensor:
        """`learn` for those who need no gradient of x: 7 % faster for an autoencoder."""
        if not self.members or self._compile:
            return self.learn(x, target, loss, where)[0]
        losses = loss(self._forward(self._state(), x), target)
        self._apply(torch.autograd.grad(losses.sum(), self._parameters()), where)
        return losses.detach()

    def _parameters(self) -> list[Tensor]:
        return [p for cohort in self.cohorts for p in cohort.parameters.values()]

    def _apply(self, gradients: tuple[Tensor, ...], where: Tensor | None) -> None:
        first = 0
        for cohort, optimizer in zip(self.cohorts, self.optimizers, strict=True):
            size = len(cohort.parameters)
            chosen = None if where is None else where[cohort.index]
            optimizer.step(gradients[first : first + size], chosen)
            first += size

    # -- compiled local steps ---------------------------------------------------------------------

    def _compiled_step(
        self,
        function: Callable[..., Any],
        where: Tensor | None,
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
            chosen = self._everyone if where is None else where
            chosen = chosen if len(self.cohorts) == 1 else chosen[cohort.index]
            moments.append((optimizer.first, optimizer.second, optimizer.rates(chosen), chosen))
        return self._compiled[key](self._state(), moments, x, other)

    def _learn_step(
        self, loss: Loss, parameters: State, moments: list[Any], x: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor]:
        def objective(parameters: State, x: Tensor) -> tuple[Tensor, Tensor]:
            losses = loss(self._forward(parameters, x), target)
            return losses.sum(), losses

        differentiate = grad_and_value(objective, argnums=(0, 1), has_aux=True)
        (gradients, input_gradient), (_, losses) = differentiate(parameters, x)
        self._update(parameters, gradients, moments)
        return losses, input_gradient

    def _backward_step(
        self, parameters: State, moments: list[Any], x: Tensor, gradient: Tensor
    ) -> None:
        pull = vjp(lambda p: self._forward(p, x), parameters)[1]
        (gradients,) = pull(gradient)
        self._update(parameters, gradients, moments)

    def _update(self, parameters: State, gradients: State, moments: list[Any]) -> None:
        for p, g, (first, second, rates, chosen) in zip(
            parameters, gradients, moments, strict=True
        ):
            values = list(p.values()), [g[name] for name in p]
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
        for name, value in self.member_state(member).items():
            value.copy_(state[name])

    def snapshot(self) -> list[dict[str, Tensor]]:
        return [
            {name: value.clone() for name, value in self.member_state(i).items()}
            for i in range(self.members)
        ]

    def restore(self, snapshot: list[dict[str, Tensor]]) -> None:
        for member, state in enumerate(snapshot):
            self.load_member_state(member, state)


class Cohort:
    """Members of equal architecture."""

    def __init__(
        self, index: list[int], modules: list[nn.Module], seeds: list[int], width: int | None
    ) -> None:
        self.index = index
        self.width = width
        parameters, buffers = stack_module_state(modules)  # pyright: ignore[reportArgumentType]
        self.parameters = {k: v.detach().requires_grad_() for k, v in parameters.items()}
        self.buffers = {k: v.detach() for k, v in buffers.items()}
        self.template = copy.deepcopy(modules[0])
        self.streams = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.plan = _plan(self.template)
        for step in self.plan or []:
            if isinstance(step, Linear):
                self._lay_out(step)
        self.how = "baddbmm" if self.plan is not None else self._try_vmap(modules[0])

    def forward(self, parameters: dict[str, Tensor], x: Tensor, training: bool) -> Tensor:
        if self.width is not None and x.shape[-1] != self.width:
            x = x[..., : self.width]
        if self.plan is not None:
            return _batched_products(self.plan, parameters, x)
        self.template.train(training)
        if self.how == "vmap":
            return vmap(self._call)(parameters, self.buffers, x)
        return self._one_by_one(parameters, x)

    def _call(self, parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(self.template, (parameters, buffers), (x,))

    def _one_by_one(self, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        outputs = []
        for i, stream in enumerate(self.streams):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(torch.randint(2**62, (), generator=stream)))
                mine = [{k: v[i] for k, v in d.items()} for d in (parameters, self.buffers)]
                outputs.append(self._call(mine[0], mine[1], x[i]))
        return torch.stack(outputs)

    def _try_vmap(self, module: nn.Module) -> str:
        """Whether `vmap` takes this module, found by trying on a copy of its state."""
        try:
            state = [
                {k: v[:1].clone() for k, v in d.items()} for d in (self.parameters, self.buffers)
            ]
            width = self.width if self.width is not None else _input_width(module)
            with torch.no_grad():
                vmap(self._call)(state[0], state[1], torch.zeros(1, 2, width))
        except Exception as error:
            reason = str(error).split("\n")[0]
            log.info(
                "%s: members computed one by one, vmap refuses: %s", type(module).__name__, reason
            )
            return "loop"
        return "vmap"

    def _lay_out(self, step: Linear) -> None:
        """Weights as [members, inputs, outputs]: so their gradients come out contiguous, as fused
        optimisers need them. Narrow outputs are widened with zeros, which stay zeros: a product of
        width 10 takes three times as long as one of width 16."""
        extra = (0, step.stored - step.outputs)
        weight = self.parameters[f"{step.name}weight"].detach().transpose(1, 2)
        weight = nn.functional.pad(weight, extra).contiguous()
        self.parameters[f"{step.name}weight"] = weight.requires_grad_()
        if step.bias:
            bias = self.parameters[f"{step.name}bias"].detach()
            self.parameters[f"{step.name}bias"] = nn.functional.pad(bias, extra).requires_grad_()

    def member_state(self, i: int) -> dict[str, Tensor]:
        """Parameters and buffers of member i as its module has them; views, not copies."""
        state = {k: v.detach()[i] for d in (self.parameters, self.buffers) for k, v in d.items()}
        for step in self.plan or []:
            if isinstance(step, Linear):
                for name in (f"{step.name}weight", f"{step.name}bias")[: 1 + step.bias]:
                    state[name] = state[name][..., : step.outputs].t()
        return state


@dataclass(frozen=True)
class Linear:
    """A linear layer in a plan of batched products."""

    name: str  # of its parameters, up to "weight" and "bias"
    inputs: int
    outputs: int
    bias: bool

    @property
    def stored(self) -> int:
        return WIDE if self.inputs >= 2 * WIDE > 2 * self.outputs else self.outputs


Plan = list[Linear | nn.Module]


def _plan(module: nn.Module, prefix: str = "") -> Plan | None:
    """A `Sequential` of `Linear` and activations as a list of steps; None for anything else."""
    if type(module) is nn.Linear:
        return [Linear(prefix, module.in_features, module.out_features, module.bias is not None)]
    if isinstance(module, ELEMENTWISE):
        return [module]
    if type(module) is not nn.Sequential:
        return None
    steps: Plan = []
    for name, child in module.named_children():
        part = _plan(child, f"{prefix}{name}.")
        if part is None:
            return None
        steps.extend(part)
    return steps


def _batched_products(plan: Plan, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
    for step in plan:
        if not isinstance(step, Linear):
            x = step(x)
            continue
        weight = parameters[f"{step.name}weight"]  # [members, inputs, outputs]
        if step.bias:
            x = torch.baddbmm(parameters[f"{step.name}bias"].unsqueeze(1), x, weight)
        else:
            x = torch.bmm(x, weight)
        if step.stored != step.outputs:
            x = x[..., : step.outputs]
    return x


def _of_its_own(function: Callable[..., Any], *fixed: Any) -> Callable[..., Any]:
    """The function with a code object that no other function shares: torch files compiled graphs
    under the code object, and without guards it could not tell two stacks apart."""

    def step(*args: Any) -> Any:
        return function(*fixed, *args)

    code = step.__code__.replace(co_name=f"step_{next(_numbers)}")
    return FunctionType(code, step.__globals__, code.co_name, None, step.__closure__)


_numbers = count()


def _alike(
    modules: Sequence[nn.Module], widths: Sequence[int] | None
) -> list[tuple[list[int], int | None]]:
    """Members by equal architecture: the printed structure and all shapes agree."""
    groups: dict[Any, list[int]] = {}
    for i, module in enumerate(modules):
        shapes = tuple((name, tuple(v.shape)) for name, v in module.state_dict().items())
        width = None if widths is None else widths[i]
        groups.setdefault((repr(module), shapes, width), []).append(i)
    return [(index, key[2]) for key, index in groups.items()]


def _input_width(module: nn.Module) -> int:
    for part in module.modules():
        if isinstance(part, nn.Linear):
            return part.in_features
    raise ValueError("the width of the input is not known; give input_widths")
