"""The stacked engine: this process runs all parties.

An exchange is an indexing operation with an arrival mask; its cost grows with the number of links.
Time is virtual: every party has its own clock, moved by computing, by waiting, and by the arrival
of messages.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor

from colonnade.network.absent import Absent
from colonnade.network.clock import SECOND, Clock
from colonnade.network.delays import Delays
from colonnade.network.faults import Phase
from colonnade.network.inbox import Inbox
from colonnade.network.network import BYTES, Network, Parcel, Wait, World, seconds
from colonnade.network.samplers import Passage
from colonnade.network.topology import Group, Links

NEVER = np.iinfo(np.int64).max
_INSTANT = Delays().sampler(0)


@dataclass
class _UnderWay:
    """Messages to registers that have not arrived yet."""

    arrival: np.ndarray  # [receivers, slots]; NEVER where there is nothing (any more)
    value: Tensor


class StackedNetwork(Network):
    def __init__(self, world: World, program: str = "main", clock: Clock | None = None) -> None:
        super().__init__(world, program)
        self.clock = clock
        self._place = {party: i for i, party in enumerate(world.parties)}
        self._time = np.zeros(len(world.parties), dtype=np.int64)
        self._members: dict[Group, np.ndarray] = {}
        self._under_way: dict[tuple[str, str, str], list[_UnderWay]] = {}

    def here(self, group: Group) -> Sequence[int]:
        return range(len(group))

    @property
    def now(self) -> float:
        return seconds(int(self._time.max()))

    def within(self, phase: Phase) -> Self:
        program = f"{self.program}.{self.round}.{phase}"
        child = self._within(type(self)(self.world, program, self.clock), phase)
        child._time = self._time
        return child

    async def agree(self, value: Tensor | Absent, src: Group) -> list[float]:
        decision = cast(Tensor, value).reshape(-1).tolist()
        links = self.links(src, self.everyone)
        self.ledger.add(self.phase, "decision", links, None, len(decision) * BYTES)
        return decision

    async def concurrently(self, *programs: Callable[[Self], Coroutine[Any, Any, None]]) -> None:
        clock = self.clock or Clock()
        children = [self._start_child(i, clock) for i in range(len(programs))]
        pairs = zip(programs, children, strict=True)
        if self.clock is None:
            clock.run(*[(child.program, program(child)) for program, child in pairs])
        else:
            await clock.join(
                [clock.spawn(program(child), child.program) for program, child in pairs]
            )
        self._time = np.maximum.reduce([child._time for child in children])

    def _start_child(self, number: int, clock: Clock) -> Self:
        child = self._child(type(self)(self.world, f"{self.program}/{number}", clock))
        child._time = self._time.copy()
        return child

    async def _exchange(self, parcel: Parcel, passage: Passage) -> Inbox:
        links = parcel.links
        sent, arrived = parcel.sent(passage), passage.arrived
        if sent is not passage.sent:  # not everything that could get through was sent
            arrived = sent if arrived is None or sent is None else arrived & sent
        size = parcel.bytes
        self.ledger.add(self.phase, parcel.kind, links, sent, size)
        value = _by_slot(cast(Tensor, parcel.value).detach(), links, parcel.addressed)
        if self._delays is not None or parcel.wait.kind == "deadline":
            arrived, value = self._take_time(parcel, value, arrived, size)
            if self.clock is not None:
                await self.clock.sleep_until(int(self._times(links.dst).max()))
        elif self.clock is not None:
            await self.clock.sleep_until(self.clock.now)
        return _inbox(value, links, arrived, parcel.slot_widths)

    # -- virtual time -----------------------------------------------------------------------------

    def _take_time(
        self, parcel: Parcel, value: Tensor, arrived: np.ndarray | None, size: int | np.ndarray
    ) -> tuple[np.ndarray, Tensor]:
        """Moves the clocks of senders and receivers; returns what is there when the receivers go
        on."""
        delays = self._delays or _INSTANT
        links, wait = parcel.links, parcel.wait
        coming = links.real if arrived is None else links.real & arrived
        self._time[self._party(links.src)] += delays.compute(links.src)
        transfer = delays.transfer(links, np.broadcast_to(np.asarray(size), links.shape))
        arrival = np.where(coming, self._times(links.src)[links.senders] + transfer, NEVER)
        begin = self._times(links.dst)
        if wait.kind == "latest":
            return self._read_registers(parcel, value, arrival, begin)
        end = _go_on_at(wait, begin, arrival, links)
        self._time[self._party(links.dst)] = end
        return arrival <= end[:, None], value

    def _read_registers(
        self, parcel: Parcel, value: Tensor, arrival: np.ndarray, now: np.ndarray
    ) -> tuple[np.ndarray, Tensor]:
        """The newest of what has arrived since the last reading."""
        key = (parcel.links.src.name, parcel.links.dst.name, parcel.kind)
        waiting = [*self._under_way.get(key, []), _UnderWay(arrival, value)]
        newest = torch.zeros_like(value)
        arrived = np.zeros(arrival.shape, dtype=bool)
        for message in waiting:  # oldest first: later ones overwrite
            there = message.arrival <= now[:, None]
            newest = torch.where(_spread(torch.from_numpy(there), value), message.value, newest)
            arrived |= there
            message.arrival[there] = NEVER
        self._under_way[key] = [m for m in waiting if (m.arrival != NEVER).any()]
        return arrived, newest

    def _party(self, group: Group) -> np.ndarray:
        if group not in self._members:
            self._members[group] = np.array([self._place[party] for party in group.parties])
        return self._members[group]

    def _times(self, group: Group) -> np.ndarray:
        return self._time[self._party(group)]


def _go_on_at(wait: Wait, begin: np.ndarray, arrival: np.ndarray, links: Links) -> np.ndarray:
    """When each receiver stops waiting. [receivers]"""
    coming = arrival != NEVER
    last = np.where(coming, arrival, 0).max(1, initial=0)
    if wait.kind == "first":
        ordered = np.sort(arrival, axis=1)
        nth = ordered[:, min(wait.count, ordered.shape[1]) - 1]
        last = np.where(nth == NEVER, last, nth)
    if wait.kind == "deadline":
        limit = begin + int(wait.seconds * SECOND)
        # who misses something cannot know that it will never come, and waits to the end
        missing = (links.real & ~coming).any(1) | (last > limit)
        return np.where(missing, limit, np.maximum(begin, last))
    return np.maximum(begin, last)


def _by_slot(value: Tensor, links: Links, addressed: bool) -> Tensor:
    """[senders, ...] (or [senders, out-degree, ...]) → [receivers, in-degree, ...]"""
    if links.complete:
        if addressed:
            return value.transpose(0, 1)
        return value.unsqueeze(0).expand(links.shape[0], *value.shape)
    if addressed:
        picked = value.flatten(0, 1).index_select(0, links.gather_addressed)
    else:
        picked = value.index_select(0, links.gather)
    return picked.view(*links.shape, *picked.shape[1:])


def _inbox(
    value: Tensor, links: Links, arrived: np.ndarray | None, widths: tuple[int, ...] | None
) -> Inbox:
    if arrived is None:
        if links.everywhere:
            return Inbox(value, links.all_arrived, True, widths)
        mask, everything = links.all_arrived, False
    else:
        there = arrived & links.real
        everything = bool(there.all())
        mask = links.all_arrived if everything else torch.from_numpy(there)
    return Inbox(value, mask, everything, widths)


def _spread(mask: Tensor, value: Tensor) -> Tensor:
    return mask.view(*mask.shape, *[1] * (value.dim() - mask.dim()))
