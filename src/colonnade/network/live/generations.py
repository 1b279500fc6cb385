"""Programs with a leader, and the generations of their leaders.

The leader of a program begins a new *generation* whenever it starts the program: when its process
starts, or when the leader of a surrounding program sends it back. Every message carries the
generation of its program's leader. Messages of an older generation are void; those of a newer one
wait until a message of the leader itself has come. Where nobody leads there is one generation.

Programs that run side by side are opened and closed here. Messages for a program that this party
has not started yet are held; messages for a program that it has left are void.
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
MANY_GONE = 1024  # remembered answers "gone" to negative acknowledgements

Message = tuple[str, Header, Tensor | None]  # sender, header, content


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
        self.gone: dict[tuple[str, ProgramCounter], bool] = {}  # messages that senders lack by now

    def is_for(self, party: str) -> bool:
        """Whether a party has a part in it."""
        return self.parties is None or party in self.parties

    def begin(self, generation: int, start: ProgramCounter) -> None:
        """Begin a new generation: all earlier messages are void, except for what registers hold."""
        self.generation, self.newest = generation, max(generation, self.newest)
        self.start = start
        self.mail.begin_anew()
        self.resend.clear()
        self.gone.clear()

    def mark_gone(self, sender: str, counter: ProgramCounter) -> None:
        """The sender said that it no longer has its message of the exchange at `counter`."""
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
        """The program with this origin; None if it does not run here."""
        return self._open.get(origin)

    def of(self, counter: ProgramCounter) -> LedProgram:
        """The innermost open program that the program counter lies in: one with a leader of its
        own, or the main program."""
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
        """The program, and every program inside it, has ended at this party."""
        for inner in [o for o in self._open if o.inside(origin)]:
            self._open.pop(inner).mail.clear()
        list(self._release(lambda header: header.origin.inside(origin)))

    def hold_early(self, sender: str, header: Header, value: Tensor | None) -> None:
        """Hold a message of a generation or program that this party is not in yet."""
        self._came += 1
        size, message = weight(value, header.note), (sender, header, value)
        full = len(self._early) >= EARLY and len(self._early.of(sender)) >= EARLY
        if full:
            self.quota.drop(sender, f"{EARLY} of a program that is still to begin here")
        elif not self._early.put(self._came, message, sender, size):
            self.quota.drop(sender)

    def release_early(self, origin: ProgramCounter, until: int | None = None) -> Iterator[Message]:
        """Give the messages that were held for a program, and stop holding them. `until`: only
        those up to this generation."""
        return self._release(
            lambda header: header.origin == origin and (until is None or header.generation <= until)
        )

    def forget_passed(self, passed: Callable[[ProgramCounter], bool]) -> None:
        """Drop what was held for programs that this party never started and is past now."""
        list(self._release(lambda h: h.origin not in self._open and passed(h.origin)))

    def _release(self, wanted: Callable[[Header], bool]) -> Iterator[Message]:
        for number in list(self._early):
            message = self._early.get(number)
            if message is not None and wanted(message[1]):
                self._early.pop(number)
                yield message
