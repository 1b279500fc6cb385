"""What one real party knows of the others, and what they sent it.

Every exchange has a *place* in the choreography (rounds and steps, outermost first), and places
have an order. Each message tells how far its sender is. So a party that waits for a message knows
when it will not come: its sender is away, or past that place. Whoever waits for long asks; who is
asked sends again what it still has, or says that it has it no more.

The leader (the label holder) begins a new *era* whenever it starts; messages of an older era are
void. Where all are equal there is one era. Of two processes of one party, one counts (`lives.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from torch import Tensor

from colonnade.network.clock import SECOND, Signal
from colonnade.network.lives import Lives, number_of
from colonnade.network.loudness import Loudness
from colonnade.network.network import Place, World
from colonnade.network.parts import Parts, Version
from colonnade.network.topology import Group
from colonnade.network.transport.transport import Transport
from colonnade.network.wire import Header, WireError, decode, encode

log = logging.getLogger(__name__)

END = 1 << 60  # the round after the last
EVERYONE = "everyone"
# Messages that are no part of an exchange. BEAT: how far the sender is. ASK: the sender waits at
# this place and asks for the receiver's message. LACK: the sender no longer has that message.
# START: where this era began. CALL: a request to everybody. PARTS: which versions of the model the
# sender keeps. TWICE: the receiver's party has two processes, and the note says which life of it
# the sender listens to.
BEAT, ASK, LACK, START, CALL, PARTS = "beat", "ask", "lack", "start", "call", "parts"
TWICE = "twice"
KEPT = 8  # exchanges of which a party can send its messages again
UNREAD = 64  # letters of one sender that are kept for exchanges to come
BOXES = 16  # registers of one sender
BRANCHES = 256  # programs that a party may have side by side
EARLY = 1024  # messages of an era that is not known yet
VERSIONS = 4  # of a register, so that a sender may be a little ahead

Letter = tuple[Place, str, int, str, int]  # place, source, sender, destination, receiver
Box = tuple[str, int, str, int, str]  # source, sender, destination, receiver, kind


def reached(front: Place, place: Place) -> bool:
    """Whether who is at `front` has done its part of the exchange at `place`. Programs that run
    side by side have no order; they are marked by negative numbers."""
    for mine, wanted in zip(front, place, strict=False):
        if mine != wanted:
            return mine > wanted and mine >= 0 and wanted >= 0
    return len(front) >= len(place)


def branch(place: Place) -> Place:
    """Which of the programs that run side by side this is in; () where there is one."""
    last = max((i for i, number in enumerate(place) if number < 0), default=-1)
    return place[: last + 1]


@dataclass
class Peer:
    """What is known of another party."""

    there: bool = False
    since: int = 0  # nanoseconds: when it came or left
    late: bool = False  # there, but others do not wait for it until it has caught up
    strikes: int = 0  # how often it owed a message for too long
    heard: int = 0  # nanoseconds: when it last said something that could be used
    fronts: dict[Place, Place] = field(default_factory=dict)  # how far it is, by branch
    told: Place = ()  # how far it knows me to be
    lives: Lives = field(default_factory=Lives)

    def reached(self, place: Place) -> bool:
        return any(reached(front, place) for front in self.fronts.values())

    def advance(self, place: Place) -> None:
        line = branch(place)
        if len(self.fronts) >= BRANCHES and line not in self.fronts:
            return
        if not reached(self.fronts.get(line, ()), place):
            self.fronts[line] = place


class Post:
    """Sends, receives and sorts messages. Its programs read from it; it never waits."""

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
    ) -> None:
        """`neighbours`: whom this party exchanges anything with; all others if not given. `born`
        grows with every start of this party. `grace`: seconds after which, of two processes of one
        other party, the second is told to end; longer than a crash stays unnoticed."""
        self.world, self.transport, self.clock = world, transport, transport.clock
        self.party, self.leader, self.federation = transport.party, leader, federation
        self.everyone = Group(EVERYONE, world.parties, "owner")
        others = [p for p in world.parties if p != self.party]
        self.peers = {
            p: Peer(since=self.clock.now) for p in others if neighbours is None or p in neighbours
        }
        self.groups = {group.name: group for group in (*world.groups, self.everyone)}
        self.born, self.grace = born, int(grace * SECOND)
        self.era = self.newest_era = 0 if leader else 1
        self.start: Place = (0, 0)  # where the era began
        self.news = Signal()
        self.where: dict[Place, Place] = {}  # how far this party is, by branch
        self.letters: dict[Letter, Tensor | None] = {}  # None: "nothing to say"
        self.registers: dict[Box, list[tuple[Place, Tensor]]] = {}
        self.written: dict[Box, Place] = {}  # the place of the newest
        self.lacking: dict[tuple[str, Place], bool] = {}  # what a party said it has no more
        self.passed: dict[Place, Place] = {}  # by branch: letters of earlier places are void
        self.kept: dict[Place, list[tuple[str, bytes]]] = {}  # sent lately: to whom, what
        self.early: list[tuple[str, Header, Tensor | None]] = []  # of an era not heard of yet
        self.parts = Parts()  # of the model, kept here
        self.parts_of: dict[str, Parts] = {}  # what the others said that they keep
        self.muted = False  # this party has no part of the model in use: it sends nothing
        self.missed: set[str] = set()  # those whose part of what is sent once did not come here
        self.returns = 60.0  # seconds that those who are away are waited for, where it is worth it
        self.loudness = Loudness()
        self.silence = 30.0  # seconds that a party which is there may owe a message
        self.greeting = ""  # what newcomers are told
        self.on_call: Callable[[str, str], None] = lambda sender, note: None
        self.on_greeting: Callable[[str, str], None] = lambda sender, note: None
        self.on_change: Callable[[str, bool], None] = lambda party, there: None
        self.on_twice: Callable[[str, int], None] = lambda sender, life: None
        self.refused = 0

    @property
    def leads(self) -> bool:
        return self.party == self.leader

    def listen(self) -> None:
        """Be there, for everybody to see."""
        self.transport.listen(self.receive, self.notice, self.born)

    def present(self) -> list[str]:
        return [party for party, peer in self.peers.items() if peer.there]

    # -- sending ----------------------------------------------------------------------------------

    def post(self, header: Header, value: Tensor | None, to: str) -> None:
        """Part of an exchange."""
        if to == self.party:
            self._sort(self.party, header, value)
            return
        data = encode(header, value)
        if not header.register:
            self._keep(header.place, to, data)
        self.peers[to].told = header.place
        self.transport.publish(to, data)

    def reach(self, place: Place) -> None:
        """This party has done its part up to here."""
        self.where[branch(place)] = place

    def beat(self, to: str) -> None:
        """Tell how far this party is."""
        for place in list(self.where.values()) or [(0, 0)]:
            self.peers[to].told = place
            self.tell(to, BEAT, place)

    def greet(self, to: str) -> None:
        self.tell(to, BEAT, self.where.get((), (0, 0)), self.greeting)
        if self.leads and self.era:
            self.tell(to, START, self.start)
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

    def tell(self, to: str, kind: str, place: Place = (0, 0), note: str = "") -> None:
        ends = (EVERYONE, self._number(self.party), EVERYONE, self._number(to))
        header = Header(
            "post",
            place,
            *ends,
            kind,
            nothing=True,
            federation=self.federation,
            era=self.era,
            life=self.born,
            note=note,
        )
        self.transport.publish(to, encode(header, None))

    def _keep(self, place: Place, to: str, data: bytes) -> None:
        if place not in self.kept:
            self.kept[place] = []
            while len(self.kept) > KEPT:
                del self.kept[next(iter(self.kept))]
        self.kept[place].append((to, data))

    def _number(self, party: str) -> int:
        return self.everyone.parties.index(party)

    # -- receiving --------------------------------------------------------------------------------

    def notice(self, party: str, there: bool, life: int = 0) -> None:
        """A process of another party came or left."""
        if party not in self.peers:
            return
        lives = self.peers[party].lives
        before = lives.current
        lives.change(life, there)
        if lives.current == before:
            if there and life in lives.present[1:]:
                self._doubt(party, life)
            return
        if before is not None:
            self._change(party, False)
        if lives.current is not None:
            self._change(party, True)
            for header in lives.release():
                self._use(party, header, None)

    def _doubt(self, party: str, life: int) -> None:
        """A second process of a party: started again before the end of the first was noticed, or
        beside it. Time will tell."""
        lives = self.peers[party].lives
        if life not in lives.doubted:
            lives.doubted.add(life)
            self.clock.call_at(self.clock.now + self.grace, lambda: self._refuse_life(party, life))

    def _refuse_life(self, party: str, life: int) -> None:
        """Tell both processes, unless one of them has left; again, should the second stay."""
        lives = self.peers[party].lives
        lives.doubted.discard(life)
        if life not in lives.present[1:]:
            return
        if life not in lives.refused:
            lives.refused.add(life)
            log.warning(
                "%s: a second process has its certificate; going on with the first one only", party
            )
        self.tell(party, TWICE, note=str(lives.current))
        self._doubt(party, life)

    def _change(self, party: str, there: bool) -> None:
        peer = self.peers[party]
        peer.there, peer.since, peer.late = there, self.clock.now, False
        peer.fronts.clear()
        peer.told = ()
        if there:
            self.greet(party)
        self.on_change(party, there)
        self.news.notify()

    def receive(self, sender: str, data: bytes) -> None:
        try:
            header, value = decode(data)
            self._check(sender, header)
        except WireError as error:
            self.refuse(sender, str(error))
            return
        if self.peers[sender].lives.counts(header.life):
            self._use(sender, header, value)
        else:
            self.peers[sender].lives.hold(header, value)

    def _use(self, sender: str, header: Header, value: Tensor | None) -> None:
        self.peers[sender].heard = self.clock.now
        self._take(sender, header, value)
        self.news.notify()

    def refuse(self, sender: str, reason: str) -> None:
        """Say so, but do not let anybody fill the log."""
        self.refused += 1
        if self.refused <= 10 or self.refused % 1000 == 0:
            log.warning(
                "refused a message of %s: %s (%d so far)", sender, reason[:200], self.refused
            )

    def _check(self, sender: str, header: Header) -> None:
        """Whoever could send this at all is a member; is the message one of theirs, and to me?"""
        if sender not in self.peers:
            raise WireError("from somebody who is not our neighbour")
        if header.federation != self.federation:
            if header.note:  # a greeting can tell what differs
                self.on_greeting(sender, header.note)
            raise WireError("its federation file differs from ours")
        src, dst = self.groups.get(header.src), self.groups.get(header.dst)
        if src is None or dst is None:
            raise WireError(f"no group {header.src!r} or {header.dst!r}")
        ends = ((src, header.sender, sender), (dst, header.receiver, self.party))
        for group, number, party in ends:
            if number >= len(group) or group.parties[number] != party:
                raise WireError(f"not between {sender} and {self.party}")

    def _take(self, sender: str, header: Header, value: Tensor | None) -> None:
        if header.kind == PARTS:  # true in every era
            self._learn_parts(sender, header.note)
            return
        if header.kind == TWICE:
            if (life := number_of(header.note)) is not None:
                self.on_twice(sender, life)
            return
        if self.leads and self.era == 0:  # looking round before beginning
            self.newest_era = max(self.newest_era, header.era)
            self.peers[sender].advance(header.place)
        if header.era > self.era and sender == self.leader:
            self.begin_era(header.era)
        if header.era > self.era:
            if not self.leads and len(self.early) < EARLY:
                self.early.append((sender, header, value))
        elif header.era == self.era:
            self._sort(sender, header, value)
        elif header.kind in (BEAT, ASK):
            self.beat(sender)  # somebody has not heard of the new era
        if header.kind == BEAT and header.note:
            self.on_greeting(sender, header.note)

    def begin_era(self, era: int, start: Place = (0, 0)) -> None:
        """All is void that was said before, but what registers hold."""
        self.era, self.newest_era, self.start = era, max(era, self.newest_era), start
        for known in (self.letters, self.lacking, self.passed, self.kept, self.where, self.written):
            known.clear()
        for peer in self.peers.values():
            peer.fronts.clear()
            peer.told, peer.late = (), False
        for box, values in self.registers.items():
            self.registers[box] = [((), value) for _, value in values[-1:]]
        early, self.early = self.early, []
        for sender, header, value in early:
            if header.era == era:
                self._sort(sender, header, value)
            elif header.era > era:
                self.early.append((sender, header, value))

    def _sort(self, sender: str, header: Header, value: Tensor | None) -> None:
        if header.kind == CALL:
            self.on_call(sender, header.note)
            return
        if header.kind == LACK:
            self.lacking[sender, header.place] = True
            return
        if header.kind == START and sender == self.leader:
            self.start = header.place
        if sender in self.peers:
            self.peers[sender].advance(header.place)
        if header.kind == ASK:
            self._answer(sender, header.place)
        elif header.kind not in (BEAT, START):
            self._store(header, value)

    def _learn_parts(self, sender: str, note: str) -> None:
        try:
            self.parts_of[sender] = Parts.read(note)
        except msgspec.MsgspecError as error:
            self.refuse(sender, str(error))

    def _answer(self, to: str, place: Place) -> None:
        """Somebody waits for what this party sent at a place."""
        again = [data for party, data in self.kept.get(place, ()) if party == to]
        for data in again:
            self.transport.publish(to, data)
        self.beat(to)
        if not again and any(reached(mine, place) for mine in self.where.values()):
            self.tell(to, LACK, place)

    def _store(self, header: Header, value: Tensor | None) -> None:
        h = header
        if h.register:
            box = (h.src, h.sender, h.dst, h.receiver, h.kind)
            if value is None or h.place <= self.written.get(box, ()):  # an older one came later
                return
            if box not in self.registers and self._boxes_of(h.src, h.sender) >= BOXES:
                return
            self.written[box] = h.place
            versions = self.registers.setdefault(box, [])
            versions.append((h.place, value))
            del versions[:-VERSIONS]
        elif not any(reached(passed, h.place) for passed in self.passed.values()):
            self.letters[h.place, h.src, h.sender, h.dst, h.receiver] = value
            if len(self.letters) > UNREAD:
                self._forget_furthest(h.src, h.sender)

    def _boxes_of(self, src: str, sender: int) -> int:
        return sum(box[:2] == (src, sender) for box in self.registers)

    def _forget_furthest(self, src: str, sender: int) -> None:
        """Nobody fills the memory with letters for times to come."""
        mine = [key for key in self.letters if key[1:3] == (src, sender)]
        if len(mine) > UNREAD:
            del self.letters[max(mine)]

    # -- reading ----------------------------------------------------------------------------------

    def passes(self, place: Place) -> None:
        """What comes for this place from now on is too late."""
        self.passed[branch(place)] = place
        if len(self.letters) > UNREAD:
            # not those of this very place: they are about to be read
            old = [key for key in self.letters if key[0] != place and reached(place, key[0])]
            for key in old:
                del self.letters[key]
        if len(self.lacking) > EARLY:
            self.lacking.clear()

    def read_register(self, box: Box, place: Place) -> Tensor | None:
        """The newest value that is not from a place to come; the newest at all if there is only
        such."""
        versions = self.registers.get(box, [])
        if not versions:
            return None
        ready = [i for i, (written, _) in enumerate(versions) if written <= place]
        chosen = ready[-1] if ready else len(versions) - 1
        value = versions[chosen][1]
        del versions[: chosen + 1]
        return value
