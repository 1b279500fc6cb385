"""What the clients of FedVS keep: the shares that they were sent, and the masks of their own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from colonnade.algorithms.fedvs_shares import TAG
from colonnade.learning import Value
from colonnade.network import Inbox, local

Keep = Callable[[str, Value], Value]  # declares state of the clients: see `Algorithm.keeps`


class Sharing:
    """One part of the data, shared among all clients."""

    def __init__(self, keep: Keep, part: str) -> None:
        self.shares = keep(f"{part} shares", Value(large=True))  # of all clients
        self.masks = keep(f"{part} masks", Value(large=True))  # of the own columns
        self.mark = keep(f"{part} mark", Value())  # tells this sharing from others

    def renew(self, shares: Tensor) -> None:
        """Take shares that came later; a client that did not come keeps those that it sent before.
        [clients here, senders, coded rows + 1, features]"""
        self.shares.set(_renewed(shares, self.shares.value))


@local
def _renewed(new: Tensor, old: Tensor) -> Tensor:
    return torch.where(new[:, :, -TAG:, :1] != 0, new, old)


class Received:
    """Shares that come in parts. A sender of whom a part did not come counts as one of whom nothing
    came: its mark stays 0."""

    def __init__(self, here: int, senders: int, rows: int, features: int) -> None:
        self.value = torch.zeros(here, senders, rows, features, dtype=torch.int32)
        self.rows = torch.zeros(here, senders, dtype=torch.int64)

    def add(self, start: int, inbox: Inbox) -> None:
        some = inbox.value
        self.value[:, :, start : start + some.shape[2], : some.shape[3]] = some
        self.rows += inbox.arrived * some.shape[2]

    def whole(self) -> Tensor:
        """[clients here, senders, rows, features]"""
        self.value[:, :, -1, 0] *= self.rows == self.value.shape[2]
        return self.value


class LastModels:
    """The last two shares of every client's model that came, so that a client which is away stays
    in the sum. Two, because a client that falls while it shares its model reaches some clients
    only: the server says which of the two counts."""

    def __init__(self, keep: Keep) -> None:
        # Each [clients here, senders, rows, features]
        self.newest = keep("model shares", Value())
        self.before = keep("earlier model shares", Value())
        self.counted: Tensor | None = (
            None  # marks, as the server said last; [clients here, senders]
        )

    def stand_in(self, inbox: Inbox) -> Tensor:
        """The shares that came, and in place of others those of before. [clients here, senders,
        rows, features]"""
        new, came = inbox.value, inbox.arrived
        newest, before = self._kept(new)
        if inbox.everything:  # nearly always: copies of N² shares take a sixth of a step
            newest, before = new, newest
        else:
            over = came[:, :, None, None]
            newest, before = torch.where(over, new, newest), torch.where(over, newest, before)
        self.newest.set(newest)
        self.before.set(before)
        if self.counted is None:
            return newest
        earlier = ~came & (before[:, :, -1, 0] == self.counted) & (self.counted != 0)
        return torch.where(earlier[:, :, None, None], before, newest) if earlier.any() else newest

    def _kept(self, like: Tensor) -> tuple[Tensor, Tensor]:
        if self.newest.value is None:
            nothing = torch.zeros_like(like)
            return nothing, nothing
        return self.newest.value, self.before.value

    def heed(self, told: Inbox) -> None:
        """What the server said: [clients here, 1, 1, senders]"""
        if bool(told.arrived.all()):
            self.counted = told.value[:, 0, 0]
