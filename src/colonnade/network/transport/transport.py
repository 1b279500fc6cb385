"""What the projected engine needs of a transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from colonnade.network.clock import Clock

Deliver = Callable[[str, bytes], None]  # takes the sender and the message
Notice = Callable[[str, bool, int], None]  # takes a party, whether it is there now, and its life


class Transport(Protocol):
    """Connects one party with the others. It delivers bytes and tells which parties are there;
    rounds, registers, waits and deadlines are the engine's."""

    @property
    def party(self) -> str: ...

    @property
    def clock(self) -> Clock: ...

    def listen(self, deliver: Deliver, notice: Notice, life: int = 0) -> None:
        """Connect: from now on the others see this party. `deliver` is called for each message,
        `notice` when another party comes or leaves, both by the thread of the clock. `life`: the
        number of this start of the party's process, for the others' notices."""
        ...

    def publish(self, to: str, data: bytes, delay: int = 0) -> None:
        """Send without waiting for anything. What is sent to a party that is not there is lost;
        what arrives from one sender arrives in the order in which it was sent. `delay`: so many
        nanoseconds later, where time is virtual."""
        ...

    def close(self) -> None:
        """Disconnect: the others are told that this party has left."""
        ...
