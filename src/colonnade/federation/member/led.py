"""A party of a federation that the label holder leads: the label holder tests, and asks the others
for their part in every answer; the others do what they are asked."""

from __future__ import annotations

import logging
from typing import Any, cast, get_args

import msgspec
from torch import Tensor

from colonnade.common.results import LedgerRow
from colonnade.common.text import printable, with_reasons
from colonnade.errors import ColonnadeError, Unanswerable
from colonnade.federation.member.answers import Answer, Question, Replies
from colonnade.federation.member.measuring import cautions
from colonnade.federation.member.member import FAILED, TESTED_WITHOUT, Member
from colonnade.federation.member.messages import Account, Call, Line, done_with, place_of, text
from colonnade.federation.member.record import lines_of
from colonnade.federation.member.stage import Stage
from colonnade.network import ABSENT
from colonnade.network.clock import SECOND
from colonnade.network.faults import Phase
from colonnade.network.live.following import finish
from colonnade.network.live.messages import CALL
from colonnade.network.live.network import Live
from colonnade.network.live.waiting import Rejoin
from colonnade.network.parts import Parts
from colonnade.network.program_counter import END, MAIN, ProgramCounter
from colonnade.network.quota import Store, weight
from colonnade.network.wire import WireError, read_note

log = logging.getLogger(__name__)

NO_PART = "has no part of this version of the model"
CALLS = 64  # of the label holder's, that wait to be answered


