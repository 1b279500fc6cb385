"""Programs with a leader, and the generations of their leaders.

The leader of a program begins a new *generation* whenever it starts the program: when its process
starts, or when it is sent back by the leader of a surrounding program. Every message carries the
generation of its program's leader. Messages of an older generation are void; those of a newer one
wait until the leader itself was heard. Where nobody leads there is one generation.

Programs that run side by side are opened and closed here. What comes for a program that this party
has not started yet waits; what comes for one that it has left is void.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from colonnade.network.live.resend import ResendBuffer
from colonnade.network.mail_room import MailRoom
from colonnade.network.program_counter import MAIN, ProgramCounter
from colonnade.network.quota import Quota, Store, weight
from colonnade.network.wire import Header

UNREAD = 64  # letters of one sender that are held for exchanges to come
REGISTERS = 16  # of one sender, in one program
VERSIONS = 4  # of a register
EARLY = 256  # messages of one sender, of a generation or program that this party is not in yet
MANY_GONE = 1024  # exchanges of which others said that they have their messages no more

Message = tuple[str, Header, Tensor | None]  # with its sender


class LedProgram:
    """A program as one party knows it: its leader, the generation, and what was sent in it."""

    def __init__(
        self,
        origin: ProgramCounter,
        leader: str | None,
        quota: Quota,
        parties: tuple[str, ...] | None = None,
    ) -> None:
        self.origin, self.leader = origin, leader
        self.parties = parties  # those that have a part in it; None: all
        self.generation = self.newest = 0 if leader else 1  # newest: that was heard of
        self.start = origin.at(0, 0)  # where the generation began
        self.mail = MailRoom(quota, unread=UNREAD, registers=REGISTERS, versions=VERSIONS)
        self.resend = ResendBuffer()
        self.gone: dict[tuple[str, ProgramCounter], bool] = {}  # what a party has no more

    def is_for(self, party: str) -> bool:
        """Whether a party has a part in it."""
        return self.parties is None or party in self.parties

    def begin(self, generation: int, start: ProgramCounter) -> None:
        """Everything is void that was said before, except for what registers hold."""
        self.generation, self.newest = generation, max(generation, self.newest)
        self.start = start
        self.mail.begin_anew()
        self.resend.clear()
        self.gone.clear()

    def lost(self, sender: str, counter: ProgramCounter) -> None:
        """A party said that it has its message of an exchange no more."""
        if len(self.gone) >= MANY_GONE:
            self.gone.clear()
        self.gone[sender, counter] = True


class Programs:
    """The programs that a party runs now: the main program, and those side by side in it."""

    def __init__(self, leader: str | None, quota: Quota) -> None:
        self.quota = quota
        self.main = LedProgram(MAIN, leader, quota)
        self._open: dict[ProgramCounter, LedProgram] = {MAIN: self.main}
        self._early: Store[int, Message] = Store(quota)  # in the order in which they came
        self._came = 0

    def find(self, origin: ProgramCounter) -> LedProgram | None:
        """The program that was started there; None if it does not run here."""
        return self._open.get(origin)

    def of(self, counter: ProgramCounter) -> LedProgram:
        """The innermost program with a leader, or the main program, that this is a position in."""
        if len(self._open) > 1:
            for i in range(len(counter) - 1, -1, -1):
                if counter[i] < 0 and counter[: i + 1] in self._open:
                    return self._open[ProgramCounter(counter[: i + 1])]
        return self.main

    def open(
        self, origin: ProgramCounter, leader: str, parties: tuple[str, ...] | None
    ) -> LedProgram:
        program = self._open[origin] = LedProgram(origin, leader, self.quota, parties)
        return program

    def close(self, origin: ProgramCounter) -> None:
        """The program has ended here, and all that ran inside it."""
        for inner in [o for o in self._open if o.inside(origin)]:
            self._open.pop(inner).mail.clear()
        list(self._release(lambda header: header.origin.inside(origin)))

    def wait_for_generation(self, sender: str, header: Header, value: Tensor | None) -> None:
        """Hold a message of a generation or program that this party is not in yet."""
        self._came += 1
        size, message = weight(value, header.note), (sender, header, value)
        full = len(self._early) >= EARLY and len(self._early.of(sender)) >= EARLY
        if full or not self._early.put(self._came, message, sender, size):
            self.quota.drop(sender)

    def early(self, origin: ProgramCounter, until: int | None = None) -> Iterator[Message]:
        """The messages that were held for a program, and are held no more; up to a generation if
        one is given."""
        return self._release(
            lambda header: header.origin == origin and (until is None or header.generation <= until)
        )

    def forget_passed(self, passed: Callable[[ProgramCounter], bool]) -> None:
        """Drop what was held for programs that this party did not take part in and has passed."""
        list(self._release(lambda h: h.origin not in self._open and passed(h.origin)))

    def _release(self, wanted: Callable[[Header], bool]) -> Iterator[Message]:
        for number in list(self._early):
            message = self._early.get(number)
            if message is not None and wanted(message[1]):
                self._early.pop(number)
                yield message
