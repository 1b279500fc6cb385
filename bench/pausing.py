"""Trainings that go on by a few rounds at a time, so that several can take turns."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from types import coroutine
from typing import Any

from colonnade.learning.algorithm import Algorithm
from colonnade.network import StackedNetwork
from colonnade.network.clock import Clock
from colonnade.network.network import Item, Rounds, Schedule, World


class PausingNetwork(StackedNetwork):
    """The stacked engine with a pause before each round of the training's loops and after the
    last."""

    def __init__(self, world: World, program: str = "main", clock: Clock | None = None) -> None:
        super().__init__(world, program, clock)
        self.schedules: list[Schedule[Any]] = []  # of the loops begun so far

    def rounds(self, schedule: Schedule[Item], *, sent_once: bool = False) -> Rounds[Item]:
        if self.program != "main":  # validation and the like happen within a round
            return super().rounds(schedule)
        self.schedules.append(schedule)
        return _PausingRounds(self, schedule)


class _PausingRounds(Rounds[Item]):
    async def __anext__(self) -> Item:
        await _pause()
        return await super().__anext__()


@coroutine
def _pause() -> Generator[None]:
    yield


def pauses(algorithm: Algorithm, net: PausingNetwork) -> Iterator[int]:
    """Trains; at each pause the number of the loop, from 0."""
    program = algorithm.train(net)
    while True:
        try:
            program.send(None)
        except StopIteration:
            yield len(net.schedules) - 1  # the parties agreed to stop: no pause after the last
            return
        yield len(net.schedules) - 1


class Training:
    """What took so long is the caller's to measure: `begin` prepares a loop over rounds, `advance`
    does some of them."""

    def __init__(self, pauses: Iterator[int]) -> None:
        self.pauses = pauses
        self.loop = -1

    def begin(self, _: int = 1) -> None:
        self.loop += 1
        self.advance(1)

    def advance(self, rounds: int) -> None:
        for _ in range(rounds):
            assert next(self.pauses) == self.loop, "the trainings are not at the same loop"

    def finish(self, _: int = 1) -> None:
        assert next(self.pauses, None) is None, "the training has more rounds than expected"
