"""Virtual time."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from colonnade.errors import Deadlock
from colonnade.network.clock import SECOND, Clock, Signal, WallClock


def test_tasks_resume_in_the_order_of_their_times_and_time_jumps() -> None:
    clock, seen = Clock(), []

    async def sleeper(name: str, seconds: int) -> None:
        await clock.sleep_until(seconds * SECOND)
        seen.append((name, clock.now))

    clock.run(("late", sleeper("late", 30)), ("early", sleeper("early", 10)))
    assert seen == [("early", 10 * SECOND), ("late", 30 * SECOND)]


def test_equal_times_keep_the_order_in_which_they_were_asked_for() -> None:
    clock, seen = Clock(), []

    async def turn(name: str) -> None:
        for _ in range(3):
            await clock.sleep_until(clock.now)
            seen.append(name)

    clock.run(("a", turn("a")), ("b", turn("b")))
    assert "".join(seen) == "ababab"


def test_programs_take_turns_however_many_steps_each_of_them_needs() -> None:
    clock, seen = Clock(), []

    async def program(k: int, steps: int) -> None:
        for _ in range(3):
            await clock.turn(k, 3)
            for _ in range(steps):
                await clock.sleep_until(clock.now)  # within its turn
            seen.append(k)

    clock.run(("c", program(2, 1)), ("a", program(0, 7)), ("b", program(1, 0)))
    assert seen == [0, 1, 2] * 3
    assert clock.now == 0


def test_a_signal_wakes_its_waiters_and_a_limit_ends_the_waiting() -> None:
    clock, signal = Clock(), Signal()

    async def waiter(limit: int | None) -> int:
        await clock.wait(signal, limit)
        return clock.now

    async def giver() -> None:
        await clock.sleep_until(5)
        signal.notify()

    assert clock.run(("w", waiter(None)), ("l", waiter(3)), ("g", giver())) == [5, 3, None]


def test_a_task_woken_by_its_limit_is_not_woken_again_by_the_signal() -> None:
    clock, signal, woken = Clock(), Signal(), []

    async def waiter() -> None:
        await clock.wait(signal, 3)
        woken.append(clock.now)
        await clock.sleep_until(100)
        woken.append(clock.now)

    async def giver() -> None:
        await clock.sleep_until(5)
        signal.notify()

    clock.run(("w", waiter()), ("g", giver()))
    assert woken == [3, 100]


def test_waiting_for_something_that_nobody_will_do_names_who_waits() -> None:
    clock = Clock()

    async def stuck() -> None:
        await clock.wait(Signal())

    with pytest.raises(Deadlock, match="lab, clinic"):
        clock.run(("lab", stuck()), ("clinic", stuck()))


def test_an_error_in_one_task_ends_all_and_reaches_the_caller() -> None:
    clock = Clock()

    async def fails() -> None:
        await clock.sleep_until(1)
        raise ValueError("broken")

    async def waits() -> None:
        await clock.wait(Signal())

    with pytest.raises(ValueError, match="broken"):
        clock.run(("w", waits()), ("f", fails()))


def test_tasks_started_on_the_way_can_be_joined() -> None:
    clock = Clock()

    async def child(n: int) -> int:
        await clock.sleep_until(n)
        return n * n

    async def parent() -> list[int]:
        return await clock.join([clock.spawn(child(n), f"child {n}") for n in (3, 1, 2)])

    assert clock.run(("parent", parent())) == [[9, 1, 4]]


def test_on_the_wall_other_threads_wake_a_task_and_limits_end_its_waiting() -> None:
    clock, signal, seen = WallClock(), Signal(), []

    async def waiter() -> None:
        await clock.wait(signal, None)
        seen.append("message")
        await clock.wait(signal, clock.now + SECOND // 50)
        seen.append("limit")

    thread = threading.Timer(0.02, lambda: clock.hand_over(signal.notify))
    thread.start()
    clock.run(("waiter", waiter()))
    assert seen == ["message", "limit"]
    assert clock.now >= SECOND // 25


def test_on_the_wall_what_was_handed_over_is_done_in_order_by_the_thread_of_the_tasks() -> None:
    clock, signal, seen = WallClock(), Signal(), []

    async def waiter() -> None:
        while len(seen) < 100:
            await clock.wait(signal)

    def hear(i: int) -> None:
        seen.append((i, threading.get_ident()))
        signal.notify()

    def tell() -> None:
        for i in range(100):
            clock.hand_over(partial(hear, i))

    threading.Thread(target=tell).start()
    clock.run(("waiter", waiter()))
    assert seen == [(i, threading.get_ident()) for i in range(100)]
