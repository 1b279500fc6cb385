"""A channel: what one group sends to another, as every party knows it beforehand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor

from colonnade.network.absent import Absent
from colonnade.network.rounding import Residuals, Rounding
from colonnade.network.topology import Group

if TYPE_CHECKING:
    from colonnade.network.inbox import Inbox
    from colonnade.network.network import Network

Numbers = Literal["float", "float16", "float32", "float64", "int32", "int64"]


Where = Tensor | Absent | None


class Gate(Protocol):
    """What everything passes that is sent over a channel, before it leaves."""

    def leave(
        self, net: Network, value: Tensor | Absent, channel: Channel, rows: int, where: Where
    ) -> tuple[Tensor | Absent, Where]:
        """What leaves in place of `value`, and which senders send at all."""
        ...


class RowGate(Protocol):
    """What makes rows that a column holder lacks count as not sent."""

    def leave(self, net: Network, value: Tensor | Absent, channel: Channel) -> Tensor | Absent:
        """What leaves in place of `value`."""
        ...

    def arrive(self, net: Network, channel: Channel, inbox: Inbox) -> Inbox:
        """What the receivers here make of what came."""
        ...


@dataclass(frozen=True)
class Channel:
    """`Network.send` takes a channel. The ledger counts its true bytes, the wire carries its number
    type, and a receiver checks every message against it."""

    src: Group
    dst: Group
    kind: str  # names the content in the ledger
    width: int | tuple[int, ...]  # of the last axis; where widths differ: by sender, or by receiver
    each: bool = False  # a sender has a message of its own for each receiver
    by: Literal["sender", "receiver"] | None = None  # widths; by receiver if `each`, unless given
    numbers: Numbers = "float"  # "float": torch's default type, which is float32
    bounded: bool = True  # real parties refuse numbers absurdly larger than those before
    gate: Gate | None = None  # adds noise, and counts what leaves
    rounding: Rounding | None = None  # of what is carried; None: as it is
    residuals: Residuals | None = None  # of messages that are of the same numbers every time
    columns: bool = False  # what senders tell of their own columns; see `Network.without`
    row_gate: RowGate | None = None  # where column holders lack some of the rows

    @property
    def by_receiver(self) -> bool:
        """Whether widths, where they differ, are those of the receivers."""
        return (self.by or ("receiver" if self.each else "sender")) == "receiver"

    @property
    def dtype(self) -> torch.dtype:
        return (
            torch.get_default_dtype() if self.numbers == "float" else getattr(torch, self.numbers)
        )

    @property
    def carried(self) -> torch.dtype:
        """The number type on the wire."""
        return self.dtype if self.rounding is None else self.rounding.dtype

    def carried_width(self, width: int) -> int:
        """The size of the last axis on the wire, for rows of this width."""
        return width if self.rounding is None else self.rounding.carried(width)

    def pack(self, value: Tensor) -> Tensor:
        """A message as it is carried."""
        return value if self.rounding is None else self.rounding.pack(value)

    def unpack(self, packed: Tensor, width: int) -> Tensor:
        """A message as its receiver has it."""
        return packed if self.rounding is None else self.rounding.unpack(packed, width, self.dtype)

    @cached_property
    def widest(self) -> int:
        return self.width if isinstance(self.width, int) else max(self.width)

    @cached_property
    def widths(self) -> tuple[int, ...] | None:
        """None where all messages have the same width."""
        if isinstance(self.width, int) or len(set(self.width)) == 1:
            return None
        return self.width

    def only(self, *, src: int | None = None, dst: int | None = None) -> Channel:
        """The same content, from one member of the source or to one member of the destination."""
        member = dst if self.by_receiver else src
        width = self.width
        if member is not None and not isinstance(width, int):
            width = width[member]
        ends = {
            "src": self.src if src is None else self.src.only(src),
            "dst": self.dst if dst is None else self.dst.only(dst),
        }
        return replace(self, width=width, **ends)

    def shape(self, rows: int | tuple[int, ...]) -> tuple[int, ...]:
        """Of one message, padded to the widest."""
        return (*((rows,) if isinstance(rows, int) else rows), self.widest)
