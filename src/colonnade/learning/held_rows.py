"""Rows that some column holders lack, where parties overlap in part.

What a column holder would say of a row that it lacks never leaves it, and counts at the receiver as
not sent, row by row: nothing of the encoder, not even its bias, enters the row. On the way back the
label holder tells the column holder nothing of such a row, and the column holder learns nothing
from it. An algorithm takes part by `takes_partial_rows`; its code has no line about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from colonnade.errors import InputError
from colonnade.network import Network, is_absent
from colonnade.network.absent import Absent
from colonnade.network.channel import Channel
from colonnade.network.inbox import Inbox, masked
from colonnade.network.topology import Group

if TYPE_CHECKING:
    from colonnade.learning.algorithm import Algorithm


class HeldRows:
    """The row gate of the channels of encodings and of their gradients."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        if not algorithm.takes_partial_rows:
            raise InputError(
                f'algorithm = "{algorithm.name}": needs whole rows, but here parties lack some '
                "(partial, or test_overlap); leave these keys out, so that such rows are left out, "
                "or take a method that can do without a party row by row, such as splitnn"
            )
        if algorithm.set.decorrelate:
            raise InputError(
                "decorrelate: compares the rows of a batch, of which a party lacks some with "
                "partial; leave one of the two out"
            )

    def leave(self, net: Network, value: Tensor | Absent, channel: Channel) -> Tensor | Absent:
        held = getattr(net.item, "held", None)  # [column holders, rows]
        if held is None or is_absent(value):
            return value
        told = cast(Tensor, value).detach()
        if self._of_columns(channel.src):
            return masked(told, held[self._places(channel.src, net.here(channel.src))])
        if not channel.each:  # the same for all: receivers leave out what is not for them
            return value
        return masked(told, held[self._places(channel.dst)].expand(len(told), -1, -1))

    def arrive(self, net: Network, channel: Channel, inbox: Inbox) -> Inbox:
        held = getattr(net.item, "held", None)  # [column holders, rows]
        if held is None:
            return inbox
        here = net.here(channel.dst)
        if self._of_columns(channel.src):
            senders = net.links(channel.src, channel.dst).senders[list(here)]
            return inbox.of_held(held[self._places(channel.src)][torch.from_numpy(senders)])
        mine = held[self._places(channel.dst, here)]  # [receivers here, rows]
        return inbox.of_held(mine[:, None].expand(-1, inbox.raw.shape[1], -1))

    def _of_columns(self, group: Group) -> bool:
        return group.declared == self.algorithm.columns.declared

    def _places(self, group: Group, members: object = None) -> list[int]:
        """Of members of a group of column holders, among all of them."""
        every = self.algorithm.columns.parties
        chosen = range(len(group)) if members is None else cast("list[int]", members)
        return [every.index(group.parties[i]) for i in chosen]
