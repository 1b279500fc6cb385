"""What worker processes and the processes of parties share."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

LOST = (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))  # treated like Ctrl-C


@contextmanager
def stop_afterwards() -> Iterator[None]:
    """A signal to stop that comes within this block raises KeyboardInterrupt at the end of the
    block. An interrupted import may swallow the interruption, or end the process without a
    message."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set signals
        return
    signals = dict.fromkeys((signal.SIGINT, *LOST))
    before = {one: signal.getsignal(one) for one in signals}
    before = {one: then for one, then in before.items() if callable(then)}  # not if ignored
    for one in before:
        signal.signal(one, lambda number, _: asked.append(number))
    try:
        yield
    finally:
        for one, then in before.items():
            signal.signal(one, then)
    if asked:
        raise KeyboardInterrupt


@contextmanager
def one_thread() -> Iterator[None]:
    """In this block torch uses one thread: two processes of one thread are faster than one process
    of two threads (0.97 vs 1.40 s per run)."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def die_with_parent() -> None:
    """From now on, this process ends when its parent ends: a parent that was killed cannot tell its
    children to stop."""
    threading.Thread(target=_wait_for_the_end, daemon=True).start()


def _wait_for_the_end() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
