"""Members of equal architecture, computed together.

A plain `Sequential` of linear layers, convolutions, pooling and activations is computed by a plan
(plan.py), any other module by `vmap`, and what `vmap` refuses one member after the other.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from colonnade.common.devices import to_device
from colonnade.models.plan import Linear, compute, plan_of

log = logging.getLogger(__name__)


class Cohort:
    """The models of members of equal architecture, with stacked parameters [members, ...].
    `index`: the members' places in the stack. `width`: of the input; the rest of x is padding."""

    def __init__(
        self, index: list[int], modules: list[nn.Module], seeds: list[int], width: int | None
    ) -> None:
        self.index = index
        self.width = width
        parameters, buffers = stack_module_state(modules)  # pyright: ignore[reportArgumentType]
        frozen = {name for name, p in modules[0].named_parameters() if not p.requires_grad}
        buffers |= {name: parameters.pop(name) for name in frozen}
        self.parameters = {k: to_device(v.detach()).requires_grad_() for k, v in parameters.items()}
        self.buffers = {k: to_device(v.detach()) for k, v in buffers.items()}
        self.template = copy.deepcopy(modules[0])
        self.streams = [torch.Generator("cpu").manual_seed(seed) for seed in seeds]
        self.plan = None if frozen else plan_of(self.template)
        for step in self.plan or []:
            if isinstance(step, Linear):
                self._lay_out(step)
        self.how = "plan" if self.plan is not None else self._try_vmap(modules[0])

    def only(self, k: int) -> Cohort:
        """Member k alone; its parameters and buffers are views of those here."""
        one = copy.copy(self)
        one.index, one.streams = [0], self.streams[k : k + 1]
        one.parameters = {
            name: value.detach()[k : k + 1].requires_grad_()
            for name, value in self.parameters.items()
        }
        one.buffers = {name: value[k : k + 1] for name, value in self.buffers.items()}
        return one

    def twin(self) -> Cohort:
        """The same models, with parameters, buffers and randomness of their own."""
        other = copy.copy(self)
        other.parameters = {
            name: value.detach().clone().requires_grad_() for name, value in self.parameters.items()
        }
        other.buffers = {name: value.clone() for name, value in self.buffers.items()}
        other.streams = [stream.clone_state() for stream in self.streams]
        return other

    def forward(self, parameters: dict[str, Tensor], x: Tensor, training: bool) -> Tensor:
        if self.width is not None and x.shape[-1] != self.width:
            x = x[..., : self.width]
        if self.plan is not None:
            return compute(self.plan, parameters, x)
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
                torch.manual_seed(int(torch.randint(2**62, (), generator=stream, device="cpu")))
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
            log.debug("vmap refuses %s: %s", module, error)
            _tell_slow(_title(module))
            return "loop"
        return "vmap"

    @property
    def can_be_compiled(self) -> bool:
        """Modules that run one by one cannot be compiled; nor those with statistics (buffers),
        which a step that computes forward again would count twice."""
        return self.how != "loop" and not self.buffers

    def _lay_out(self, step: Linear) -> None:
        """Store weights as [members, inputs, outputs], so that gradients are contiguous, as fused
        optimisers need them. Narrow outputs are padded with zeros, which stay zeros: a product of
        width 10 takes three times as long as one of width 16."""
        extra = (0, step.stored - step.outputs)
        weight = self.parameters[f"{step.name}weight"].detach().transpose(1, 2)
        weight = nn.functional.pad(weight, extra).contiguous()
        self.parameters[f"{step.name}weight"] = weight.requires_grad_()
        if step.bias:
            bias = self.parameters[f"{step.name}bias"].detach()
            self.parameters[f"{step.name}bias"] = nn.functional.pad(bias, extra).requires_grad_()

    def as_row(self, tensors: Sequence[Tensor]) -> Tensor:
        """Tensors shaped like the parameters as one row of numbers per member, without padding.
        [members, size]"""
        return torch.cat([v[..., :w].flatten(1) for v, w in self._true(tensors)], 1)

    def from_row(self, row: Tensor) -> list[Tensor]:
        """The inverse of `as_row`."""
        parts, first = [], 0
        for like, width in self._true(list(self.parameters.values())):
            shape = (*like.shape[1:-1], width)
            size = math.prod(shape)
            part = row[:, first : first + size].unflatten(1, shape)
            extra = like.shape[-1] - width
            parts.append(nn.functional.pad(part, (0, extra)) if extra else part)
            first += size
        return parts

    def _true(self, tensors: Sequence[Tensor]) -> list[tuple[Tensor, int]]:
        """The tensors, each with the size of its last axis without padding (`_lay_out`)."""
        linear = [step for step in self.plan or [] if isinstance(step, Linear)]
        outputs = {f"{s.name}{part}": s.outputs for s in linear for part in ("weight", "bias")}
        return [
            (tensor, outputs.get(name, tensor.shape[-1]))
            for name, tensor in zip(self.parameters, tensors, strict=True)
        ]

    def member_state(self, i: int) -> dict[str, Tensor]:
        """Parameters and buffers of member i as its module has them; views, not copies."""
        state = {k: v.detach()[i] for d in (self.parameters, self.buffers) for k, v in d.items()}
        for step in self.plan or []:
            if isinstance(step, Linear):
                for name in (f"{step.name}weight", f"{step.name}bias")[: 1 + step.bias]:
                    state[name] = state[name][..., : step.outputs].t()
        return state


@cache
def _tell_slow(module: str) -> None:
    """Log it once in a process, however many stacks use the module."""
    log.warning(
        "%s: PyTorch cannot compute several such modules at once, so the parties' modules are "
        "computed one after the other. Results are as usual; it is slower.",
        module,
    )


def _title(module: nn.Module) -> str:
    """The class of a module, and the classes of the modules inside it."""
    inside = dict.fromkeys(type(part).__name__ for part in module.modules() if part is not module)
    return f"{type(module).__name__} ({', '.join(inside)})" if inside else type(module).__name__


def alike(
    modules: Sequence[nn.Module], widths: Sequence[int] | None
) -> list[tuple[list[int], int | None]]:
    """Members by equal architecture: the printed structure and all shapes agree."""
    groups: dict[Any, list[int]] = {}
    for i, module in enumerate(modules):
        shapes = tuple((name, tuple(v.shape)) for name, v in module.state_dict().items())
        width = None if widths is None else widths[i]
        own = tuple(str(_plain(part)) for part in module.modules())  # settings that repr leaves out
        trained = tuple(p.requires_grad for p in module.parameters())
        key = (repr(module), shapes, own, trained, width)
        groups.setdefault(key, []).append(i)
    return [(index, key[-1]) for key, index in groups.items()]


def _plain(module: nn.Module) -> dict[str, Any]:
    return {k: v for k, v in vars(module).items() if isinstance(v, bool | int | float | str)}


def _input_width(module: nn.Module) -> int:
    for part in module.modules():
        if isinstance(part, nn.Linear):
            return part.in_features
    raise ValueError("the width of the input is not known; give input_widths")
