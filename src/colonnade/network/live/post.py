"""The messages of one real party: it sends, checks what it receives, and sorts it by program.

Every exchange has a program counter, and each message tells how far its sender is. So a party that
waits for a message knows when it will not come: its sender is away, or past that program counter.
A party that waits for long sends a negative acknowledgement; the sender repeats the message from
its resend buffer, or answers that it has it no more.

Generations of leaders are in generations.py, the processes of a party in lives.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from torch import Tensor

from colonnade.errors import Unsuited
from colonnade.network.clock import SECOND, Signal
from colonnade.network.live.generations import LedProgram, Programs
from colonnade.network.live.lives import number_of
from colonnade.network.live.loudness import Loudness
from colonnade.network.live.messages import (
    CALL,
    EVERYONE,
    GONE,
    HEARTBEAT,
    NACK,
    PARTS,
    START,
    TWICE,
)
from colonnade.network.live.peers import BRANCHES, Peer
from colonnade.network.live.presence import Presence
from colonnade.network.network import World
from colonnade.network.parts import Parts, Version
from colonnade.network.program_counter import BEGINNING, MAIN, Positions, ProgramCounter
from colonnade.network.quota import Quota
from colonnade.network.tally import Tally
from colonnade.network.topology import Group
from colonnade.network.transport.transport import Transport
from colonnade.network.wire import Header, WireError, decode, encode, read_note

log = logging.getLogger(__name__)

MILLISECOND = SECOND // 1000
DAY = 24 * 60 * 60 * 1000  # milliseconds that clocks of different parties may differ


class Post:
    """The programs of the party read from it; it never waits."""

    def __init__(
        self,
        world: World,
        transport: Transport,
        *,
        leader: str | None,
        federation: str = "",
        neighbours: tuple[str, ...] | None = None,
        born: int = 0,
        grace: float = 3.0,
        quota: Quota | None = None,
    ) -> None:
        """`leader`: of the main program. `neighbours`: whom this party exchanges anything with; all
        others if not given. `born` grows with every start of this party: the time in milliseconds.
        `grace`: seconds after which, of two processes of one other party, the second is told to
        end; longer than a crash stays unnoticed. `quota`: how much of each sender's is held in
        memory."""
        self.world, self.transport, self.clock = world, transport, transport.clock
        self.party, self.federation = transport.party, federation
        self.everyone = Group(EVERYONE, world.parties, "owner")
        others = [p for p in world.parties if p != self.party]
        self.peers = {
            p: Peer(since=self.clock.now) for p in others if neighbours is None or p in neighbours
        }
        self.groups = {group.name: group for group in (*world.groups, self.everyone)}
        self.born, self._begun = born, self.clock.now
        self.quota = quota or Quota(own=self.party)
        self.programs = Programs(leader, self.quota)
        self.presence = Presence(self, int(grace * SECOND), self._use_held)
        self.news = Signal()
        self.positions = Positions(BRANCHES)  # of this party
        self._newest_generation = 0  # of any program that this party led
        self.parts = Parts()  # of the model, kept here
        self.parts_of: dict[str, Parts] = {}  # what the others said that they keep
        self.muted = False  # this party has no part of the model in use: it sends nothing
        # Those whose part of what is sent once did not come here, by the origin of the program.
        self.missed: dict[ProgramCounter, set[str]] = {}
        self.returns = 60.0  # seconds that those who are away are waited for, where it is worth it
        self.loudness = Loudness()
        self.silence = 30.0  # seconds that a party which is there may owe a message
        self.greeting = ""  # what newcomers are told
        self.on_call: Callable[[str, str], None] = lambda sender, note: None
        self.on_greeting: Callable[[str, str], None] = lambda sender, note: None
        self.on_change: Callable[[str, bool], None] = lambda party, there: None
        self.on_twice: Callable[[str, int], None] = lambda sender, life: None
        self.refusals = Tally(log)

    @property
    def refused(self) -> int:
        return self.refusals.total

    @property
    def main(self) -> LedProgram:
        return self.programs.main

    @property
    def leader(self) -> str | None:
        """Of the main program."""
        return self.main.leader

    @property
    def leads(self) -> bool:
        return self.party == self.leader

    @property
    def generation(self) -> int:
        """Of the main program's leader."""
        return self.main.generation

    def listen(self) -> None:
        """Be there, for everybody to see."""
        self.transport.listen(self.receive, self.notice, self.born)

    def notice(self, party: str, there: bool, life: int = 0) -> None:
        self.presence.notice(party, there, life)

    def present(self) -> list[str]:
        return [party for party, peer in self.peers.items() if peer.there]

    # -- programs and their generations -----------------------------------------------------------

    def open(self, origin: ProgramCounter, leader: str) -> LedProgram:
        """This party starts a program with a leader of its own, side by side with others."""
        program = self.programs.open(origin, leader)
        self.programs.forget_passed(self.positions.reached)
        for message in self.programs.early(origin):
            self._guarded(message[0], lambda message=message: self._take(*message))
        return program

    def close(self, origin: ProgramCounter) -> None:
        """That program has ended here."""
        self.programs.close(origin)
        for positions in (self.positions, *(peer.positions for peer in self.peers.values())):
            positions.forget([branch for branch in positions if branch.inside(origin)])

    def lead(self, program: LedProgram, start: ProgramCounter) -> None:
        """Begin a new generation of a program that this party leads."""
        newest = max(program.newest, self._newest_generation)
        self._newest_generation = max(newest + 1, self.born)
        self.begin(program, self._newest_generation, start)
        self.reach(start)
        for party in self.present():
            self.greet(party)

    def begin(
        self, program: LedProgram, generation: int, start: ProgramCounter | None = None
    ) -> None:
        """A new generation: what is known of the program so far is void."""
        program.begin(generation, start or program.origin.at(0, 0))
        for positions in (self.positions, *(peer.positions for peer in self.peers.values())):
            positions.forget([b for b in positions if self.programs.of(b) is program])
        for peer in self.peers.values():
            peer.told = MAIN
            peer.late = {branch for branch in peer.late if self.programs.of(branch) is not program}
        for sender, header, value in self.programs.early(program.origin, generation):
            if header.generation == generation:
                self._sort(sender, program, header, value)

    # -- sending ----------------------------------------------------------------------------------

    def post(self, header: Header, value: Tensor | None, to: str) -> None:
        """Part of an exchange."""
        program, counter = self.programs.find(header.origin), header.counter
        assert program is not None, "a message of a program that does not run here"
        if to == self.party:
            self._sort(self.party, program, header, value)
            return
        data = encode(header, value)
        if not header.register:
            program.resend.keep(counter, to, data)
        self.peers[to].told = counter
        self.transport.publish(to, data)

    def passes(self, counter: ProgramCounter, forget: bool = False) -> None:
        """See `MailRoom.passes`."""
        self.programs.of(counter).mail.passes(counter, forget)

    def reach(self, counter: ProgramCounter) -> None:
        """This party has done its part up to here."""
        self.positions.move(counter)

    def beat(self, to: str) -> None:
        """Tell how far this party is, in each of its programs."""
        for counter in list(self.positions.values()) or [BEGINNING]:
            self.peers[to].told = counter
            self.tell(to, HEARTBEAT, counter)

    def beat_all(self) -> None:
        for party in self.present():
            self.beat(party)

    def greet(self, to: str) -> None:
        """Tell a party that has just come where this one is."""
        self.tell(to, HEARTBEAT, self.positions.get(MAIN, BEGINNING), self.greeting)
        for branch, counter in self.positions.items():
            program = self.programs.of(counter)
            if branch != MAIN:
                self.tell(to, HEARTBEAT, counter)
            if program.leader == self.party and program.generation:
                self.tell(to, START, program.start)
        self.tell(to, PARTS, note=self.parts.text())

    def announce(self, parts: Parts) -> None:
        """Tell everybody which parts of the model this party keeps."""
        if parts != self.parts:
            self.parts = parts
            for party in self.present():
                self.tell(party, PARTS, note=parts.text())

    def keeps(self, party: str, version: Version) -> bool:
        """Whether a party said that it keeps its part of a version on disk."""
        parts = self.parts if party == self.party else self.parts_of.get(party, Parts())
        return parts.durable(version)

    def tell(self, to: str, kind: str, counter: ProgramCounter = BEGINNING, note: str = "") -> None:
        """Send a message that is no part of an exchange."""
        ends = (EVERYONE, self._number(self.party), EVERYONE, self._number(to))
        header = Header(counter, *ends, kind, nothing=True, note=note, **self.signature(counter))
        self.transport.publish(to, encode(header, None))

    def signature(self, counter: ProgramCounter) -> dict[str, Any]:
        """What every message carries of its sender and its program."""
        program = self.programs.of(counter)
        return {
            "federation": self.federation,
            "program": len(program.origin),
            "generation": program.generation,
            "life": self.born,
        }

    def _number(self, party: str) -> int:
        return self.everyone.parties.index(party)

    # -- receiving --------------------------------------------------------------------------------

    def receive(self, sender: str, data: bytes) -> None:
        """Every message of another party comes through here. Whatever it holds, and whatever error
        it provokes, it is refused and counted, and this party goes on; unless it shows that the
        two cannot work together."""
        self._guarded(sender, lambda: self._read(sender, data))

    def _read(self, sender: str, data: bytes) -> None:
        header, value = decode(data)
        self._check(sender, header)
        lives = self.peers[sender].lives
        if lives.counts(header.life):
            self._use(sender, header, value)
        else:
            lives.hold(header, value)

    def _use_held(self, sender: str, header: Header) -> None:
        self._guarded(sender, lambda: self._use(sender, header, None))

    def _use(self, sender: str, header: Header, value: Tensor | None) -> None:
        self.peers[sender].heard = self.clock.now
        self._take(sender, header, value)

    def _guarded(self, sender: str, handle: Callable[[], None]) -> None:
        try:
            handle()
        except Unsuited:
            raise
        except WireError as error:
            self.refuse(sender, error.kind, error.detail)
        except Exception as error:
            self.refuse(sender, f"{type(error).__name__} on handling it", error)
        else:
            self.news.notify()

    def refuse(self, sender: str, kind: str, detail: object = "") -> None:
        """Count it, and say so once for each kind. The kind is our own text, not the sender's."""
        self.refusals.add(sender, f"refused a message: {kind}", detail)

    def latest(self) -> int:
        """The highest number that another party's clock may have given by now, in milliseconds.
        A generation or a call with a higher one is forged, or one of the clocks is wrong."""
        return self.born + (self.clock.now - self._begun) // MILLISECOND + DAY

    def _check(self, sender: str, header: Header) -> None:
        """Whoever could send this at all is a member; is the message one of theirs, and to me?"""
        if sender not in self.peers:
            raise WireError("it is not our neighbour")
        if header.federation != self.federation:
            if header.note:  # a greeting can tell what differs
                self.on_greeting(sender, header.note)
            raise WireError("its federation file differs from ours")
        src, dst = self.groups.get(header.src), self.groups.get(header.dst)
        if src is None or dst is None:
            raise WireError("no such group", f"{header.src!r} or {header.dst!r}")
        ends = ((src, header.sender, sender), (dst, header.receiver, self.party))
        for group, number, party in ends:
            if number >= len(group) or group.parties[number] != party:
                raise WireError(f"not between {sender} and {self.party}")
        self._check_generation(header)

    def _check_generation(self, header: Header) -> None:
        """A leader that returns takes the next generation after the newest it hears of, so it must
        not hear of one that the others would refuse: they allow a day more."""
        program = self.programs.find(header.origin)
        leader, known = (program.leader, program.generation) if program else ("", 0)
        limit = self.latest() + (0 if leader == self.party else DAY)
        if leader is None and header.generation != known:
            raise WireError("a generation, where nobody leads")
        if header.generation > max(known, limit):
            raise WireError(
                "of a generation to come: its clock is days ahead of ours, or ours is wrong"
            )

    def _take(self, sender: str, header: Header, value: Tensor | None) -> None:
        if header.kind == PARTS:  # true in every generation
            self._learn_parts(sender, header.note)
        elif header.kind == TWICE:
            if (life := number_of(header.note)) is not None:
                self.on_twice(sender, life)
        else:
            self._take_by_program(sender, header, value)
            if header.kind == HEARTBEAT and header.note:
                self.on_greeting(sender, header.note)

    def _take_by_program(self, sender: str, header: Header, value: Tensor | None) -> None:
        program, generation = self.programs.find(header.origin), header.generation
        ours = program is not None and program.leader == self.party
        if program is None:
            if not self.positions.reached(header.origin):
                self.programs.wait_for_generation(sender, header, value)
            elif header.kind in (HEARTBEAT, NACK):  # it is in a program that has ended here
                self.beat(sender)
                if header.kind == NACK:
                    self.tell(sender, GONE, header.counter)
            return
        if ours and program.generation == 0:  # looking round before beginning
            program.newest = max(program.newest, generation)
            self.peers[sender].positions.advance(header.counter)
        if generation > program.generation and sender == program.leader:
            self.begin(program, generation)
        if generation > program.generation:
            if not ours:
                self.programs.wait_for_generation(sender, header, value)
        elif generation == program.generation:
            self._sort(sender, program, header, value)
        elif header.kind in (HEARTBEAT, NACK):
            self.beat(sender)  # it has not heard of the new generation

    def _sort(self, sender: str, program: LedProgram, header: Header, value: Tensor | None) -> None:
        counter = header.counter
        if header.kind == CALL:
            self.on_call(sender, header.note)
            return
        if header.kind == GONE:
            if counter in self.positions.values():  # else nobody here waits for it
                self.programs.of(counter).lost(sender, counter)
            return
        if header.kind == START and sender == program.leader:
            program.start = counter
        if sender in self.peers:
            self.peers[sender].positions.advance(counter)
        if header.kind == NACK:
            self._answer(sender, program, counter)
        elif header.kind not in (HEARTBEAT, START):
            program.mail.put(sender, header, value)

    def _learn_parts(self, sender: str, note: str) -> None:
        parts = read_note(note, Parts)
        if not set(parts.missed) <= set(self.everyone.parties):
            raise WireError("parts that were made without somebody who is no member")
        self.parts_of[sender] = parts

    def _answer(self, to: str, program: LedProgram, counter: ProgramCounter) -> None:
        """A party waits for what this one sent in an exchange."""
        again = program.resend.find(counter, to)
        for data in again:
            self.transport.publish(to, data)
        self.beat(to)
        if not again and self.positions.reached(counter):
            self.tell(to, GONE, counter)
