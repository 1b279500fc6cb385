"""Requests that come within a few milliseconds are asked together.

One question to the federation takes about as long for a hundred rows as for one. While a question
is on its way, and for `window` seconds before the next one, the requests that come wait, and are
asked together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from colonnade.errors import ColonnadeError
from colonnade.federation.member.messages import AT_ONCE
from colonnade.federation.member.prediction_requests import Asked, Predicted
from colonnade.federation.serving.settings import Limits

SHARE = 0.8  # of the time that is left is for the parties; the rest is for the way back
LATE = 0.01  # seconds: with less than that left, nobody is asked any more

Ask = Callable[[Asked, float], Awaitable[Predicted]]  # takes a request and the seconds for it


class Full(Exception):
    """More requests wait than there is room for."""


class Late(Exception):
    """There was no answer in time."""


@dataclass(eq=False)
class Waiting:
    """A request that waits for its answer."""

    keys: Sequence[str]
    until: float  # the time of the event loop by which the answer is needed
    answer: asyncio.Future[Predicted]


@dataclass
class Counts:
    """Since the start."""

    requests: int = 0
    rows: int = 0
    questions: int = 0
    full: int = 0  # requests for which there was no room
    late: int = 0


@dataclass
class Batcher:
    ask: Ask
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self.counts = Counts()
        self.queue: deque[Waiting] = deque()
        self.rows = 0  # that wait
        self._worker: asyncio.Task[None] | None = None

    async def predict(self, keys: Sequence[str], seconds: float) -> Predicted:
        """The answer to a question that these keys are part of. Raises `Full`, `Late`, or what
        `ask` raises."""
        if self.rows + len(keys) > self.limits.room:
            self.counts.full += 1
            raise Full
        loop = asyncio.get_running_loop()
        one = Waiting(keys, loop.time() + seconds, loop.create_future())
        self.queue.append(one)
        self.rows += len(keys)
        self.counts.requests += 1
        self.counts.rows += len(keys)
        if self._worker is None or self._worker.done():
            self._worker = loop.create_task(self._work())
        try:
            async with asyncio.timeout_at(one.until):
                return await one.answer
        except TimeoutError:
            self.counts.late += 1
            raise Late from None
        finally:
            if one in self.queue:  # nobody was asked yet
                self._leave(one)

    def _leave(self, one: Waiting) -> None:
        self.queue.remove(one)
        self.rows -= len(one.keys)

    async def _work(self) -> None:
        """Ask until nobody waits. Before each question a moment is waited for more requests: at 250
        requests per second that halves the number of questions, and with it the work."""
        while self.queue:
            if self.rows < AT_ONCE:
                await asyncio.sleep(self.limits.window)
            if self.queue and (batch := self._next_batch()):
                await self._ask(batch)

    def _next_batch(self) -> list[Waiting]:
        """The first request, and others that need their answers about as soon: a request in a hurry
        makes do with the parties that answer at once, and the others need not."""
        now = asyncio.get_running_loop().time()
        left, rows, batch = self.queue[0].until - now, 0, list[Waiting]()
        for one in list(self.queue):
            alike = left / 2 <= one.until - now <= 2 * left or one is self.queue[0]
            if rows + len(one.keys) <= AT_ONCE and (alike or not batch):
                batch.append(one)
                rows += len(one.keys)
        for one in batch:
            self._leave(one)
        return [one for one in batch if one.until - now > LATE and not one.answer.done()]

    async def _ask(self, batch: Sequence[Waiting]) -> None:
        now = asyncio.get_running_loop().time()
        keys = list(dict.fromkeys(key for one in batch for key in one.keys))
        soonest, latest = (f(one.until for one in batch) - now for f in (min, max))
        self.counts.questions += 1
        try:
            async with asyncio.timeout(latest):
                found = await self.ask(Asked(keys, seconds=SHARE * soonest), latest)
        except TimeoutError:  # each request knows its own deadline
            return
        except ColonnadeError as error:
            for one in batch:
                if not one.answer.done():
                    one.answer.set_exception(error)
            return
        for one in batch:
            if not one.answer.done():
                one.answer.set_result(found)
