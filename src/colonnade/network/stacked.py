"""The stacked engine: this process runs all parties.

An exchange is an indexing operation with an arrival mask; its cost grows with the number of links.
Time is virtual: every party has its own clock, moved by computing, by waiting, and by the arrival
of messages. Programs that run side by side wait independently of each other, but a party computes
for one of them at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self, cast

import numpy as np
import torch
from torch import Tensor

from colonnade.common.devices import to_device
from colonnade.network.absent import Absent
from colonnade.network.clock import SECOND, Clock
from colonnade.network.delays import Delays, DelaySampler
from colonnade.network.faults import Fault, Phase
from colonnade.network.inbox import Inbox
from colonnade.network.network import DECISION, DECISION_BYTES, Network, seconds
from colonnade.network.parcel import Parcel, Wait
from colonnade.network.samplers import Passage
from colonnade.network.topology import Group, Links
from colonnade.network.world import Program, Run, World

NEVER = np.iinfo(np.int64).max


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
        self._time = np.zeros(len(world.parties), dtype=np.int64)  # of this program at each party
        # When each party has computed what it was asked to; shared by programs side by side.
        self._free = np.zeros(len(world.parties), dtype=np.int64)
        self._members: dict[Group, np.ndarray] = {}
        self._under_way: dict[tuple[str, str, str], list[_UnderWay]] = {}
        # By kind and groups, the newest exchange of the training: what arrived; None: everything.
        # For those who watch; shared by programs side by side.
        self.newest: dict[tuple[str, Group, Group], tuple[Links, np.ndarray | None]] = {}

    def here(self, group: Group) -> Sequence[int]:
        return range(len(group))

    @property
    def now(self) -> float:
        return seconds(int(self._time.max()))

    def within(self, phase: Phase) -> Self:
        child = self._within(self._beside(f"{self.program}.{self.round}.{phase}"), phase)
        child._time = self._time
        return child

    def facing(self, fault: Fault) -> Self:
        """The same parties at the same time, for whom from now on other things fail."""
        other = copy.copy(self)
        other.ledger = self.ledger.copy()
        other._time, other._free = self._time.copy(), self._free.copy()
        other._under_way = dict(self._under_way)
        other._samplers = {}
        if fault != self.world.fault:
            other.world = replace(self.world, fault=fault)
        else:
            other._samplers = copy.deepcopy(self._samplers)  # what fell is still down
        return other

    async def agree(
        self, value: Tensor | Absent, src: Group, count: int, kind: str = DECISION
    ) -> list[float]:
        self.step += 1
        decision = cast(Tensor, value).reshape(-1).tolist()
        assert len(decision) == count, f"{len(decision)} numbers, {count} were announced"
        links = self.links(src, self.everyone)
        self.ledger.add(self.phase, kind, links, None, count * DECISION_BYTES)
        await self._until_ready(src)
        np.maximum(
            self._time, self._times(src)[0], out=self._time
        )  # all parties wait for the decision
        if self.clock is not None:  # programs of parties that are behind may run meanwhile
            await self.clock.sleep_until(int(self._times(src)[0]))
        return decision

    async def concurrently(self, *programs: Run | Program, counter: Group | None = None) -> None:
        alone, self.clock = self.clock is None, self.clock or Clock()
        if alone:
            self.clock.now = int(self._time.min())
        runs = [self._run_of(program) for program in programs]
        children = self._children_of(len(programs))
        named = [(c.program, run(c)) for run, c in zip(runs, children, strict=True)]
        try:
            if alone:
                self.clock.run(*named)
            else:
                await self.clock.join([self.clock.spawn(run, name) for name, run in named])
        finally:
            self.clock = None if alone else self.clock
        self._time[:] = np.maximum.reduce([self._time, *(child._time for child in children)])
        self._joined(children)

    def _beside(self, program: str) -> Self:
        child = type(self)(self.world, program, self.clock)
        child._time, child._free = self._time.copy(), self._free
        child.newest = self.newest
        return child

    async def _exchange(self, parcel: Parcel, passage: Passage) -> Inbox:
        links, chosen, size = parcel.links, parcel.chosen(), parcel.bytes
        self.ledger.add(self.phase, parcel.channel.kind, links, _both(passage.sent, chosen), size)
        if self.phase in ("training", "supervision"):
            self.newest[parcel.channel.kind, links.src, links.dst] = links, passage.arrived
        comes = passage.arrived is None or bool((passage.arrived & links.real).any())
        if comes:  # else nobody waits for the senders
            await self._until_ready(links.src)
        arrived = _both(passage.arrived, chosen)
        told, rounding = cast(Tensor, parcel.value).detach(), parcel.channel.rounding
        told = told if rounding is None else rounding.rounded(told)
        value = _by_slot(told, links, parcel.channel.each)
        instant = self._delays is None and passage.attempts is None and not self._time.any()
        if not instant or parcel.wait.kind == "deadline":
            arrived, value = self._take_time(parcel, passage, value, arrived)
            if self.clock is not None:
                end = int(self._times(links.dst).max()) if comes else self._earlier(links)
                await self.clock.sleep_until(end)
        elif self.clock is not None:
            await self.clock.sleep_until(self.clock.now)
        return _inbox(value, links, arrived, parcel.slot_widths)

    async def meet(self) -> None:
        self.step += 1
        self._time[:] = self._time.max()
        if self.clock is not None:
            await self.clock.sleep_until(int(self._time[0]))
            await self.clock.turn(*self.turn)

    async def _until_ready(self, group: Group) -> None:
        """Other programs go first as long as the members are not done with what came before: a
        party computes in the order in which it is asked."""
        if self.clock is not None and (ready := int(self._times(group).max())) > self.clock.now:
            await self.clock.sleep_until(ready)

    def _earlier(self, links: Links) -> int:
        """When both ends are done with an exchange in which nothing comes: neither end waits for
        the other one."""
        return min(int(self._times(links.src).max()), int(self._times(links.dst).max()))

    # -- virtual time -----------------------------------------------------------------------------

    def _take_time(
        self, parcel: Parcel, passage: Passage, value: Tensor, arrived: np.ndarray | None
    ) -> tuple[np.ndarray, Tensor]:
        """Moves the clocks of senders and receivers; what is there when the receivers go on."""
        delays = self._delays or self._instant
        links, wait = parcel.links, parcel.wait
        self._compute(self._party(links.src), delays.compute(links.src, parcel.work))
        transfer = delays.transfer(links, parcel.bytes, parcel.channel.kind)
        arrival = self._times(links.src)[links.senders] + transfer + parcel.late(passage)
        coming = np.where(links.real & _or_all(arrived), arrival, NEVER)
        begin = self._times(links.dst)
        if wait.kind == "latest":
            return self._read_registers(parcel, value, coming, begin)
        # A sender that leaves out its message says so, which ends the waiting as a message does.
        heard = np.where(links.real & _or_all(passage.arrived), arrival, NEVER)
        end = _go_on_at(wait, begin, coming, heard, links)
        self._time[self._party(links.dst)] = end
        return coming <= end[:, None], value

    @cached_property
    def _instant(self) -> DelaySampler:
        """Nothing takes time."""
        return Delays().sampler(0)

    def _compute(self, parties: np.ndarray, work: np.ndarray) -> None:
        """Each party computes for so long, once it is done with other programs."""
        begin = np.maximum(self._time[parties], np.where(work > 0, self._free[parties], 0))
        self._time[parties] = begin + work
        self._free[parties] = np.maximum(self._free[parties], begin + work)

    def _read_registers(
        self, parcel: Parcel, value: Tensor, arrival: np.ndarray, now: np.ndarray
    ) -> tuple[np.ndarray, Tensor]:
        """The newest of what has arrived since the last reading; what is older is void, and so is
        a message of another shape (a short last batch)."""
        key = (parcel.links.src.name, parcel.links.dst.name, parcel.channel.kind)
        waiting = [*self._under_way.get(key, []), _UnderWay(arrival, value)]
        newest = torch.zeros_like(value)
        seen, arrived = (np.zeros(arrival.shape, dtype=bool) for _ in range(2))
        for message in reversed(waiting):  # newest first
            there = (message.arrival <= now[:, None]) & ~seen
            if message.value.shape == value.shape:
                mask = _spread(to_device(torch.from_numpy(there)), value)
                newest = torch.where(mask, message.value, newest)
                arrived |= there
            seen |= there
            message.arrival[seen] = NEVER
        self._under_way[key] = [m for m in waiting if (m.arrival != NEVER).any()]
        return arrived, newest

    def _party(self, group: Group) -> np.ndarray:
        if group not in self._members:
            self._members[group] = np.array([self._place[party] for party in group.parties])
        return self._members[group]

    def _times(self, group: Group) -> np.ndarray:
        return self._time[self._party(group)]


def _go_on_at(
    wait: Wait, begin: np.ndarray, coming: np.ndarray, heard: np.ndarray, links: Links
) -> np.ndarray:
    """When each receiver stops waiting, given when messages come and when anything is heard at all.
    [receivers]"""
    last = np.where(heard != NEVER, heard, 0).max(1, initial=0)
    if wait.kind == "first":
        ordered = np.sort(coming, axis=1)
        nth = ordered[:, min(wait.count, ordered.shape[1]) - 1]
        last = np.where(nth == NEVER, last, nth)
    if wait.kind == "deadline":
        limit = begin + int(wait.seconds * SECOND)
        # a receiver that misses a message cannot know that it will never come, and waits to the end
        missing = (links.real & (heard == NEVER)).any(1) | (last > limit)
        return np.where(missing, limit, np.maximum(begin, last))
    return np.maximum(begin, last)


def _both(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _or_all(mask: np.ndarray | None) -> np.ndarray | bool:
    return True if mask is None else mask


def _by_slot(value: Tensor, links: Links, addressed: bool) -> Tensor:
    """[senders, ...] (or [senders, out-degree, ...]) → [receivers, in-degree, ...]"""
    if links.complete:
        if addressed:
            return value.transpose(0, 1)
        return value.unsqueeze(0).expand(links.shape[0], *value.shape)
    if addressed:
        picked = value.flatten(0, 1).index_select(0, to_device(links.gather_addressed))
    else:
        picked = value.index_select(0, to_device(links.gather))
    return picked.view(*links.shape, *picked.shape[1:])


def _inbox(
    value: Tensor, links: Links, arrived: np.ndarray | None, widths: tuple[int, ...] | None
) -> Inbox:
    if arrived is None:
        if links.everywhere:
            return Inbox(value, to_device(links.all_arrived), True, widths)
        mask, everything = to_device(links.all_arrived), False
    else:
        there = arrived & links.real
        everything = bool(there.all())
        mask = to_device(links.all_arrived if everything else torch.from_numpy(there))
    return Inbox(value, mask, everything, widths)


def _spread(mask: Tensor, value: Tensor) -> Tensor:
    return mask.view(*mask.shape, *[1] * (value.dim() - mask.dim()))
