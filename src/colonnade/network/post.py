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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from colonnade.errors import Unsuited
from colonnade.network.clock import SECOND, Signal
from colonnade.network.lives import Lives, number_of
from colonnade.network.loudness import Loudness
from colonnade.network.network import Place, World
from colonnade.network.parts import Parts, Version
from colonnade.network.quota import Quota, Store, weight
from colonnade.network.tally import Tally
from colonnade.network.topology import Group
from colonnade.network.transport.transport import Transport
from colonnade.network.wire import Header, WireError, decode, encode, read_note

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
EARLY = 256  # messages of one sender, of an era that is not known yet
LACKS = 1024  # places of which others said that they have their messages no more
MILLISECOND = SECOND // 1000
DAY = 24 * 60 * 60 * 1000  # milliseconds that clocks of different parties may differ
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
        quota: Quota | None = None,
    ) -> None:
        """`neighbours`: whom this party exchanges anything with; all others if not given. `born`
        grows with every start of this party: the time in milliseconds. `grace`: seconds after
        which, of two processes of one other party, the second is told to end; longer than a crash
        stays unnoticed. `quota`: how much of each sender's is held in memory."""
        self.world, self.transport, self.clock = world, transport, transport.clock
        self.party, self.leader, self.federation = transport.party, leader, federation
        self.everyone = Group(EVERYONE, world.parties, "owner")
        others = [p for p in world.parties if p != self.party]
        self.peers = {
            p: Peer(since=self.clock.now) for p in others if neighbours is None or p in neighbours
        }
        self.groups = {group.name: group for group in (*world.groups, self.everyone)}
        self.born, self.grace, self._begun = born, int(grace * SECOND), self.clock.now
        self.quota = quota or Quota(own=self.party)
        self.era = self.newest_era = 0 if leader else 1
        self.start: Place = (0, 0)  # where the era began
        self.news = Signal()
        self.where: dict[Place, Place] = {}  # how far this party is, by branch
        self.letters: Store[Letter, Tensor | None] = Store(self.quota)  # None: "nothing to say"
        self.registers: Store[Box, list[tuple[Place, Tensor]]] = Store(self.quota)
        self.written: dict[Box, Place] = {}  # the place of the newest
        self.lacking: dict[tuple[str, Place], bool] = {}  # what a party said it has no more
        self.passed: dict[Place, Place] = {}  # by branch: letters of earlier places are void
        self.kept: dict[Place, list[tuple[str, bytes]]] = {}  # sent lately: to whom, what
        # Of an era not heard of yet, in the order in which they came.
        self.early: Store[int, tuple[str, Header, Tensor | None]] = Store(self.quota)
        self._came = 0
        self.parts = Parts()  # of the model, kept here
        self.parts_of: dict[str, Parts] = {}  # what the others said that they keep
        self.muted = False  # this party has no part of the model in use: it sends nothing
        # Those whose part of what is sent once did not come here, by the place of the loop.
        self.missed: dict[Place, set[str]] = {}
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
                self._guarded(party, lambda header=header: self._use(party, header, None))

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
        An era or a call with a higher one is forged, or one of the clocks is wrong."""
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
        self._check_era(header.era)

    def _check_era(self, era: int) -> None:
        """A leader that returns takes the next era after the newest it hears of, so it must not
        hear of one that the others would refuse: they allow a day more."""
        limit = self.latest() + (0 if self.leads else DAY)
        if self.leader is None and era != self.era:
            raise WireError("an era, where nobody leads")
        if era > max(self.era, limit):
            raise WireError("of an era to come: its clock is days ahead of ours, or ours is wrong")

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
            if not self.leads:
                self._keep_early(sender, header, value)
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
        for box in self.registers:
            newest = [((), value) for _, value in self.registers.get(box, [])[-1:]]
            self.registers.shrink(box, newest, _sizes(newest))
        for number in [n for n in self.early if self._early_era(n) <= era]:
            early = self.early.pop(number)
            if early is not None and early[1].era == era:
                self._sort(*early)

    def _keep_early(self, sender: str, header: Header, value: Tensor | None) -> None:
        self._came += 1
        size, message = weight(value, header.note), (sender, header, value)
        full = len(self.early) >= EARLY and len(self.early.of(sender)) >= EARLY
        if full or not self.early.put(self._came, message, sender, size):
            self.quota.drop(sender)

    def _early_era(self, number: int) -> int:
        early = self.early.get(number)
        return 0 if early is None else early[1].era

    def _sort(self, sender: str, header: Header, value: Tensor | None) -> None:
        if header.kind == CALL:
            self.on_call(sender, header.note)
            return
        if header.kind == LACK:
            if header.place in self.where.values():  # else nobody here waits for it
                self.lacking[sender, header.place] = True
            return
        if header.kind == START and sender == self.leader:
            self.start = header.place
        if sender in self.peers:
            self.peers[sender].advance(header.place)
        if header.kind == ASK:
            self._answer(sender, header.place)
        elif header.kind not in (BEAT, START):
            self._store(sender, header, value)

    def _learn_parts(self, sender: str, note: str) -> None:
        parts = read_note(note, Parts)
        if not set(parts.missed) <= set(self.everyone.parties):
            raise WireError("parts that were made without somebody who is no member")
        self.parts_of[sender] = parts

    def _answer(self, to: str, place: Place) -> None:
        """Somebody waits for what this party sent at a place."""
        again = [data for party, data in self.kept.get(place, ()) if party == to]
        for data in again:
            self.transport.publish(to, data)
        self.beat(to)
        if not again and any(reached(mine, place) for mine in self.where.values()):
            self.tell(to, LACK, place)

    def _store(self, sender: str, header: Header, value: Tensor | None) -> None:
        h = header
        if h.register:
            self._store_register(sender, (h.src, h.sender, h.dst, h.receiver, h.kind), h, value)
        elif not any(reached(passed, h.place) for passed in self.passed.values()):
            self._store_letter(sender, (h.place, h.src, h.sender, h.dst, h.receiver), value)

    def _store_register(self, sender: str, box: Box, header: Header, value: Tensor | None) -> None:
        place = header.place
        if value is None or place <= self.written.get(box, ()):  # an older one came later
            return
        if box not in self.registers and self._boxes_of(*box[:2]) >= BOXES:
            return
        versions = [*self.registers.get(box, []), (place, value)][-VERSIONS:]
        if self.registers.put(box, versions, sender, _sizes(versions)):
            self.written[box] = place
        else:
            self.quota.drop(sender)

    def _boxes_of(self, src: str, sender: int) -> int:
        return sum(box[:2] == (src, sender) for box in self.registers)

    def _store_letter(self, sender: str, key: Letter, value: Tensor | None) -> None:
        """Nobody fills the memory with letters for times to come: where there is no room, those
        that are furthest ahead are dropped."""
        size = weight(value)
        while not self.letters.put(key, value, sender, size):
            self.quota.drop(sender)
            furthest = max(self.letters.of(sender), default=key)
            if furthest <= key:
                return
            self.letters.pop(furthest)
        if len(self.letters) > UNREAD:
            mine = [other for other in self.letters if other[1:3] == key[1:3]]
            if len(mine) > UNREAD:
                self.letters.pop(max(mine))

    # -- reading ----------------------------------------------------------------------------------

    def passes(self, place: Place, forget: bool = False) -> None:
        """What comes for this place from now on is too late. `forget`: also what came for it."""
        self.passed[branch(place)] = place
        if forget or len(self.letters) > UNREAD:
            # not those of this very place: they are about to be read
            old = [key for key in self.letters if key[0] != place and reached(place, key[0])]
            for key in old:
                self.letters.pop(key)
        if len(self.lacking) > LACKS:
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
        self.registers.shrink(box, versions[chosen + 1 :], _sizes(versions[chosen + 1 :]))
        return value


def _sizes(versions: Sequence[tuple[Place, Tensor]]) -> int:
    return sum(weight(value) for _, value in versions)
