"""Bad weather in virtual time: the deployment code under seeded schedules of crashes, restarts,
delays, duplicates and reordering. The same seed gives the same storm."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from colonnade.network.clock import SECOND, Clock
from colonnade.network.transport.transport import Deliver, Notice

MILLISECOND = SECOND // 1000


@dataclass(frozen=True)
class Weather:
    """How bad it is."""

    delay: float = 2.0  # milliseconds, on average
    gust: float = 0.02  # share of messages that take a hundred times as long
    duplicate: float = 0.05  # share of messages that come twice
    notice: float = 1000.0  # milliseconds at most until others see that a party came or left


class Storm:
    """The network between parties of one process. What is sent to a party that is not there when
    it would arrive is lost."""

    def __init__(self, clock: Clock, seed: int, weather: Weather | None = None) -> None:
        self.clock, self.random, self.weather = clock, Random(seed), weather or Weather()
        self.seats: dict[str, StormSeat] = {}
        self._noticed: dict[tuple[str, str], int] = {}  # observer and party: when, last

    def seat(self, party: str) -> StormSeat:
        return StormSeat(self, party)

    def send(self, sender: str, to: str, data: bytes) -> None:
        weather, random = self.weather, self.random
        for _ in range(1 + (random.random() < weather.duplicate)):
            delay = random.expovariate(1 / weather.delay)
            delay *= 100 if random.random() < weather.gust else 1
            self.clock.call_at(
                self.clock.now + int(delay * MILLISECOND), lambda: self._arrive(sender, to, data)
            )

    def _arrive(self, sender: str, to: str, data: bytes) -> None:
        if to in self.seats:
            self.seats[to].deliver(sender, data)

    def announce(self, party: str, there: bool) -> None:
        """Everybody sees it, each at a time of its own, but in the right order."""
        for observer in list(self.seats):
            if observer != party:
                self._see(observer, party, there)

    def _see(self, observer: str, party: str, there: bool) -> None:
        seat = self.seats[observer]
        delay = self.random.uniform(0, self.weather.notice) * (0.1 if there else 1)
        last = self._noticed.get((observer, party), 0)
        when = max(last, self.clock.now + int(delay * MILLISECOND))
        self._noticed[observer, party] = when
        self.clock.call_at(when, lambda: seat.see(party, there))


class StormSeat:
    """One party's way to the others, as long as it lives."""

    def __init__(self, storm: Storm, party: str) -> None:
        self.storm, self.party, self.clock = storm, party, storm.clock
        self.open = False
        self.deliver: Deliver = lambda sender, data: None
        self.notice: Notice = lambda party, there: None

    def listen(self, deliver: Deliver, notice: Notice) -> None:
        self.deliver, self.notice, self.open = deliver, notice, True
        others = list(self.storm.seats)
        self.storm.seats[self.party] = self
        self.storm.announce(self.party, True)
        for other in others:
            self.storm._see(self.party, other, True)

    def see(self, party: str, there: bool) -> None:
        if self.open:
            self.notice(party, there)

    def publish(self, to: str, data: bytes, delay: int = 0) -> None:
        if self.open:
            self.storm.send(self.party, to, data)

    def close(self) -> None:
        """Also what a crash looks like from outside."""
        if self.open:
            self.open = False
            del self.storm.seats[self.party]
            self.storm.announce(self.party, False)
