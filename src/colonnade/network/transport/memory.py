"""Messages between parties of one process, in virtual time, for tests of the deployment code."""

from __future__ import annotations

from colonnade.network.clock import Clock
from colonnade.network.transport.transport import Deliver, Notice


class MemoryTransport:
    """Delivers bytes after a delay. `seat` gives a party its transport."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.seats: dict[str, Seat] = {}  # of the parties that are there

    def seat(self, party: str) -> Seat:
        return Seat(self, party)


class Seat:
    """The transport of one party."""

    def __init__(self, room: MemoryTransport, party: str) -> None:
        self.room, self.party, self.clock = room, party, room.clock
        self.deliver: Deliver = lambda sender, data: None
        self.notice: Notice = lambda party, there, life: None
        self.life = 0

    def listen(self, deliver: Deliver, notice: Notice, life: int = 0) -> None:
        self.deliver, self.notice, self.life = deliver, notice, life
        others = self.room.seats
        others[self.party] = self
        for party, seat in list(others.items()):
            if seat is not self:
                seat.notice(self.party, True, life)
                self.notice(party, True, seat.life)

    def publish(self, to: str, data: bytes, delay: int = 0) -> None:
        if delay == 0:
            self._arrive(to, data)
        else:
            self.clock.call_at(self.clock.now + delay, lambda: self._arrive(to, data))

    def _arrive(self, to: str, data: bytes) -> None:
        if to in self.room.seats:
            self.room.seats[to].deliver(self.party, data)

    def close(self) -> None:
        del self.room.seats[self.party]
        for seat in self.room.seats.values():
            seat.notice(self.party, False, self.life)
