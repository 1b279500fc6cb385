"""Receiving: each message is checked, and then handled by its kind and program."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

from colonnade.errors import Unsuited
from colonnade.network.live.generations import LedProgram
from colonnade.network.live.lives import number_of
from colonnade.network.live.messages import (
    BEFORE,
    CALL,
    GONE,
    HEARTBEAT,
    LABELS,
    NACK,
    PARTS,
    START,
    TWICE,
    WEIGHTS,
)
from colonnade.network.live.peers import NOTHING, Past
from colonnade.network.parts import Parts
from colonnade.network.program_counter import ProgramCounter
from colonnade.network.wire import Header, WireError, decode, read_note

if TYPE_CHECKING:
    from colonnade.network.live.post import Post

NOTE = 200  # characters of a digest of weights, with its program counter
DAY = 24 * 60 * 60 * 1000  # milliseconds that clocks of different parties may differ


class Reception:
    def __init__(self, post: Post) -> None:
        self.post = post

    def receive(self, sender: str, data: bytes) -> None:
        """Handle a message of another party. A message that is invalid, or whose handling raises an
        error, is refused and counted, and this party goes on. Only `Unsuited` is raised: the two
        parties cannot work together."""
        self._guarded(sender, lambda: self._read(sender, data))

    def _read(self, sender: str, data: bytes) -> None:
        header, value = decode(data)
        self._check(sender, header)
        lives = self.post.peers[sender].lives
        if lives.counts(header.life):
            self._use(sender, header, value)
        else:
            self.post.held.hold(sender, header, value)

    def use_held(self, sender: str, header: Header) -> None:
        """Handle a message without content of a process that did not count when the message
        came."""
        self._guarded(sender, lambda: self._use(sender, header, None))

    def use_early(self, sender: str, header: Header, value: Tensor | None) -> None:
        """Handle a message of a program that this party had not started when the message came."""
        self._guarded(sender, lambda: self._take(sender, header, value))

    def _use(self, sender: str, header: Header, value: Tensor | None) -> None:
        self.post.peers[sender].heard = self.post.clock.now
        self._take(sender, header, value)

    def _guarded(self, sender: str, handle: Callable[[], None]) -> None:
        try:
            handle()
        except Unsuited:
            raise
        except WireError as error:
            self.post.refuse(sender, error.kind, error.detail)
        except Exception as error:
            self.post.refuse(sender, f"{type(error).__name__} on handling it", error)
        else:
            self.post.news.notify()

    def _check(self, sender: str, header: Header) -> None:
        """The transport admits members only. Check that the message is of this federation, and goes
        from this sender to this party."""
        if sender not in self.post.everyone.parties:
            raise WireError("it is no member: our federation file does not name it")
        if sender not in self.post.peers:
            raise WireError("it is not our neighbour")
        if header.federation != self.post.federation:
            if header.kind == HEARTBEAT and header.note:  # the greeting shows which keys differ
                self.post.on_greeting(sender, header.note)
            raise WireError("its federation file differs from ours")
        src, dst = self.post.groups.get(header.src), self.post.groups.get(header.dst)
        if src is None or dst is None:
            raise WireError("no such group", f"{header.src!r} or {header.dst!r}")
        ends = ((src, header.sender, sender), (dst, header.receiver, self.post.party))
        for group, number, party in ends:
            if number >= len(group) or group.parties[number] != party:
                raise WireError(f"not between {sender} and {self.post.party}")
        self._check_generation(header)

    def _check_generation(self, header: Header) -> None:
        """Refuse generations that lie in the future. A leader that returns takes the generation
        after the newest one that it accepts, so a leader must accept less than the others do: they
        allow a day more."""
        program = self.post.programs.find(header.origin)
        leader, known = (program.leader, program.generation) if program else ("", 0)
        limit = self.post.latest() + (0 if leader == self.post.party else DAY)
        if leader is None and header.generation != known:
            raise WireError("a generation, where nobody leads")
        if header.generation > max(known, limit):
            raise WireError(
                "of a generation to come: its clock is days ahead of ours, or ours is wrong"
            )

    def _take(self, sender: str, header: Header, value: Tensor | None) -> None:
        if header.kind == PARTS:  # holds in every generation
            self._learn_parts(sender, header.note)
        elif header.kind == LABELS:  # likewise
            self.post.on_labels(sender, header.note)
        elif header.kind == TWICE:
            if (life := number_of(header.note)) is not None:
                self.post.on_twice(sender, life)
        else:
            self._take_by_program(sender, header, value)
            if header.kind == HEARTBEAT and header.note:
                self.post.on_greeting(sender, header.note)

    def _take_by_program(self, sender: str, header: Header, value: Tensor | None) -> None:
        program, generation = self.post.programs.find(header.origin), header.generation
        ours = program is not None and program.leader == self.post.party
        if program is None:
            if not self.post.positions.reached(header.origin):
                self.post.programs.hold_early(sender, header, value)
            elif header.kind in (HEARTBEAT, NACK):  # the sender is in a program that has ended here
                self.post.beat(sender)
                if header.kind == NACK:
                    self.post.tell(sender, GONE, header.counter)
            return
        if ours and program.generation == 0:  # this leader listens before it begins
            program.newest = max(program.newest, generation)
            self.post.peers[sender].positions.advance(header.counter)
        if generation > program.generation and sender == program.leader:
            self.post.begin(program, generation)
        if generation > program.generation:
            if not ours:
                self.post.programs.hold_early(sender, header, value)
        elif generation == program.generation:
            self.sort(sender, program, header, value)
        elif header.kind in (HEARTBEAT, NACK):
            self.post.beat(sender)  # the sender has not heard of the new generation
        elif header.kind == BEFORE:  # nor of any process that took part in it
            self.post.peers[sender].learn_before(NOTHING)

    def sort(self, sender: str, program: LedProgram, header: Header, value: Tensor | None) -> None:
        """Handle a message of the present generation of its program by its kind."""
        counter = header.counter
        if header.kind == CALL:
            self.post.on_call(sender, header.note)
            return
        if header.kind == GONE:
            if counter in self.post.positions.values():  # else nobody here waits for it
                self.post.programs.of(counter).mark_gone(sender, counter)
            return
        if header.kind == BEFORE:
            self.post.peers[sender].learn_before(Past(counter, header.note[:NOTE]))
            return
        if header.kind == WEIGHTS:
            self.post.peers[sender].weights = header.note[:NOTE]
            return
        if header.kind == START and sender == program.leader:
            program.start = counter
        if sender in self.post.peers:
            self.post.peers[sender].positions.advance(counter)
        if header.kind == NACK:
            self._answer(sender, program, counter)
        elif header.kind not in (HEARTBEAT, START):
            program.mail.put(sender, header, value)

    def _learn_parts(self, sender: str, note: str) -> None:
        parts = read_note(note, Parts)
        if not set(parts.missed) <= set(self.post.everyone.parties):
            raise WireError("parts that were made without somebody who is no member")
        if not all(self.post.hears(sender, party) for party in parts.missed):
            raise WireError("parts that were made without somebody who sends it nothing")
        self.post.parts_of[sender] = parts

    def _answer(self, to: str, program: LedProgram, counter: ProgramCounter) -> None:
        """Answer a negative acknowledgement: send the messages again, or say that they are gone."""
        again = program.resend.find(counter, to)
        for data in again:
            self.post.transport.publish(to, data)
        self.post.beat(to)
        if not again and self.post.positions.reached(counter):
            self.post.tell(to, GONE, counter)
