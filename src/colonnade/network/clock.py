"""Virtual time: a deterministic scheduler for coroutines.

Time is in integer nanoseconds, events are in (time, slot, sequence) order, and sets are used
nowhere, so a run is a function of its inputs. A moment has slots, so that programs side by side
take turns in one order, however many steps of the scheduler each of them needs: see `turn`. When no
event is left and tasks still wait, that is a deadlock, reported with the names of these tasks.
(docs/decisions/0003-our-own-scheduler.md says why none of the existing event loops is used.)
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from colonnade.errors import Deadlock

SECOND = 1_000_000_000
MANY = 100  # tasks, before those that have ended are removed
LISTEN = SECOND // 5  # longest wait for other threads, so that Ctrl-C is handled in time


@dataclass(eq=False)
class Task:
    name: str
    program: Coroutine[Any, Any, Any]
    done: bool = False
    result: Any = None
    error: Exception | None = None  # of an awaited task: raised in the task that awaits it
    awaited: bool = False
    ticket: int = 0  # number of the event that may resume this task; earlier events are void
    waiting_for: Signal | None = None
    finished: Signal = field(default_factory=lambda: Signal())


@dataclass(eq=False)
class Signal:
    """Something that tasks can wait for; `notify` wakes all of them."""

    waiters: list[Task] = field(default_factory=list)
    clock: Clock | None = None

    def notify(self) -> None:
        waiters, self.waiters = self.waiters, []
        for task in waiters:
            assert self.clock is not None
            self.clock._resume(task, self.clock.now)


@dataclass(frozen=True)
class _Pause:
    """What a task yields to the scheduler: it is resumed at the time or the signal, whichever comes
    first."""

    until: int | None
    signal: Signal | None = None
    slot: int | None = None  # of the moment `until`; None: the present one, if it is now

    def __await__(self) -> Generator[_Pause, None, None]:
        yield self


class Clock:
    """Runs tasks in virtual time."""

    def __init__(self) -> None:
        self.now = 0
        self.slot = 0  # of this moment
        self._queue: list[tuple[int, int, int, Task | Callable[[], None]]] = []
        self._sequence = 0
        self._tasks: list[Task] = []

    def spawn(self, program: Coroutine[Any, Any, Any], name: str) -> Task:
        task = Task(name, program)
        if len(self._tasks) > MANY:
            self._tasks = [task for task in self._tasks if not task.done]
        self._tasks.append(task)
        self._resume(task, self.now)
        return task

    async def sleep_until(self, time: int) -> None:
        await _Pause(max(time, self.now))

    async def turn(self, k: int, count: int) -> None:
        """Until it is the turn of program k of so many that run side by side: in each cycle of
        slots of this moment every program has one, in order of their numbers. What a program does
        until its next turn happens in its slot, as long as nothing takes time."""
        await _Pause(self.now, slot=(self.slot // count + 1) * count + k)

    async def wait(self, signal: Signal, until: int | None = None) -> None:
        """Wait for the signal or until the time, whichever comes first."""
        await _Pause(until, signal)

    async def join(self, tasks: list[Task]) -> list[Any]:
        """Wait until all tasks have ended; their results. An error in one of them, or in the
        waiting task, cancels the others."""
        for task in tasks:
            task.awaited = True
        try:
            for task in tasks:
                while not task.done:
                    await self.wait(task.finished)
                if task.error is not None:
                    raise task.error
        finally:
            for task in tasks:
                self.cancel(task)
        return [task.result for task in tasks]

    def cancel(self, task: Task) -> None:
        """End a task at once, like a process that is killed; nothing happens if it has ended."""
        if not task.done:
            task.done = True
            task.program.close()

    def call_at(self, time: int, action: Callable[[], None]) -> None:
        """Call a plain function at a time, such as the delivery of a message."""
        self._push(time, action)

    def run(self, *programs: tuple[str, Coroutine[Any, Any, Any]]) -> list[Any]:
        """Run the programs to their end; an exception in one of them ends all."""
        tasks = [self.spawn(program, name) for name, program in programs]
        try:
            while not all(task.done for task in tasks):
                self._step()
        finally:
            for task in self._tasks:
                task.program.close()
            self._tasks.clear()
            self._queue.clear()
        return [task.result for task in tasks]

    def _step(self) -> None:
        if not self._queue:
            names = [task.name for task in self._tasks if not task.done]
            raise Deadlock(f"nothing can happen any more; waiting: {', '.join(names)}")
        when, slot, ticket, event = heapq.heappop(self._queue)
        if not isinstance(event, Task):
            self._advance(when)
            self.slot = slot
            event()
        elif event.ticket == ticket and not event.done:
            self._advance(when)
            self.slot = slot
            self._go_on(event)

    def _advance(self, to: int) -> None:
        self.now = to

    def _go_on(self, task: Task) -> None:
        if task.waiting_for is not None:
            if task in task.waiting_for.waiters:  # woken by time, not by the signal
                task.waiting_for.waiters.remove(task)
            task.waiting_for = None
        try:
            pause = task.program.send(None)
        except StopIteration as stop:
            self._end(task, stop.value, None)
        except Exception as error:
            if not task.awaited:
                raise
            self._end(task, None, error)
        else:
            self._pause(task, pause)

    def _end(self, task: Task, result: Any, error: Exception | None) -> None:
        task.done, task.result, task.error = True, result, error
        task.finished.clock = self
        task.finished.notify()

    def _pause(self, task: Task, pause: _Pause) -> None:
        if pause.signal is not None:
            pause.signal.clock = self
            pause.signal.waiters.append(task)
            task.waiting_for = pause.signal
            task.ticket = -1
        if pause.until is not None:
            self._resume(task, pause.until, pause.slot)

    def _resume(self, task: Task, time: int, slot: int | None = None) -> None:
        task.ticket = self._push(time, task, slot)

    def _push(self, time: int, event: Task | Callable[[], None], slot: int | None = None) -> int:
        self._sequence += 1
        if slot is None:
            slot = 0 if time > self.now else self.slot
        heapq.heappush(self._queue, (max(time, self.now), slot, self._sequence, event))
        return self._sequence


class WallClock(Clock):
    """The same scheduler in real time. Other threads hand over functions, which the thread that
    runs the tasks calls: no state is shared between threads."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = time.monotonic_ns()
        self._handed: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def hand_over(self, action: Callable[[], None]) -> None:
        """Have a function called by the thread that runs the tasks. Any thread may call this."""
        self._handed.put(action)

    def _step(self) -> None:
        self._advance(0)
        wait = self._queue[0][0] - self.now if self._queue else LISTEN
        try:
            action = (
                self._handed.get(timeout=wait / SECOND) if wait > 0 else self._handed.get(False)
            )
        except Empty:
            self._advance(0)
            if self._queue and self._queue[0][0] <= self.now:
                super()._step()
            return
        self._advance(0)
        action()
        self._advance(0)
        # One task after each message: a flood of messages must not stop the tasks.
        if self._queue and self._queue[0][0] <= self.now:
            super()._step()

    def _advance(self, to: int) -> None:
        self.now = time.monotonic_ns() - self._begun
