"""The shared round counter of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from colonnade.network.program_counter import AFTER

if TYPE_CHECKING:
    from colonnade.network.network import Network

Item = TypeVar("Item", covariant=True)


class Schedule(Protocol[Item]):
    """What each round is about. Every party knows it, for example batches drawn from the shared
    seed."""

    def __len__(self) -> int: ...
    def __getitem__(self, round: int, /) -> Item: ...


class Rounds(Generic[Item]):
    """The loop of `Network.rounds`."""

    def __init__(self, net: Network, schedule: Schedule[Item], sent_once: bool = False) -> None:
        self.net, self.schedule, self.next = net, schedule, 0
        self.sent_once = sent_once

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        self.net.sent_once = self.sent_once
        if not self.next:
            self.net.loop_began = self.net.rounds_begun
            self.net._begin_loop()
        await self.net._catch_up(len(self.schedule) - self.next)
        done = max(0, self.net.resume_at - self.net.rounds_begun)
        skipped = min(done, len(self.schedule) - self.next)
        if skipped:
            self.next, self.net.rounds_begun = self.next + skipped, self.net.rounds_begun + skipped
            self.net.round = self.net.rounds_begun - 1
        if self.next >= len(self.schedule):
            self.net.step = max(self.net.step, AFTER)
            self.net.sent_once, self.net.item = False, None
            self.net._count_round(self.net.rounds_begun)
            raise StopAsyncIteration
        await self.net._keep_in_step()
        self.net.round, self.net.step = self.net.rounds_begun, 0
        self.net._called.clear()
        self.net._running[0] = self.net
        self.net.rounds_begun += 1
        self.net.watch(self.net.round)
        self.net._count_round(self.net.round)
        self.next += 1
        self.net.item = self.schedule[self.next - 1]
        return self.net.item
