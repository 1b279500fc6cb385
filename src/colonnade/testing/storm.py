"""Storms: the deployment code in virtual time, under seeded schedules of crashes, restarts, delays,
duplicates and reordering. The same seed gives the same storm."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any

from colonnade.network.clock import SECOND, Clock, Task
from colonnade.network.transport.transport import Deliver, Notice

MILLISECOND = SECOND // 1000


@dataclass(frozen=True)
class Weather:
    """The delays and faults of a storm's messages."""

    delay: float = 2.0  # milliseconds, on average
    gust: float = 0.02  # share of messages that take a hundred times as long
    duplicate: float = 0.05  # share of messages that come twice
    notice: float = 1000.0  # milliseconds at most until others see that a party came or left
    ordered: bool = False  # between two parties nothing overtakes; as a real transport promises


class Storm:
    """The network between parties of one process. What is sent to a party that is not there when
    it would arrive is lost."""

    def __init__(self, clock: Clock, seed: int, weather: Weather | None = None) -> None:
        self.clock, self.random, self.weather = clock, Random(seed), weather or Weather()
        self.seats: list[StormSeat] = []  # of those who are there
        self._arrived: dict[tuple[str, str], int] = {}  # sender and receiver: when, last
        self._noticed: dict[tuple[str, str], int] = {}  # observer and party: when, last

    def seat(self, party: str) -> StormSeat:
        return StormSeat(self, party)

    def send(self, sender: str, to: str, data: bytes) -> None:
        weather, random = self.weather, self.random
        for _ in range(1 + (random.random() < weather.duplicate)):
            delay = random.expovariate(1 / weather.delay)
            delay *= 100 if random.random() < weather.gust else 1
            when = self.clock.now + int(delay * MILLISECOND)
            if weather.ordered:
                when = self._arrived[sender, to] = max(when, self._arrived.get((sender, to), 0))
            self.clock.call_at(when, lambda: self._arrive(sender, to, data))

    def _arrive(self, sender: str, to: str, data: bytes) -> None:
        for seat in list(self.seats):
            if seat.party == to:
                seat.deliver(sender, data)

    def announce(self, seat: StormSeat, there: bool) -> None:
        """Everybody sees it, each at a time of its own, but in the right order."""
        for observer in list(self.seats):
            if observer.party != seat.party:
                self._see(observer, seat, there)

    def _see(self, observer: StormSeat, seat: StormSeat, there: bool) -> None:
        delay = self.random.uniform(0, self.weather.notice) * (0.1 if there else 1)
        last = self._noticed.get((observer.party, seat.party), 0)
        when = max(last, self.clock.now + int(delay * MILLISECOND))
        self._noticed[observer.party, seat.party] = when
        self.clock.call_at(when, lambda: observer.see(seat.party, there, seat.life))


class StormSeat:
    """One party's way to the others, as long as it lives."""

    def __init__(self, storm: Storm, party: str) -> None:
        self.storm, self.party, self.clock = storm, party, storm.clock
        self.open, self.life = False, 0
        self.deliver: Deliver = lambda sender, data: None
        self.notice: Notice = lambda party, there, life: None

    def listen(self, deliver: Deliver, notice: Notice, life: int = 0) -> None:
        self.deliver, self.notice, self.life, self.open = deliver, notice, life, True
        others = [seat for seat in self.storm.seats if seat.party != self.party]
        self.storm.seats.append(self)
        self.storm.announce(self, True)
        for other in others:
            self.storm._see(self, other, True)

    def see(self, party: str, there: bool, life: int) -> None:
        if self.open:
            self.notice(party, there, life)

    def publish(self, to: str, data: bytes, delay: int = 0) -> None:
        if self.open:
            self.storm.send(self.party, to, data)

    def close(self) -> None:
        """Also what a crash looks like from outside."""
        if self.open:
            self.open = False
            self.storm.seats.remove(self)
            self.storm.announce(self, False)


@dataclass
class Life:
    """One run of one party's process."""

    seat: StormSeat
    task: Task
    begun: int  # nanoseconds
    ended: int | None = None


Live = Callable[[StormSeat, int], Coroutine[Any, Any, Any]]  # with the number of the life, from 0


class Crew:
    """Parties that start, crash and return as a seed says, in weather of its choice."""

    def __init__(self, seed: int, parties: tuple[str, ...], live: Live) -> None:
        self.random, self.clock = Random(seed), Clock()
        weather = Weather(
            delay=self.random.choice([0.5, 2, 20]),
            gust=self.random.choice([0, 0.02, 0.1]),
            duplicate=self.random.choice([0, 0.05, 0.3]),
            notice=self.random.choice([5, 200, 2000]),
            ordered=self.random.choice([True, False]),
        )
        self.storm = Storm(self.clock, seed, weather)
        self.parties, self.live = parties, live
        self.lives: dict[str, list[Life]] = {party: [] for party in parties}
        self.results: dict[str, Any] = {}  # of those who are done

    def run(self, crashes: int, *, horizon: float = 600.0) -> dict[str, Any]:
        """Until everybody is done; TimeoutError after so many virtual seconds."""
        for party in self.parties:
            self._start_at(int(self.random.uniform(0, 0.3) * SECOND), party)
        span = self.random.choice([0.3, 2, 8])
        for _ in range(crashes):
            party = self.random.choice(self.parties)
            when = int(self.random.uniform(0, span) * SECOND)
            back = when + int(self.random.uniform(0.001, 3) * SECOND)
            self.clock.call_at(when, lambda p=party, b=back: self.crash(p, b))
        self.clock.run(("watch", self._watch(int(horizon * SECOND))))
        return self.results

    def crash(self, party: str, back: int) -> None:
        """End a process where it stands; another one starts later. Nothing if it is not there."""
        lives = self.lives[party]
        if not lives or lives[-1].ended is not None or party in self.results:
            return
        lives[-1].ended = self.clock.now
        lives[-1].seat.close()
        self.clock.cancel(lives[-1].task)
        self._start_at(back, party)

    async def _watch(self, horizon: int) -> None:
        while len(self.results) < len(self.parties):
            await self.clock.sleep_until(self.clock.now + SECOND // 10)
            if self.clock.now > horizon:
                left = [party for party in self.parties if party not in self.results]
                raise TimeoutError(f"not done: {', '.join(left)}")

    def _start_at(self, when: int, party: str) -> None:
        self.clock.call_at(when, lambda: self._start(party))

    def _start(self, party: str) -> None:
        seat, number = self.storm.seat(party), len(self.lives[party])
        task = self.clock.spawn(self._until_done(party, seat, number), f"{party}#{number}")
        self.lives[party].append(Life(seat, task, self.clock.now))

    async def _until_done(self, party: str, seat: StormSeat, number: int) -> None:
        self.results[party] = await self.live(seat, number)
