"""A party that joins a federation and trains with the others. It keeps its state as it goes, so
that it goes on after a crash.

It knows nothing of processes, certificates and terminals: the same code runs over Zenoh and, under
test, through storms in virtual time.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from pathlib import Path

from colonnade.common.results import Result
from colonnade.errors import Unsuited
from colonnade.federation.agreement.alignment_file import ADD, AGAIN
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.member.attendance import Attendance
from colonnade.federation.member.keeping import Keeping, MemberFacts
from colonnade.federation.member.known_code import KnownCode
from colonnade.federation.member.meeting import Meeting
from colonnade.federation.member.messages import Greeting
from colonnade.federation.member.own_data import OwnData
from colonnade.federation.member.record import Record
from colonnade.federation.member.stage import Stage
from colonnade.learning.algorithm import Algorithm
from colonnade.learning.training import Point
from colonnade.learning.versions import Store
from colonnade.network.clock import SECOND
from colonnade.network.live.commits import WINDOW
from colonnade.network.live.following import finish
from colonnade.network.live.joining import take_part
from colonnade.network.live.network import Live
from colonnade.network.live.post import Post
from colonnade.network.parts import Version
from colonnade.network.program_counter import END, ProgramCounter
from colonnade.network.quota import Quota
from colonnade.network.tally import Tally
from colonnade.network.transport.transport import Transport
from colonnade.network.wire import read_note

log = logging.getLogger(__name__)

FAREWELL = SECOND // 2  # until a party that cannot take part ends
SLACK = 2  # rounds that do not matter
CHANGES = 100  # lines about one party that comes or leaves, before they are counted only


@dataclass
class State:
    """What a status line shows."""

    stage: Stage = Stage.STARTING
    round: int = 0
    rounds: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    result: Result | None = None


class TrainingMember:
    """`life` grows with every start of this party: the time in milliseconds. `once`: leave when
    training and test are over, instead of answering questions. `quota`: that of the transport, if
    it has one."""

    def __init__(
        self,
        federation: Federation,
        own: OwnData,
        transport: Transport,
        folder: Path,
        *,
        life: int,
        once: bool = False,
        quota: Quota | None = None,
    ) -> None:
        self.federation, self.own, self.folder = federation, own, folder
        self.party, self.clock, self.transport = transport.party, transport.clock, transport
        self.once, self.over = once, False
        self.algorithm = self._algorithm()
        self.post = self._post(life, quota)
        self.codes = KnownCode(folder, own.code)
        self.meeting = Meeting(federation, own, self.post, self.codes)
        self.post.greeting = self.meeting.greeting()
        self.attendance = Attendance(
            self.party, tuple(self.post.peers), self.algorithm.unlabelled_rounds
        )
        self.record = Record(folder, federation)
        self.algorithm.training.paces = self.record.paces
        self.keeping = Keeping(self.algorithm, folder, self.record, self.clock, self.facts)
        self.state = State(rounds=self.algorithm.total_rounds)
        self.rounds_by_program: dict[ProgramCounter, int] = {}  # of programs side by side
        self.new = False  # without a checkpoint, and before its first round
        self.version_before: Version | None = None  # of the model that an earlier process used
        self.generation_before = 0  # of the leader, as an earlier process knew it
        self._seen = Tally(log, first=CHANGES)
        self.leaving = False  # because it cannot work with the others

    def _algorithm(self) -> Algorithm:
        algorithm = self.federation.algorithm(self.own.models)
        algorithm.own_code = self.own.code
        algorithm.training.extra_epochs = self.federation.network.extra_epochs
        algorithm.training.behind = self.behind
        algorithm.training.write_checkpoint = lambda: self.keeping.keep(self.rounds_to_keep())
        algorithm.training.secure_checkpoint = lambda: self.keeping.secure(self.net.rounds_begun)
        return algorithm

    def _post(self, life: int, quota: Quota | None) -> Post:
        federation, net = self.federation, self.federation.network
        post = Post(
            self.algorithm.world(topology=net.graph),
            self.transport,
            leader=federation.leader,
            federation=federation.hash,
            neighbours=federation.neighbours(self.party),
            life=life,
            grace=2 * net.lease,
            quota=quota or Quota(net.quota_bytes, own=self.party),
        )
        post.on_greeting, post.on_call = self.greeted, self.called
        post.on_change, post.on_twice = self.changed, self.twice
        post.hears = federation.hears
        post.returns, post.silence = net.returns, net.silence
        post.loudness.multiple = net.loudness or math.inf
        return post

    @property
    def version(self) -> Version | None:
        """The version of the model in use."""
        return self.keeping.version

    # -- the life of a party ----------------------------------------------------------------------

    async def live(self) -> None:
        start = Live(self.post)
        self.codes.hear(self.party, self.own.code)
        self.algorithm.join(start, self.own.data)
        if self.party in self.federation.label_holders and (caution := self.algorithm.caution()):
            log.warning("%s", caution)
        versions = self.algorithm.training.versions
        versions.store = Store(self.algorithm, self.folder / "checkpoints", self.party)
        self.resume(start)
        versions.recall()
        versions.announce(start)
        self.record.begin()
        self.state.stage = Stage.WAITING
        self.post.listen()
        resume_at = min(start.resume_at, END - 1)
        self.rounds_by_program = start.rounds_by_program
        while not self.over:
            await self.take_part(resume_at)
            await self.afterwards()
        await self.keeping.finish()
        self.state.stage = Stage.DONE

    def resume(self, net: Live) -> None:
        """Go on from the checkpoint of an earlier process of this party."""
        if (kept := self.keeping.resume(net)) is None:
            self.new = True
            self.post.greeting = self.meeting.greeting(new=True)
            return
        far = "trained already" if self.keeping.trained_before else f"{net.resume_at:,} rounds"
        log.info("%s: going on from its checkpoint: %s", self.party, far)
        self.attendance.restore(kept.attendance)
        self.version_before, self.generation_before = kept.version, kept.generation
        self.restore(kept)
        self.post.missed = {ProgramCounter(o): set(names) for o, names in kept.missed}
        self.state.round = min(net.resume_at, self.state.rounds)

    def rounds_to_keep(self) -> int:
        """After how many rounds a checkpoint is that is written within a round: a party that falls
        then does the round again, and takes part in its validation. A round of programs side by
        side is an epoch, which is not done again."""
        net = self.net
        return net.rounds_begun if self.algorithm.side_by_side else net.rounds_done

    def restore(self, kept: MemberFacts) -> None:
        """What a kind of member has among its `facts` beside these."""
        return None

    def facts(self) -> MemberFacts:
        missed = [(list(o), sorted(names)) for o, names in self.post.missed.items()]
        return MemberFacts(self.attendance.facts(), missed, self.post.generation, self.version)

    def remarks(self) -> list[str]:
        """What must be known of the training so far; nothing before the data has been read."""
        if self.state.stage == Stage.STARTING:
            return []
        return [*self.algorithm.remarks(), *self.algorithm.training.versions.damaged]

    async def afterwards(self) -> None:
        """Once trained: the test, then questions, until it is over."""
        raise NotImplementedError

    async def take_part(self, resume_at: int) -> None:
        """Train to the end, from wherever the others are."""
        net = self.federation.network
        await take_part(
            self.post,
            self.train,
            resume_at=resume_at,
            rounds_by_program=self.rounds_by_program,
            unlabelled=self.algorithm.unlabelled_rounds,
            own_rounds=self.algorithm.own_rounds(self.party),
            gather=net.gather,
            patience=net.patience,
        )
        self.state.stage = Stage.TRAINED
        finish(self.post)

    async def train(self, net: Live) -> None:
        self.net, net.ledger = net, self.record.ledger
        net.watch, self.algorithm.training.watch = self.began, self.learnt
        net.watch_side_by_side = lambda child: self.keeping.keep_if_due(net.rounds_done)
        self.state.stage = Stage.TRAINING
        self.record.paces.before = self.record.seconds - net.now
        self.keeping.begin(net)
        await self.algorithm.train(net)
        versions = self.algorithm.training.versions
        if versions.parts:
            self.keeping.keep(END - 1)
        else:
            why = "; ".join(versions.damaged) or "it came too late for a part of the model"
            log.warning("%s: untrained: %s", self.party, why)

    def began(self, round: int) -> None:
        if self.new and round >= WINDOW:
            text = "%s: has no checkpoint: it begins with new weights, in round %d of the others"
            log.warning(text, self.party, round + 1)
        self.new = False
        self.state.round = round + 1
        self.state.rounds = max(self.state.rounds, self.state.round)
        training = self.algorithm.training
        if training.closing:
            more = training.extra_epochs * training.rounds_per_epoch
            self.state.rounds = max(self.state.rounds, self.algorithm.total_rounds + more)
        self.keeping.keep_if_due(round)
        if round < self.algorithm.unlabelled_rounds:  # each for itself
            self.attendance.alone[self.party] += 1
        elif not self.algorithm.training.frozen:
            self.attendance.count(round, self.taking_part(round))

    def taking_part(self, round: int) -> list[str]:
        lately = (round - 1, 0)
        known = self.post.peers.items()
        return [p for p, k in known if k.there and not k.late and (round < 2 or k.reached(lately))]

    def behind(self) -> list[str]:
        """Those who are there, or may be back soon, and took part in fewer rounds than a training
        has."""
        rounds = self.algorithm.training.usual_rounds - SLACK
        few = [party for party in self.post.peers if self.attendance.seen[party].rounds < rounds]
        lately = self.clock.now - int(self.post.returns * SECOND)
        known = {party: self.post.peers[party] for party in few}
        return [party for party, peer in known.items() if peer.there or peer.since > lately]

    def learnt(self, point: Point) -> None:
        self.record.add(point)
        self.state.metrics = point.metrics

    def leave(self) -> None:
        """Write the state before the process ends."""
        if self.state.stage == Stage.TRAINING:
            self.keeping.keep(self.net.rounds_done)
        else:
            self.keeping.attempt(self.record.keep)

    # -- what others say --------------------------------------------------------------------------

    def called(self, sender: str, note: str) -> None:
        """A note of the sender about predictions."""
        raise NotImplementedError

    def greeted(self, sender: str, note: str) -> None:
        """Parties that cannot work together find out when they meet."""
        theirs = read_note(note, Greeting)
        found = self.meeting.greeted(sender, theirs)
        if not found and self.attendance.begins_anew(sender, theirs.new, self.state.round):
            self._seen.add(sender, "came back without a checkpoint, and began with new weights")
        waiting = self.state.stage == Stage.WAITING
        if found and sender == self.federation.leader and waiting:
            advice = f"; all parties need the same, so ask {sender} for theirs"
            self.leave_unsuited(Unsuited(found if found.endswith((AGAIN, ADD)) else found + advice))

    def leave_unsuited(self, error: Unsuited) -> None:
        """End this process with an error in a moment. The others hear of it first: they may not
        have had this party's greeting yet, which tells them what differs."""
        if self.leaving:
            return
        self.leaving = True
        for party in self.post.peers:
            self.post.greet(party)

        def end() -> None:
            raise error

        self.clock.call_at(self.clock.now + FAREWELL, end)

    def twice(self, sender: str, life: int) -> None:
        self.meeting.twice(sender, life)

    def changed(self, party: str, there: bool) -> None:
        if there:
            self._seen.add(party, "there", level=logging.INFO)
        elif not self.over:
            self._seen.add(party, f"away; {self.without(party)}", level=logging.INFO)

    def without(self, party: str) -> str:
        """What this party does about a party that is away, in words."""
        if party == self.federation.leader or self.state.stage == Stage.WAITING:
            return "waiting for it"
        if self.state.stage != Stage.TRAINING:
            return "going on without it"
        missing = getattr(self.federation.method, "missing", "zeros")
        if missing in ("wait", "retry"):
            return "waiting for it where its part is needed"
        return f"going on without it ({missing})"

    def away(self) -> dict[str, float]:
        """The parties that are away, and for how many seconds."""
        now = self.clock.now
        return {p: (now - k.since) / SECOND for p, k in self.post.peers.items() if not k.there}
