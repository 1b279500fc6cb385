"""One party of a running federation: it trains with the others, keeps its state, and answers.

It knows nothing of processes, certificates and terminals: the same code runs over Zenoh and, under
test, through storms in virtual time.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Annotated, Any, get_args

import msgspec
import torch
from torch import Tensor

from colonnade.common.results import LedgerRow, Result
from colonnade.common.text import printable, with_reasons
from colonnade.common.user_code import Source
from colonnade.errors import ColonnadeError, Unsuited
from colonnade.federation.agreement.digest import differences
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.member.attendance import Attendance
from colonnade.federation.member.background_writer import BackgroundWriter, Trouble
from colonnade.federation.member.known_code import KnownCode
from colonnade.federation.member.own_data import OwnData
from colonnade.federation.member.record import Record, lines_of
from colonnade.federation.member.stage import Stage
from colonnade.learning.checkpoint import Checkpoint, CheckpointError
from colonnade.learning.task import Part, pad_stack
from colonnade.learning.training import Point
from colonnade.learning.versions import Store
from colonnade.network import ABSENT, is_absent
from colonnade.network.clock import SECOND, Signal
from colonnade.network.faults import Phase
from colonnade.network.joining import finish, take_part
from colonnade.network.live import Live, Rejoin, round_of
from colonnade.network.parts import Parts, Version
from colonnade.network.post import CALL, END, Peer, Post
from colonnade.network.quota import Quota
from colonnade.network.tally import Tally
from colonnade.network.transport.transport import Transport
from colonnade.network.wire import Count, Name, WireError, read_note

log = logging.getLogger(__name__)

KEEP = 0.1  # seconds between two checkpoints, at least
SHARE = 0.005  # of the training so far: not more often than that
TESTED_WITHOUT = "tested without"
TRIES = 5  # of a test, while somebody who is there was not heard
SLACK = 2  # rounds that do not matter
COST = 0.03  # of the time, at most, is spent on checkpoints
AGAIN = 2 * SECOND  # between two attempts to write what a full disk refused
RETURN = 3.0  # seconds that a trained label holder, started again, waits for the others
AT_ONCE = 1024  # rows of one question
CALLS = 64  # of the label holder's, that wait to be answered
CHANGES = 100  # lines about one party that comes or leaves, before they are counted only
AMOUNT = 2**46  # messages or bytes of one line of an account; their sums fit into 64 bits


CodeKey = Annotated[str, msgspec.Meta(max_length=200, pattern=r"^[A-Za-z0-9_. ]+\Z")]


class Greeting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What parties tell each other when they meet."""

    digests: dict[Name, Name]  # of the federation file, by key
    rows: Name = ""  # fingerprint of the ids of the aligned rows
    code: Annotated[dict[CodeKey, Source], msgspec.Meta(max_length=32)] = {}  # of its own


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the label holder asks of everybody once the training is over."""

    number: Count
    ids: Annotated[list[str], msgspec.Meta(min_length=1, max_length=AT_ONCE)] | None = (
        None  # None: the test rows
    )
    account: bool = False  # tell what left you, instead
    over: bool = False  # there will be no more
    caller: Name = ""  # where it is not the label holder who asks
    version: Version | None = None  # of the model that answers


Amount = Annotated[int, msgspec.Meta(ge=0, le=AMOUNT)]


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of a ledger, as another party tells it."""

    phase: Name
    sender: Name
    receiver: Name
    kind: Name
    messages: Amount
    bytes: Amount


