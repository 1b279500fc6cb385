"""Messages between parties of one process, in virtual time: the deployment code under test."""

from __future__ import annotations

from collections.abc import Callable

from colonnade.network.clock import Clock


class MemoryTransport:
    """Delivers bytes after a delay. Parties register how they want to be called."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._deliver: dict[str, Callable[[bytes], None]] = {}

    def listen(self, party: str, deliver: Callable[[bytes], None]) -> None:
        self._deliver[party] = deliver

    def publish(self, to: str, data: bytes, delay: int = 0) -> None:
        if delay == 0:
            self._deliver[to](data)
        else:
            self.clock.call_at(self.clock.now + delay, lambda: self._deliver[to](data))
