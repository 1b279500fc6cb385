"""Messages of several senders as one input of a model, and the way back of its gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from colonnade.network import Inbox, local
from colonnade.network.inbox import over

How = Literal["concat", "mean", "sum", "max"]


@dataclass(frozen=True)
class Combined:
    """One input by receiver, and how a gradient of it is shared out to the senders."""

    value: Tensor  # [receivers, rows, width]
    share: Callable[[Tensor], Tensor]  # → [receivers, in-degree, rows, width]


@local
def combine(inbox: Inbox, how: How = "concat") -> Combined:
    """What did not come, and a row that its sender lacks, counts as zeros, side by side or in a
    sum; a mean and a maximum are over what came."""
    match how:
        case "concat":
            return Combined(inbox.concat(), inbox.split)
        case "sum":
            return Combined(inbox.total(), lambda g: _to_all(g, inbox))
        case "mean":
            count = inbox.present.sum(1).clamp(min=1)
            return Combined(inbox.mean(), lambda g: _to_all(g / over(count, g), inbox))
        case "max":
            largest, winner = inbox.maximum()
            slots = torch.arange(inbox.arrived.shape[1])[None, :, None, None]
            return Combined(largest, lambda g: _to_all(g, inbox) * (winner[:, None] == slots))


def _to_all(gradient: Tensor, inbox: Inbox) -> Tensor:
    return gradient[:, None].expand(-1, inbox.arrived.shape[1], -1, -1)