class Account(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the others tell the label holder: what left them, or who was silent when they were
    called."""

    rows: list[Line] = []
    number: Count = 0  # of the call
    silent: list[Name] = []
    alone: Count = 0  # rounds without labels that the sender did


@dataclass(frozen=True)
class Answer:
    """Predictions for some rows, made without those who were absent."""

    logits: Tensor  # [rows, outputs], or absent
    absent: dict[str, str]  # and why

    @property
    def rows(self) -> int:
        return 0 if is_absent(self.logits) else len(self.logits)


@dataclass
class Question:
    ids: list[str]
    reply: Callable[[Answer], None]


@dataclass
class State:
    """What a status line shows."""

    stage: Stage = Stage.STARTING
    round: int = 0
    rounds: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    result: Result | None = None


class Member:
    def __init__(
        self,
        federation: Federation,
        own: OwnData,
        transport: Transport,
        folder: Path,
        *,
        born: int,
        once: bool = False,
        quota: Quota | None = None,
    ) -> None:
        """`born` grows with every start of this party: the time in milliseconds. `once`: leave when
        training and test are over, instead of answering questions. `quota`: that of the transport,
        if it has one."""
        self.federation, self.own, self.folder = federation, own, folder
        self.party, self.clock, self.transport = transport.party, transport.clock, transport
        self.once = once
        self.algorithm = federation.algorithm(own.models)
        self.algorithm.own_code = own.code
        self.codes = KnownCode(folder, own.code)
        self.post = Post(
            self.algorithm.world(topology=federation.network.graph),
            transport,
            leader=federation.leader,
            federation=federation.hash,
            neighbours=federation.neighbours(self.party),
            born=born,
            grace=2 * federation.network.lease,
            quota=quota or Quota(federation.network.quota_bytes, own=self.party),
        )
        self.post.greeting = text(Greeting(federation.digests, own.fingerprint, dict(own.code)))
        self.post.on_greeting, self.post.on_call = self.greeted, self.called
        self.post.on_change, self.post.on_twice = self.changed, self.twice
        net = federation.network
        self.post.returns, self.post.silence = net.returns, net.silence
        self.post.loudness.multiple = net.loudness or math.inf
        self.algorithm.training.extra_epochs = net.extra_epochs
        self.algorithm.training.behind = self.behind
        self.algorithm.training.keep_now = lambda: self.keep(self.net.rounds_begun)
        self.checkpoint = Checkpoint(self.algorithm, folder / "checkpoints")
        self.attendance = Attendance(self.party, tuple(self.post.peers))
        self.record = Record(folder, federation)
        self.state = State(rounds=self.algorithm.total_rounds)
        self.calls: deque[tuple[int, Call]] = deque(maxlen=CALLS)  # with the era they belong to
        self.answered = (0, 0)  # era and number of the last call
        self.silences: dict[int, dict[str, str]] = {}  # by call: who was not heard, and why
        self.version: Version | None = None  # of the model in use
        self.saved: Version | None = None  # of the model in the folder
        self.missed_in_test: set[str] = set()
        self.questions: deque[Question] = deque()
        self.wake = Signal()
        self.over = False
        self.complaints: dict[str, str] = {}  # about whom
        self.agreeing: set[str] = set()  # those whose files and rows fit ours
        self.strangers: set[str] = set()  # those who have another federation file
        self.preferring: dict[str, int] = {}  # which life of this party others listen to
        self.trained_before = False  # in an earlier life
        self.version_before: Any = None  # of the model that was in use then
        self.asked = 0  # calls so far
        self.background: BackgroundWriter | None = None  # None: what is written is written at once
        self.trouble = Trouble(log)
        self.stopwatch: Callable[[], float] = lambda: 0.0  # real seconds; none in virtual time
        self._kept = self._begun = self.clock.now
        self._costs = deque([0.0], maxlen=9)  # seconds that the last checkpoints took
        self._seen = Tally(log, first=CHANGES)
        self._unknown = Tally(log)

    # -- the life of a party ----------------------------------------------------------------------

    async def live(self) -> None:
        start = Live(self.post)
        self.codes.hear(self.party, self.own.code)
        self.algorithm.join(start, self.own.data)
        versions = self.algorithm.training.versions
        versions.store = Store(self.algorithm, self.folder / "checkpoints", self.party)
        if (kept := self.checkpoint.resume(start)) is not None:
            self.trained_before = start.resume_at >= END - 1
            far = "trained already" if self.trained_before else f"{start.resume_at:,} rounds"
            log.info("%s: going on from its checkpoint: %s", self.party, far)
            self.attendance.restore(kept.get("attendance"))
            self.version_before = kept.get("version")
            missed = kept.get("missed", [])
            self.post.missed = {tuple(place): set(names) for place, names in missed}
            self.state.round = min(start.resume_at, self.state.rounds)
        versions.recall()
        versions.announce(start)
        self.record.begin()
        self.state.stage = Stage.WAITING
        self.post.listen()
        resume_at = min(start.resume_at, END - 1)
        while not self.over:
            await self.take_part(resume_at)
            await self.afterwards()
        self._try(self.record.keep)  # with what left in the test, and in answers to others
        self.state.stage = Stage.DONE

    async def afterwards(self) -> None:
        """Once trained: the test, then questions, until it is over."""
        await (self.lead() if self.post.leads else self.answer())

    async def take_part(self, resume_at: int) -> None:
        """The training, to its end."""
        net = self.federation.network
        await take_part(
            self.post,
            self.train,
            resume_at=resume_at,
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
        self.state.stage, self._begun = Stage.TRAINING, self.clock.now
        await self.algorithm.train(net)
        if self.algorithm.training.versions.parts:
            self.keep(END - 1)
        else:
            log.warning("%s: untrained: it came too late for a part of the model", self.party)

    def began(self, round: int) -> None:
        self.state.round = round + 1
        so_far = (self.clock.now - self._begun) / SECOND
        pause = max(KEEP, SHARE * so_far, median(self._costs) / COST)
        free = self.background is None or self.background.idle
        if free and self.clock.now - self._kept >= pause * SECOND:
            self.keep(round, at_once=False)
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

    def keep(self, rounds: int, *, at_once: bool = True) -> None:
        """So that a restart goes on from here; without room on the disk, from where it was kept
        before. Unless `at_once`, a thread of its own does the writing."""
        begun, self._kept = self.stopwatch(), self.clock.now
        missed = [[list(place), sorted(names)] for place, names in self.post.missed.items()]
        facts = {"attendance": self.attendance.facts(), "version": self.version, "missed": missed}
        if self.background is not None and at_once:
            self.background.wait()
        writer = None if at_once else self.background
        done = self.net.restart_round(rounds)
        self._try(lambda: self.checkpoint.keep(self.net, done, facts, writer))
        self._try(self.record.keep)
        self.write_again()
        self._costs.append(self.stopwatch() - begun)

    def note(self) -> None:
        """Write down what left, now and then, and what a full disk refused."""
        if self.clock.now - self._kept >= AGAIN:
            self._kept = self.clock.now
            self._try(self.record.keep)
            self.write_again()

    def write_again(self) -> None:
        versions = self.algorithm.training.versions
        if versions.unwritten:
            versions.write(self.net)
        if self.version is not None and versions.used == self.version != self.saved:
            self._try(self.save)

    def use(self, version: Version | None) -> bool:
        """Load this party's part of a version, and save it as the model; False if this party has
        no such part."""
        if version is None or not self.algorithm.training.versions.use(version):
            return False
        self.version = version
        if self.saved != version:
            self._try(self.save)
        return True

    def save(self) -> None:
        folder = self.folder / "models" / self.record.run
        self.algorithm.save(folder, self.net, durable=True)
        self.saved = self.version

    def _try(self, write: Callable[[], None]) -> None:
        """A disk that is full does not end the training."""
        try:
            write()
            self.trouble.over(str(self.folder))
        except (CheckpointError, OSError) as error:
            self.trouble.tell(f"{self.folder}: {error}")

    def leave(self) -> None:
        """Politely: with its state kept."""
        if self.state.stage == Stage.TRAINING:
            self.keep(max(0, self.net.rounds_begun - 1))
        else:
            self._try(self.record.keep)

    # -- once trained: the label holder asks ------------------------------------------------------

    async def prepare_test(self) -> None:
        """Wait a while for the others and choose the version of the model. A result of an earlier
        process of this party is kept, and then there is nothing to test."""
        known = self.record.known() if self.trained_before else None
        await self.assemble(RETURN if known else self.post.returns)
        self.choose_version()
        self.state.stage = Stage.TESTING
        self.state.result = known

    async def lead(self) -> None:
        await self.prepare_test()
        if self.state.result is None:
            metrics, notes = await self.test()
            await self.collect_accounts()
            self.state.metrics |= metrics
            unlabelled = self.algorithm.unlabelled_rounds
            notes += self.about_the_model() + self.attendance.notes(unlabelled)
            self.report_result(metrics, notes)
        self.state.stage = Stage.ANSWERING
        while not self.once:
            question = await self.next_question()
            if question is None:
                await self.test_again()
            else:
                question.reply(await self.ask(question.ids))
        self.call(Call(self.asked, over=True))
        self.over = True

    def choose_version(self) -> None:
        """The version that is used from now on."""
        chosen = self.version_before if self.trained_before else None
        version = None if chosen is None else msgspec.convert(chosen, Version)
        if version is None or not self.use(version):
            nothing = Parts()
            have = lambda party, v: (  # noqa: E731
                self.post.parts if party == self.party else self.post.parts_of.get(party, nothing)
            ).have(v)
            best = self.algorithm.training.ballot.chosen(self.net, have)
            if best is None or not self.use(best.version):
                raise ColonnadeError(f"{self.party}: no version of the model was kept to its end")
            self.keep(END - 1)
        for line in self.about_the_model():
            log.warning("%s: %s", self.party, line)

    def lacking(self) -> dict[str, str]:
        """Who has no part of the model in use, and why."""
        if self.version is None:
            return {}
        known = {party: self.post.parts_of.get(party) for party in self.post.peers}
        told = {p: parts.lack(self.version) for p, parts in known.items() if parts is not None}
        missed = {p for parts in [self.post.parts, *known.values()] if parts for p in parts.missed}
        made = dict.fromkeys(sorted(missed), "the model was made without its part")
        return made | {party: why for party, why in told.items() if why}

    def about_the_model(self) -> list[str]:
        return [f"the model lacks {party}: {why}" for party, why in self.lacking().items()]

    def report_result(self, metrics: dict[str, float], notes: list[str]) -> None:
        rounds = self.record.rounds(self.net.round + 1)
        self.state.result = self.record.result(metrics, rounds, notes)

    async def next_question(self) -> Question | None:
        """None: somebody whom the test missed has come back with its part."""
        while not self.questions:
            await self.clock.wait(self.wake, self.clock.now + AGAIN)
            self.note()
            if self.missed_in_test and not self.questions:
                known = {party: self.post.peers[party] for party in self.missed_in_test}
                back = all(peer.there and peer.reached((END, 0)) for peer in known.values())
                if back and not self.missed_in_test & self.lacking().keys():
                    return None
        return self.questions.popleft()

    async def test_again(self) -> None:
        """With those whom the first test missed: the result is replaced if nobody is missing."""
        log.info("%s: testing again, with %s", self.party, ", ".join(sorted(self.missed_in_test)))
        before, self.missed_in_test = self.state.result, set()
        metrics, notes = await self.test()
        if self.missed_in_test or before is None:
            return
        kept = [note for note in before.notes if not note.startswith(TESTED_WITHOUT)]
        self.report_result(metrics, [*kept, *(n for n in notes if n not in kept)])

    async def test(self) -> tuple[dict[str, float], list[str]]:
        """Metrics on the test rows, and what must be said about them."""
        notes, part = list(self.own.data.notes), self.algorithm.data.test
        if not part.rows:
            return {}, notes
        answer = await self.ask_until_heard()
        if answer.absent:
            notes.append(f"{TESTED_WITHOUT} {with_reasons(answer.absent)}")
            self.missed_in_test = set(answer.absent)
        return self.algorithm.measure(answer.logits, part.y, "test"), notes

    async def assemble(self, seconds: float) -> None:
        """Before a test: wait a while for those who are away, and for what they say of the parts
        that they keep."""
        limit = self.clock.now + int(seconds * SECOND)
        while self.clock.now < limit and any(
            self.unsettled(party, peer, int(seconds * SECOND))
            for party, peer in self.post.peers.items()
        ):
            await self.clock.wait(self.post.news, limit)

    def unsettled(self, party: str, peer: Peer, patience: int) -> bool:
        """Whether it is worth waiting for a party."""
        if not peer.there:
            return self.clock.now - peer.since < patience
        return not peer.reached((END, 0)) or party not in self.post.parts_of

    def worth_another_try(self, absent: Mapping[str, str]) -> bool:
        """Whether somebody was missed who is there, and has its part."""
        there = {self.party, *self.post.present()}
        return bool(absent.keys() & there - self.lacking().keys())

    async def ask_until_heard(self) -> Answer:
        """The test rows; again if somebody who is there, and has its part, was not heard: parties
        that have just returned may not have found each other yet."""
        answer = await self.ask(None)
        for _ in range(TRIES):
            if not self.worth_another_try(answer.absent):
                break
            await self.clock.sleep_until(self.clock.now + SECOND)
            answer = await self.ask(None)
        return answer

    async def ask(self, ids: list[str] | None) -> Answer:
        """What everybody who is there makes of these rows."""
        self.asked += 1
        call = Call(self.asked, ids, version=self.version)
        there = self.post.present()
        self.call(call)
        net = self.beside(call)
        logits = await self.algorithm.predict(net, self.part(ids))
        await self.hear_out(call, [p for p in there if p not in net.silent])
        told = self.silences.pop(call.number, {})
        self.post.passes(done_with(call), forget=True)
        self.note()
        return Answer(logits, self.absent(there, net.silent, told))

    def absent(self, there: list[str], silent: set[str], told: dict[str, str]) -> dict[str, str]:
        """Who had no part in an answer, and why."""
        lacking = self.lacking()
        away = {p: "away" for p, k in self.post.peers.items() if p not in there or not k.there}
        away = {p: why for p, why in away.items() if p not in there or p in silent}
        late = {p: told.get(p, "did not answer in time") for p in self.post.peers if p in silent}
        found = late | told | away | {p: why for p, why in lacking.items() if p in there}
        return {party: found[party] for party in self.post.peers if party in found}

    async def hear_out(self, call: Call, parties: list[str]) -> None:
        """Until they are done with a call, too, and have told whom they missed."""
        place, limit = done_with(call), self.clock.now + int(self.patience * SECOND)
        peers = [self.post.peers[party] for party in parties]
        while any(k.there and not k.reached(place) for k in peers) and self.clock.now < limit:
            await self.clock.wait(self.post.news, limit)

    @property
    def patience(self) -> float:
        return self.federation.network.patience

    async def collect_accounts(self) -> None:
        """What left the others, as they tell it."""
        self.call(Call(self.asked, account=True))
        limit = self.clock.now + int(self.patience * SECOND)
        while self.clock.now < limit and set(self.post.present()) - self.record.told.keys():
            await self.clock.wait(self.post.news, limit)

    def call(self, call: Call) -> None:
        for party in self.post.present():
            self.post.tell(party, CALL, note=text(call))

    # -- and the others answer --------------------------------------------------------------------

    async def answer(self) -> None:
        """Until it is over, or the label holder has begun anew and is not done."""
        era = self.post.era
        while not self.over and (self.post.era == era or self.leader_is_done()):
            if self.post.era != era and self.post.peers[self.leader].fronts:
                era = self.post.era
                finish(self.post)  # the label holder was away, and asks who is ready
            if not self.calls:
                await self.clock.wait(self.post.news, self.clock.now + SECOND)
                self.note()
                continue
            asked_in, call = self.calls.popleft()
            if asked_in == self.post.era and (asked_in, call.number) > self.answered:
                self.answered = (asked_in, call.number)
                await self.heed(call)
                self.note()

    async def heed(self, call: Call) -> None:
        """Do one's part, and tell the label holder when it is done, and who was not heard."""
        silent = {self.party}
        try:
            if self.knows(call) and self.use(call.version):
                net = self.beside(call)
                await self.algorithm.predict(net, self.part(call.ids))
                silent = net.silent
        except Rejoin:
            return
        except Exception as error:
            self.post.refuse(self.leader, "a call that cannot be answered", error)
        if silent:
            told = Account(number=call.number, silent=sorted(silent))
            self.post.tell(self.leader, CALL, note=text(told))
        self.post.reach(done_with(call))
        for party in self.post.present():
            self.post.beat(party)

    @property
    def leader(self) -> str:
        assert self.federation.leader is not None
        return self.federation.leader

    def leader_is_done(self) -> bool:
        fronts = self.post.peers[self.leader].fronts.values()
        return all(round_of(front, ()) >= END - 1 for front in fronts)  # or nothing is known yet

    def called(self, sender: str, note: str) -> None:
        if sender != self.federation.leader:
            if not self.post.leads:
                raise WireError("an account, which is for the label holder")
            self.told(sender, read_note(note, Account))
            return
        call = read_note(note, Call)
        if call.over:
            self.over = self.once
        elif call.account:
            rows = [Line(*msgspec.structs.astuple(row)) for row in self.record.rows()]
            alone = self.attendance.alone[self.party]
            self.post.tell(sender, CALL, note=text(Account(rows, alone=alone)))
        else:
            self.calls.append((self.post.era, call))

    def told(self, sender: str, account: Account) -> None:
        if account.silent and account.number == self.asked:
            reasons = self.silences.setdefault(account.number, {})
            for party in self.post.peers.keys() & set(account.silent):
                own = "lacks some of these rows" if party == sender else f"not heard by {sender}"
                reasons.setdefault(party, own)
            return
        self.attendance.alone[sender] = account.alone
        if account.rows:
            kinds = {exchange.kind for exchange in self.algorithm.exchanges}
            for row in account.rows:
                to = row.receiver in self.federation.members
                if row.sender != sender or not to or row.kind not in kinds:
                    raise WireError("an account of what it cannot have sent")
                if row.phase not in get_args(Phase):
                    raise WireError("an account of a phase that there is not")
            rows = [LedgerRow(*msgspec.structs.astuple(row)) for row in account.rows]
            self.record.told[sender] = lines_of(rows)

    def knows(self, call: Call) -> bool:
        """Whether this party has the rows it is asked about. If not it says nothing, which counts
        as being absent: a made-up row would be worse."""
        if call.ids is None or self.own.x is None or (self.own.positions(call.ids) >= 0).all():
            return True
        caller = call.caller or self.leader
        self._unknown.add(caller, "asks about rows that are not in my data; not answering")
        return False

    def beside(self, call: Call) -> Live:
        # The label holder waits for those who wait for others.
        patience = self.patience if self.post.leads else self.patience / 2
        net = Live(self.post, f"call {call.number}", patience=patience)
        # The version is part of the place: a message of another version is for another place.
        net.place = (END, call.number, *(call.version or ()))
        net.phase, net.ledger = "inference", self.record.ledger
        net.impatient = True
        return net

    def part(self, ids: Sequence[str] | None) -> Part:
        """The rows that are asked about, as far as they are here."""
        if ids is None:
            return self.algorithm.data.test
        x: Any = ABSENT
        if self.own.x is not None:
            x = pad_stack([self.own.rows(ids)], max(self.algorithm.task.widths))
        return Part(x, ABSENT, len(ids))

    # -- what others say --------------------------------------------------------------------------

    def greeted(self, sender: str, note: str) -> None:
        """Parties that cannot work together find out when they meet."""
        theirs = read_note(note, Greeting)
        self.codes.hear(sender, theirs.code)
        found = ""
        if differing := differences(self.federation.digests, theirs.digests):
            keys = printable(", ".join(differing))
            found = f"the federation file of {sender} differs from ours in {keys}"
            self.strangers.add(sender)
        elif self.own.fingerprint and theirs.rows and theirs.rows != self.own.fingerprint:
            found = f"{sender} has other rows than we: the ids of the aligned rows differ"
        if not found:
            self.agreeing.add(sender)
            return
        if sender not in self.complaints.values():  # one is enough
            self.complaints[found] = sender
            log.error("%s", found)
        if sender == self.federation.leader and self.state.stage == Stage.WAITING:
            raise Unsuited(f"{found}; all parties need the same, so ask {sender} for theirs")

    def twice(self, sender: str, life: int) -> None:
        """Two processes have this party's certificate, and `sender` says which one it listens to.
        The other one ends; not because a single member says so, unless that one leads."""
        known, self.preferring[sender] = self.preferring.get(sender), life
        if life == self.post.born:
            if known != life:
                log.warning("a second process has our certificate; %s listens to us only", sender)
            return
        there = self.post.present()
        against = [p for p in there if self.preferring.get(p, self.post.born) != self.post.born]
        if sender == self.federation.leader or 2 * len(against) > len(there):
            since = datetime.fromtimestamp(life / 1000, UTC)
            raise Unsuited(
                f"{self.party}: another process with this party's certificate takes part already, "
                f"started {since:%Y-%m-%d %H:%M:%S} UTC by its clock, says {sender}. Start a party "
                "once; if you did, somebody else has its key"
            )

    def changed(self, party: str, there: bool) -> None:
        if there:
            self._seen.add(party, "there", level=logging.INFO)
        elif not self.over:
            self._seen.add(party, f"away; {self.without(party)}", level=logging.INFO)

    def without(self, party: str) -> str:
        """What this party does about one that is away."""
        if party == self.federation.leader or self.state.stage == Stage.WAITING:
            return "waiting for it"
        if self.state.stage != Stage.TRAINING:
            return "going on without it"
        missing = getattr(self.federation.method, "missing", "zeros")
        if missing in ("wait", "retry"):
            return "waiting for it where its part is needed"
        return f"going on without it ({missing})"

    def away(self) -> dict[str, float]:
        """Who is not there, and since when (seconds)."""
        now = self.clock.now
        return {p: (now - k.since) / SECOND for p, k in self.post.peers.items() if not k.there}


def done_with(call: Call) -> tuple[int, ...]:
    """The place after all that a call asks for."""
    return (END, call.number, END, 0)


def predictions(answer: Answer) -> tuple[list[int], Tensor]:
    """Classes and probabilities."""
    if is_absent(answer.logits):
        return [], torch.zeros(0)
    return answer.logits.argmax(1).tolist(), torch.softmax(answer.logits, 1)


def text(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()
