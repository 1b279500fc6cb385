"""What the projected engine needs of whatever carries its bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from colonnade.network.clock import Clock

Deliver = Callable[[str, bytes], None]  # who sent it, and what
Notice = Callable[[str, bool, int], None]  # a party, whether it is there now, which life of it


class Transport(Protocol):
    """One party's way to the others. It delivers bytes and tells who is there; rounds, registers,
    waits and deadlines are the engine's."""

    @property
    def party(self) -> str: ...

    @property
    def clock(self) -> Clock: ...

    def listen(self, deliver: Deliver, notice: Notice, life: int = 0) -> None:
        """Be there, from now on. Both functions are called by the thread of the clock. `life`: the
        number of this start of the party's process, for the others' notices."""
        ...

    def publish(self, to: str, data: bytes, delay: int = 0) -> None:
        """Send without waiting for anything. What is sent to a party that is not there is lost;
        what arrives from one sender arrives in the order in which it was sent. `delay`: so many
        nanoseconds later, where time is virtual."""
        ...

    def close(self) -> None:
        """Leave: the others are told."""
        ...
