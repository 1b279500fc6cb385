"""The messages of one real party: those it sends, and what it knows from those it received.

Every exchange has a program counter, and each message tells the position of its sender. So a party
that waits for a message knows when it will not come: its sender is away, or past that program
counter. A party that waits for long sends a negative acknowledgement; the sender repeats the
message from its resend buffer, or answers that the message is gone.

Receiving is in reception.py, generations of leaders in generations.py, the processes of a party in
lives.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from torch import Tensor

from colonnade.network.clock import SECOND, Signal
from colonnade.network.live.generations import LedProgram, Programs
from colonnade.network.live.lives import Held
from colonnade.network.live.loudness import Loudness
from colonnade.network.live.messages import (
    BEFORE,
    EVERYONE,
    HEARTBEAT,
    LABELS,
    PARTS,
    START,
)
from colonnade.network.live.peers import BRANCHES, NOTHING, Peer
from colonnade.network.live.presence import Presence
from colonnade.network.live.reception import DAY, Reception
from colonnade.network.parts import Parts, Version
from colonnade.network.program_counter import BEGINNING, MAIN, Positions, ProgramCounter
from colonnade.network.quota import Quota
from colonnade.network.tally import Tally
from colonnade.network.topology import Group
from colonnade.network.transport.transport import Transport
from colonnade.network.wire import Header, encode
from colonnade.network.world import World

log = logging.getLogger(__name__)

MILLISECOND = SECOND // 1000


class Post:
    """Sends and receives the messages of one party, for all of its programs. No method waits."""

    def __init__(
        self,
        world: World,
        transport: Transport,
        *,
        leader: str | None,
        federation: str = "",
        neighbours: tuple[str, ...] | None = None,
        life: int = 0,
        grace: float = 3.0,
        quota: Quota | None = None,
    ) -> None:
        """`leader`: of the main program. `neighbours`: the parties with which this one exchanges
        messages; all others if not given. `life` grows with every start of this party's process:
        it is the time of the start in milliseconds.
        `grace`: seconds after which, of two processes of
        one other party, the second is told to end; it must be longer than a crash stays unnoticed.
        `quota`: how many bytes of each sender's messages are held in memory."""
        self.world, self.transport, self.clock = world, transport, transport.clock
        self.party, self.federation = transport.party, federation
        self.everyone = Group(EVERYONE, world.parties, "owner")
        others = [p for p in world.parties if p != self.party]
        self.peers = {
            p: Peer(since=self.clock.now) for p in others if neighbours is None or p in neighbours
        }
        self.groups = {group.name: group for group in (*world.groups, self.everyone)}
        self.life, self._begun = life, self.clock.now
        self.quota = quota or Quota(own=self.party)
        self.programs = Programs(leader, self.quota)
        self.held = Held(self.quota)
        self.reception = Reception(self)
        self.presence = Presence(self, int(grace * SECOND), self.reception.use_held)
        self.news = Signal()
        self.positions = Positions(BRANCHES)  # of this party
        # In the main program: how far this process was, in this generation, when it last went back
        # to the leader's round, and how many rounds the others had done when this process joined.
        self.before, self.joined_at = NOTHING, 0
        self.weights = ""  # this party's newest digest; see messages.py
        self._newest_generation = 0  # of any program that this party led
        self.parts = Parts()  # which parts of the model this party keeps
        self.parts_of: dict[str, Parts] = {}  # which parts the others said that they keep
        self.muted = False  # this party has no part of the model in use: it sends nothing
        # Parties from which a message that is sent once did not come, by the origin of the program.
        self.missed: dict[ProgramCounter, set[str]] = {}
        self.returns = 60.0  # seconds for which a party that is away may be waited for
        self.loudness = Loudness()
        self.silence = 30.0  # seconds that a party which is there may owe a message
        self.greeting = ""  # what newcomers are told
        self.labels_for: Callable[[str], str] = lambda party: ""  # told to them first
        # Whether a receiver is sent anything by a sender in the program of the federation.
        self.hears: Callable[[str, str], bool] = lambda receiver, sender: True
        self.knows: Callable[[str], bool] = lambda party: True  # what it takes to follow a party
        self.on_call: Callable[[str, str], None] = lambda sender, note: None
        self.on_greeting: Callable[[str, str], None] = lambda sender, note: None
        self.on_change: Callable[[str, bool], None] = lambda party, there: None
        self.on_twice: Callable[[str, int], None] = lambda sender, life: None
        self.on_labels: Callable[[str, str], None] = lambda sender, note: None
        self.refusals = Tally(log)
        self.left_behind = Tally(log)  # parties that were not waited for although they are there

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
        """Connect: from now on the others see this party, and messages are received."""
        self.transport.listen(self.receive, self.notice, self.life)

    def notice(self, party: str, there: bool, life: int = 0) -> None:
        self.presence.notice(party, there, life)

    def present(self) -> list[str]:
        """The neighbours that are there."""
        return [party for party, peer in self.peers.items() if peer.there]

    # -- programs and their generations -----------------------------------------------------------

    def open(
        self, origin: ProgramCounter, leader: str, parties: tuple[str, ...] | None = None
    ) -> LedProgram:
        """This party starts a program with a leader of its own, side by side with others.
        `parties`: those that have a part in it, if not all."""
        program = self.programs.open(origin, leader, parties)
        self.programs.forget_passed(self.positions.reached)
        for message in self.programs.release_early(origin):
            self.reception.use_early(*message)
        return program

    def close(self, origin: ProgramCounter) -> None:
        """The program has ended at this party."""
        self.programs.close(origin)
        for positions in (self.positions, *(peer.positions for peer in self.peers.values())):
            positions.forget([branch for branch in positions if branch.inside(origin)])

    def lead(self, program: LedProgram, start: ProgramCounter) -> None:
        """Begin a new generation of a program that this party leads."""
        newest = max(program.newest, self._newest_generation)
        self._newest_generation = max(newest + 1, self.life)
        self.begin(program, self._newest_generation, start)
        self.reach(start)
        for party in self.present():
            self.greet(party)

    def begin(
        self, program: LedProgram, generation: int, start: ProgramCounter | None = None
    ) -> None:
        """The leader of a program has begun a new generation: what is known of it so far is
        void."""
        if program is self.main:
            self.before, self.weights = NOTHING, ""
            for peer in self.peers.values():
                peer.begin_generation(first=program.generation == 0)
        program.begin(generation, start or program.origin.at(0, 0))
        for positions in (self.positions, *(peer.positions for peer in self.peers.values())):
            positions.forget([b for b in positions if self.programs.of(b) is program])
        for peer in self.peers.values():
            peer.told = MAIN
            peer.late = {
                branch: owed
                for branch, owed in peer.late.items()
                if self.programs.of(branch) is not program
            }
        for sender, header, value in self.programs.release_early(program.origin, generation):
            if header.generation == generation:
                self.reception.sort(sender, program, header, value)

    # -- sending ----------------------------------------------------------------------------------

    def post(self, header: Header, value: Tensor | None, to: str) -> None:
        """Send one message of an exchange, which may be one to this party itself."""
        program, counter = self.programs.find(header.origin), header.counter
        assert program is not None, "a message of a program that does not run here"
        if to == self.party:
            self.reception.sort(self.party, program, header, value)
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
        """Send heartbeats: the position of this party in each of its programs."""
        for counter in list(self.positions.values()) or [BEGINNING]:
            if self.programs.of(counter).is_for(to):
                self.peers[to].told = counter
                self.tell(to, HEARTBEAT, counter)

    def beat_all(self) -> None:
        for party in self.present():
            self.beat(party)

    def greet(self, to: str) -> None:
        """Tell a party that has just come where this one is."""
        if labels := self.labels_for(to):
            self.tell(to, LABELS, note=labels)
        self.tell(to, HEARTBEAT, self.positions.get(MAIN, BEGINNING), self.greeting)
        before = self.peers[to].before
        self.tell(to, BEFORE, before.position, before.weights)
        for branch, counter in self.positions.items():
            program = self.programs.of(counter)
            if not program.is_for(to):
                continue
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
        """Send a message that belongs to no exchange (messages.py)."""
        ends = (EVERYONE, self._number(self.party), EVERYONE, self._number(to))
        header = Header(counter, *ends, kind, nothing=True, note=note, **self.signature(counter))
        self.transport.publish(to, encode(header, None))

    def signature(self, counter: ProgramCounter) -> dict[str, Any]:
        """The fields of a header that say who sends, in which program and generation."""
        program = self.programs.of(counter)
        return {
            "federation": self.federation,
            "program": len(program.origin),
            "generation": program.generation,
            "life": self.life,
        }

    def _number(self, party: str) -> int:
        return self.everyone.parties.index(party)

    # -- receiving: see reception.py --------------------------------------------------------------

    def receive(self, sender: str, data: bytes) -> None:
        self.reception.receive(sender, data)

    def refuse(self, sender: str, kind: str, detail: object = "") -> None:
        """Count a refused message, and log the first one of each kind. `kind` is our own text,
        never the sender's."""
        self.refusals.add(sender, f"refused a message: {kind}", detail)

    def latest(self) -> int:
        """The highest number that another party's clock may have given by now, in milliseconds.
        A generation or a call with a higher one is forged, or one of the clocks is wrong."""
        return self.life + (self.clock.now - self._begun) // MILLISECOND + DAY
