"""Fewer bytes: floating-point content that is rounded where it leaves, by the key `wire`.

`float16` and `bfloat16` take two bytes for a number. `int8` takes one, and two more for the scale
of each row (of each 256 numbers of a row, where it is wider): a number is sent as the nearest of
255 steps from −scale to scale. What is rounded was computed, and noised, before: rounding tells
nothing that the unrounded content would not tell.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from colonnade.network.spec import Wire

BLOCK = 256  # numbers of a row that share a scale
SCALE = 2  # bytes of a scale: the upper half of a float32
STEPS = 127  # to either side of zero
LARGEST = torch.finfo(torch.float16).max


@dataclass(frozen=True)
class Rounding:
    """How the numbers of a message are carried. The last axis is that of a row."""

    wire: Wire

    @property
    def dtype(self) -> torch.dtype:
        """Of what is carried."""
        return getattr(torch, self.wire)

    def carried(self, width: int) -> int:
        """The size of the last axis of what is carried, for rows of this width."""
        return width + SCALE * -(-width // BLOCK) if self.wire == "int8" else width

    def pack(self, value: Tensor) -> Tensor:
        """What is carried. [..., width] → [..., carried(width)]"""
        if self.wire == "int8":
            return _to_steps(value)
        if self.wire == "float16":
            value = value.clamp(-LARGEST, LARGEST)
        return value.to(self.dtype)

    def unpack(self, packed: Tensor, width: int, dtype: torch.dtype) -> Tensor:
        """What was sent, as its receiver has it."""
        return (_from_steps(packed, width) if self.wire == "int8" else packed).to(dtype)

    def rounded(self, value: Tensor) -> Tensor:
        """A value as its receivers will have it."""
        return self.unpack(self.pack(value), value.shape[-1], value.dtype)


def _to_steps(value: Tensor) -> Tensor:
    width = value.shape[-1]
    blocks = _in_blocks(value.float(), width)
    step = _up(blocks.abs().amax(-1, keepdim=True) / STEPS)
    numbers = torch.where(step > 0, blocks / step, 0).nan_to_num(0, 0, 0).round()
    whole = numbers.clamp(-STEPS, STEPS).to(torch.int8).flatten(-2)[..., :width]
    upper = (step.view(torch.int32) >> 16).to(torch.int16)  # [..., blocks, 1]
    return torch.cat([whole, upper.view(torch.int8).flatten(-2)], -1)


def _from_steps(packed: Tensor, width: int) -> Tensor:
    numbers, upper = (
        packed[..., :width],
        packed[..., width:].clone(memory_format=torch.contiguous_format),
    )
    step = (upper.view(torch.int16).to(torch.int32) << 16).view(torch.float32)  # [..., blocks]
    return (_in_blocks(numbers.float(), width) * step[..., None]).flatten(-2)[..., :width]


def _in_blocks(value: Tensor, width: int) -> Tensor:
    """[..., width] → [..., blocks, BLOCK], or one block that is as wide as the row."""
    if width <= BLOCK:
        return value.unsqueeze(-2)
    return F.pad(value, (0, -width % BLOCK)).unflatten(-1, (-1, BLOCK))


def _up(step: Tensor) -> Tensor:
    """The next number whose lower 16 bits are zero: no step is too short for its row."""
    return ((step.view(torch.int32) + 0xFFFF) & ~0xFFFF).view(torch.float32)


class Residuals:
    """What rounding took from messages that are of the same numbers every time, such as the
    gradient of a model: it is added to the sender's next message, so that no step is lost for good
    (error feedback: Seide et al., 2014). State in the sense of learning/state.py."""

    large, members = False, 0

    def __init__(self, rounding: Rounding, places: tuple[int, ...] = ()) -> None:
        self.rounding, self.places = rounding, places  # places: of the members here
        self.value: Tensor | None = None  # [members here, ...]

    def corrected(self, value: Tensor, first: int, where: Tensor | None) -> Tensor:
        """A value of some members with what was taken from their messages before. `first`: the
        place of the first of them; `where`: who sends at all, or over which links."""
        if self.value is None:
            self.value = value.new_zeros(len(self.places), *value.shape[1:])
        mine = [self.places.index(first + i) for i in range(len(value))]
        before = self.value[mine]
        wanted = value.detach() + before
        after = wanted - self.rounding.rounded(wanted)
        if where is not None:
            after = torch.where(
                where.view(*where.shape, *[1] * (after.dim() - where.dim())), after, before
            )
        self.value[mine] = after
        return wanted

    def whole(self) -> list[dict[str, Tensor]]:
        return [] if self.value is None else [{"value": one.clone()} for one in self.value]

    def changes(self) -> list[dict[str, Tensor]]:
        return self.whole()

    def restore(self, found: list[dict[str, Tensor]]) -> None:
        self.value = torch.stack([one["value"] for one in found])