class LedMember(Member):
    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        # Of the label holder, by the order in which they came, with their generation.
        self.calls: Store[int, tuple[int, Call]] = Store(self.post.quota)
        self.calls_heard = 0
        self.answered = (0, 0)  # generation and number of the last call

    async def afterwards(self) -> None:
        await (self.lead() if self.post.leads else self.answer())

    @property
    def leader(self) -> str:
        assert self.federation.leader is not None
        return self.federation.leader

    # -- the label holder asks --------------------------------------------------------------------

    async def lead(self) -> None:
        await self.prepare_test()
        if self.state.result is None:
            metrics, notes = await self.test()
            await self.collect_accounts()
            self.state.metrics |= metrics
            unlabelled = self.algorithm.unlabelled_rounds
            notes += self.about_the_model() + self.attendance.notes(unlabelled)
            notes += self.algorithm.remarks()
            algorithm = self.algorithm
            notes += cautions(algorithm.data, algorithm.task.classes, self.party)
            self.report_result(metrics, notes)
        self.state.stage = Stage.ANSWERING
        while not self.once:
            question = await self.next_question()
            if question is None:
                await self.test_again()
            else:
                question.reply(await self.ask(question))
        self.call(Call(self.asked, over=True))
        self.over = True

    def choose_version(self) -> None:
        """Choose the committed version that is used from now on: the one that an earlier process of
        this party used, else the best one."""
        before = self.version_before if self.keeping.trained_before else None
        if not self.keeping.use(before):
            nothing = Parts()
            have = lambda party, v: (  # noqa: E731
                self.post.parts if party == self.party else self.post.parts_of.get(party, nothing)
            ).have(v)
            best = self.algorithm.training.ballot.chosen(self.net, have)
            if best is None or not self.keeping.use(best.version):
                none = f"{self.party}: no version of the model was kept to its end"
                raise ColonnadeError("; ".join([none, *self.algorithm.training.versions.damaged]))
            self.keeping.keep(END - 1)
        for line in self.about_the_model():
            log.warning("%s: %s", self.party, line)

    async def test_again(self) -> None:
        """Test with the parties that the first test missed. The new result replaces the old one if
        no party was missing."""
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
        if answer.reason:
            return {}, [*notes, f"not tested: {answer.reason}"]
        return self.algorithm.measure(answer.logits, part.y, "test"), notes

    async def ask(self, question: Question) -> Answer:
        """Predict these rows with every party that is present."""
        self.asked += 1
        call = self.next_call(question)
        told = self.open_call(call)
        try:
            return await self._answer_to(call, told)
        finally:
            del self.replies[call.number]

    async def _answer_to(self, call: Call, told: Replies) -> Answer:
        begun, there = self.clock.now, self.post.present()
        self.call(call)
        net = self.network(call)
        logits, reason = cast(Tensor, ABSENT), ""
        try:
            if not call.check:
                logits = await self.algorithm.predict(net, self.part(call.ids, call.caller))
        except Unanswerable as error:
            reason = str(error)
            log.warning("%s: no answer: %s", self.party, reason)
        since = self.clock.now if call.seconds is None else begun
        limit = since + int(self.patience_for(call.seconds) * SECOND)
        done = done_with(call, self.federation.members)
        heard = [party for party in there if party not in net.silent]
        untold = await self.hear_out(done, heard, limit)
        if call.seconds is None:  # with a deadline, an answer does not wait for all to tell
            told.unheard |= untold
        self.post.passes(done, forget=True)
        self.keeping.note()
        return Answer(logits, self.absent(there, net.silent, told), reason, told.refused)

    async def collect_accounts(self) -> None:
        """Ask every party for its ledger, and wait for the answers as long as `patience` allows."""
        self.call(Call(self.asked, account=True))
        limit = self.clock.now + int(self.patience * SECOND)
        while self.clock.now < limit and set(self.post.present()) - self.record.told.keys():
            await self.clock.wait(self.post.news, limit)

    def call(self, call: Call) -> None:
        for party in self.post.present():
            self.post.tell(party, CALL, note=text(call))

    # -- and the others answer --------------------------------------------------------------------

    async def answer(self) -> None:
        """Answer calls of the label holder until the federation is over, or until the label holder
        has started a new training."""
        generation = self.post.generation
        while not self.over and (self.post.generation == generation or self.leader_is_done()):
            self.answer_questions()
            if self.post.generation != generation and self.post.peers[self.leader].positions:
                generation = self.post.generation
                finish(self.post)  # the label holder was away, and asks who is ready
            if not self.calls:
                await self.clock.wait(self.post.news, self.clock.now + SECOND)
                self.keeping.note()
                continue
            asked_in, call = self.first_call()
            if asked_in == self.post.generation and (asked_in, call.number) > self.answered:
                self.answered = (asked_in, call.number)
                await self.heed(call)
                self.keeping.note()

    def answer_questions(self) -> None:
        """Those that this party is asked itself: none, unless it holds labels."""
        return None

    async def heed(self, call: Call) -> None:
        """Compute this party's part of an answer, then tell the party that asks that it is done and
        which parties were not heard."""
        refusal, caller = self.refusal(call), call.caller or self.leader
        silent, why = {self.party}, refusal.why
        if not why and not self.keeping.use(call.version):
            why = NO_PART
        try:
            if call.check and not why:
                silent = set[str]()
            elif not why:
                net = self.network(call)
                await self.algorithm.predict(net, self.part(call.ids, call.caller))
                silent = net.silent
        except Rejoin:
            return
        except Exception as error:
            why = FAILED
            self.post.refuse(caller, "a call that cannot be answered", error)
        if silent:
            told = Account(
                number=call.number,
                silent=sorted(silent),
                why=printable(why),
                refused=list(refusal.rows),
            )
            self.post.tell(caller, CALL, note=text(told))
        self.post.reach(done_with(call, self.federation.members))
        for party in self.post.present():
            self.post.beat(party)

    def leader_is_done(self) -> bool:
        counters = self.post.peers[self.leader].positions.values()
        return all(c.rounds_done(MAIN) >= END - 1 for c in counters)  # or nothing is known yet

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
            self.keep_call(sender, call, weight(None, note))

    def keep_call(self, sender: str, call: Call, size: int) -> None:
        """Keep a call until it is answered; of too many the oldest is dropped."""
        self.calls_heard += 1
        if len(self.calls) >= CALLS:
            self.first_call()
        if not self.calls.put(self.calls_heard, (self.post.generation, call), sender, size):
            self.post.quota.drop(sender)

    def first_call(self) -> tuple[int, Call]:
        found = self.calls.pop(next(iter(self.calls)))
        assert found is not None
        return found

    def told(self, sender: str, account: Account) -> None:
        if account.silent:
            self.hear_reply(sender, account)
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

    def network(self, call: Call) -> Live:
        """The network over which the messages of one call go."""
        patience = self.patience_for(call.seconds)
        if self.party != (call.caller or self.leader):
            patience /= 2  # who asks waits for those who wait for others
        # The version is part of the program counter: a message of another version is another one's.
        place = place_of(call, self.federation.members)
        origin = ProgramCounter((*place, *(call.version or ())))
        net = self.beside(origin, f"call {call.number}", patience, call.without)
        return self.limited(net, call)
