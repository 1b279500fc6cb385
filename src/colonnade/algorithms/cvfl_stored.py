"""Embeddings that CVFL's active parties have stored, for passive parties that are late."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from colonnade.learning.side_by_side import Order
from colonnade.network import Inbox, Register, local


@dataclass(frozen=True)
class Stored:
    """What one active party has: by party, the newest embedding of each row of the active party."""

    register: Register
    rows: Tensor  # of the active party, in order

    @local
    def filled(self, inbox: Inbox, rows: Tensor) -> Inbox:
        """With stored embeddings of those who are late."""
        return inbox.latest(self.register, self._places(rows))

    @local
    def take(self, late: Inbox, order: Order) -> None:
        """What came too late is stored for the next time; see `numbered`."""
        narrow = None if late.widths is None else tuple(width - 1 for width in late.widths)
        for slot in late.arrived[0].nonzero()[:, 0].tolist():
            of = order[int(late.raw[0, slot, 0, 0])].rows
            if len(of) == late.raw.shape[2]:  # else a batch of another length
                only = torch.zeros_like(late.arrived)
                only[0, slot] = True
                message = replace(late, raw=late.raw[..., 1:], arrived=only, widths=narrow)
                message.latest(self.register, self._places(of))

    def _places(self, rows: Tensor) -> Tensor:
        return torch.searchsorted(self.rows, rows)


@local
def numbered(h: Tensor, round: int) -> Tensor:
    """Embeddings behind the number of their round, by which the receiver knows their rows.
    [clients, rows, 1 + width]"""
    return torch.cat([h.new_full((*h.shape[:2], 1), float(round)), h.detach()], -1)
