"""What a group received in one exchange, and the policies for what is missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Inbox:
    """Messages by receiver and slot. What did not arrive is zero in `value` and False in
    `arrived`."""

    raw: Tensor  # [receivers here, in-degree, ...]; undefined where nothing arrived: read `value`
    arrived: Tensor  # [receivers here, in-degree] bool
    everything: bool  # all slots arrived: nothing has to be masked
    widths: tuple[int, ...] | None = None  # of the slots, where senders differ; the rest is padding
    # Which rows of a message are about something that its sender has: [receivers here, in-degree,
    # rows]; None: all. The others are zero in `raw`.
    held: Tensor | None = None

    @cached_property
    def value(self) -> Tensor:
        """[receivers here, in-degree, ...]"""
        return self.raw if self.everything else masked(self.raw, self.arrived)

    @property
    def complete(self) -> Tensor:
        """Which receivers heard from all their senders. [receivers here]"""
        return self.arrived.all(1)

    @property
    def any(self) -> Tensor:
        """Which receivers heard from somebody. [receivers here]"""
        return self.arrived.any(1)

    @property
    def present(self) -> Tensor:
        """Which messages count. [receivers here, in-degree], or row by row where senders lack some
        rows: [receivers here, in-degree, rows]"""
        return self.arrived if self.held is None else self.arrived[..., None] & self.held

    @property
    def flags(self) -> Tensor:
        """For each row which messages came, as 1 or 0. [receivers here, rows, in-degree]"""
        came = over(self.present, self.raw)[..., 0].to(self.raw.dtype)
        return came.expand(-1, -1, self.raw.shape[2]).transpose(1, 2)

    def of_held(self, held: Tensor | None) -> Inbox:
        """The inbox in which rows that their senders lack count as not sent; None: no such rows."""
        if held is None:
            return self
        return replace(self, raw=masked(self.raw, held), held=held)

    def only(self, where: Tensor) -> Inbox:
        """The inbox without the messages where `where` is False ([receivers here, in-degree])."""
        arrived = self.arrived & where
        return replace(self, arrived=arrived, everything=bool(arrived.all()))

    def at(self, slot: int, widths: Sequence[int]) -> Inbox:
        """This inbox of one slot as an inbox of several slots with these widths: the message is in
        `slot`, and in the other slots nothing came."""
        receivers, _, rows, width = self.raw.shape
        raw = self.raw.new_zeros(receivers, len(widths), rows, max(widths))
        raw[:, slot, :, :width] = self.raw[:, 0]
        arrived = self.arrived.new_zeros(receivers, len(widths))
        arrived[:, slot] = self.arrived[:, 0]
        unequal = tuple(widths) if len(set(widths)) > 1 else None
        held = self.held
        if held is not None:
            held = held.new_zeros(receivers, len(widths), rows)
            held[:, slot] = self.held[:, 0]  # pyright: ignore[reportOptionalSubscript]
        return Inbox(raw, arrived, self.everything and len(widths) == 1, unequal, held)

    def concat(self, flags: bool = False) -> Tensor:
        """The messages side by side in slot order, zeros where nothing came. `flags` (for messages
        of one width): after each message a 1 if it came, else a 0. [receivers here, rows, total
        width]"""
        if flags:
            came = self.flags.transpose(1, 2)[..., None]
            return torch.cat([self.value, came], 3).transpose(1, 2).flatten(2)
        if self.widths is not None:
            value = self.value
            return torch.cat([value[:, j, :, :w] for j, w in enumerate(self.widths)], dim=-1)
        receivers, slots, rows, width = self.raw.shape
        shared = self.raw.stride(0) == 0 and receivers > 1  # everybody was sent the same
        raw = self.raw[:1] if shared else self.raw
        joined = raw.permute(0, 2, 1, 3).reshape(-1, rows, slots * width)
        if self.everything:
            return joined.expand(receivers, -1, -1)
        # Masking the joined rows is several times faster than masking by slot: long inner loops.
        wide = self.arrived.repeat_interleave(width, 1)  # [receivers, slots · width]
        return masked(joined, wide[:, None, :])

    def split(self, joined: Tensor, flags: bool = False) -> Tensor:
        """The inverse of `concat`, without flags: by slot, padded where widths differ. [receivers
        here, in-degree, rows, width]"""
        receivers, slots, rows, width = self.raw.shape
        if flags:
            return joined.unflatten(2, (slots, width + 1)).transpose(1, 2)[..., :width]
        if self.widths is None:
            return joined.view(receivers, rows, slots, width).transpose(1, 2)
        parts = joined.new_zeros(receivers, slots, rows, width)
        for j, part in enumerate(joined.split(list(self.widths), dim=-1)):
            parts[:, j, :, : part.shape[-1]] = part
        return parts

    def total(self) -> Tensor:
        """Sum over what arrived. [receivers here, ...]"""
        if self.raw.shape[1] == 1:
            return self.value[:, 0]
        if self.raw.dim() == 4 and self.raw.permute(1, 2, 0, 3).is_contiguous():
            return self._total_as_sent()
        return self.value.sum(1)

    def _total_as_sent(self) -> Tensor:
        """Shares of joined rows, as `split` gives them, lie in memory as their senders wrote them:
        summing them in that order saves a transposition (55 of 82 µs for 16 × 16 devices)."""
        receivers, slots, rows, width = self.raw.shape
        sent = self.raw.permute(1, 2, 0, 3).view(slots, rows, receivers * width)
        if not self.everything:
            wide = self.arrived.t().repeat_interleave(width, 1)  # [slots, receivers · width]
            sent = masked(sent, wide[:, None, :])
        return sent.sum(0).view(rows, receivers, width).transpose(0, 1)

    def mean(self) -> Tensor:
        """Mean over what arrived, zero where nothing did. [receivers here, ...]"""
        total = self.total()
        return total / over(self.present.sum(1).clamp(min=1), total)

    def maximum(self) -> tuple[Tensor, Tensor]:
        """Largest over what arrived (zero where nothing did), and the slot it came from. [receivers
        here, ...]"""
        limits = torch.finfo if self.value.is_floating_point() else torch.iinfo
        low = limits(self.value.dtype).min
        seen = torch.where(over(self.present, self.value), self.value, low)
        largest, slot = seen.max(1)
        return torch.where(over(self.present.any(1), largest), largest, 0), slot

    def latest(self, register: Register, rows: Tensor | None = None) -> Inbox:
        """Store what arrived in the register, and fill what did not arrive from there; a slot of
        which the register holds nothing stays missing."""
        found = register.exchange(self, rows)
        return found.of_held(found.held)


class Register:
    """The newest value of every slot; with `rows`, the newest value of every slot *for each
    row*. State in the sense of learning/state.py."""

    def __init__(self, rows: int | None = None) -> None:
        self.rows, self.large, self.members = rows, rows is not None, 0
        self._changed = torch.zeros(rows or 0, dtype=torch.bool)  # rows
        self.value: Tensor | None = (
            None  # [receivers, in-degree, ...] or [receivers, in-degree, rows, width]
        )
        self.known: Tensor | None = None  # [receivers, in-degree] or [receivers, in-degree, rows]

    def exchange(self, inbox: Inbox, rows: Tensor | None) -> Inbox:
        if self.rows is None:
            return self._newest(inbox)
        assert rows is not None, "a register by row needs the rows of the exchange"
        return self._newest_of_rows(inbox, rows)

    def _newest(self, inbox: Inbox) -> Inbox:
        shape = inbox.raw.shape
        if self.value is None or self.known is None or self.value.shape[2] < shape[2]:
            self.value, self.known = inbox.value, inbox.arrived
            return inbox
        if inbox.everything and self.value.shape == shape:  # uncopied: receivers may share memory
            self.value, self.known = inbox.raw, inbox.arrived
            return inbox
        stored = self.value if self.value.shape == shape else self.value[:, :, : shape[2]]
        newest = torch.where(over(inbox.arrived, stored), inbox.value, stored)
        known = self.known | inbox.arrived
        if stored is self.value:  # a short last batch must not replace a whole one
            self.value, self.known = newest, known
        return replace(inbox, raw=newest, arrived=known, everything=bool(known.all()))

    def _newest_of_rows(self, inbox: Inbox, rows: Tensor) -> Inbox:
        if self.value is None or self.known is None:
            receivers, slots, _, width = inbox.value.shape
            self.value = inbox.value.new_zeros(receivers, slots, self.rows or 0, width)
            self.known = torch.zeros(receivers, slots, self.rows or 0, dtype=torch.bool)
        for r, j in inbox.arrived.nonzero().tolist():
            self.value[r, j, rows] = inbox.value[r, j]
            self.known[r, j, rows] = True if inbox.held is None else inbox.held[r, j]
        self._changed[rows] = True
        by_row = self.known[:, :, rows]
        known, held = by_row.any(2), None if inbox.held is None else by_row
        found = replace(inbox, raw=self.value[:, :, rows], arrived=known, held=held)
        return replace(found, everything=bool(known.all()))

    # -- as state ---------------------------------------------------------------------------------

    def whole(self) -> list[dict[str, Tensor]]:
        return self._of(torch.arange(self.rows or 0))

    def changes(self) -> list[dict[str, Tensor]]:
        rows = self._changed.nonzero()[:, 0]
        self._changed.zero_()
        return self._of(rows) if len(rows) else []

    def _of(self, rows: Tensor) -> list[dict[str, Tensor]]:
        if self.value is None or self.known is None:
            return []
        pairs = zip(self.value, self.known, strict=True)
        if self.rows is None:
            return [{"value": value, "known": known} for value, known in pairs]
        return [{"rows": rows, "value": v[:, rows], "known": k[:, rows]} for v, k in pairs]

    def restore(self, found: Sequence[dict[str, Tensor]]) -> None:
        value = torch.stack([one["value"] for one in found])
        known = torch.stack([one["known"] for one in found])
        if self.rows is None:
            self.value, self.known = value, known
            return
        if self.value is None or self.known is None:
            members, slots, _, width = value.shape
            self.value = value.new_zeros(members, slots, self.rows, width)
            self.known = torch.zeros(members, slots, self.rows, dtype=torch.bool)
        rows = found[0]["rows"]
        self.value[:, :, rows], self.known[:, :, rows] = value, known


def masked(value: Tensor, keep: Tensor) -> Tensor:
    """`value` where `keep`, zero elsewhere, whatever the value holds there."""
    keep = over(keep, value)
    if not math.isfinite(value.sum()):  # 0 · inf is not 0
        return torch.where(keep, value, 0)
    if value.stride(0) != 0:
        value = value.contiguous()
    return value * keep  # 4-8 × as fast as torch.where at the sizes of an exchange


def over(mask: Tensor, value: Tensor) -> Tensor:
    """The mask with trailing axes to broadcast over the value."""
    return mask.view(*mask.shape, *[1] * (value.dim() - mask.dim()))
