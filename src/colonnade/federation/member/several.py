"""A party of a federation in which several parties hold labels, each those of its own rows (CVFL).

The first of them leads: it measures, decides and tests, as the only label holder does elsewhere.
Once trained, each of them may be asked for predictions, also while the first one is away.
"""

from __future__ import annotations

import logging
from typing import Any, cast

import msgspec
from torch import Tensor

from colonnade.errors import Unsuited
from colonnade.federation.member.answers import Answer, Question
from colonnade.federation.member.keeping import MemberFacts
from colonnade.federation.member.label_rows import LabelRows
from colonnade.federation.member.led import CALLS, LedMember
from colonnade.federation.member.messages import Account, Call
from colonnade.federation.member.stage import Stage
from colonnade.network import ABSENT
from colonnade.network.live.following import finish
from colonnade.network.live.messages import LABELS
from colonnade.network.live.network import Live
from colonnade.network.live.waiting import ASK_EVERY, Rejoin
from colonnade.network.program_counter import END
from colonnade.network.quota import weight
from colonnade.network.wire import WireError, read_note

log = logging.getLogger(__name__)


class SeveralMember(LedMember):
    def __init__(self, *arguments: Any, life: int, **more: Any) -> None:
        super().__init__(*arguments, life=life, **more)
        self.holders = self.federation.label_holders
        self.heard_of: dict[str, int] = {}  # the newest call of each caller
        self.heeding: dict[str, int] = {}  # calls of each caller that are being answered
        self.returned = False  # it was trained before, and need not wait for the leader
        self.label_rows: LabelRows | None = None  # with [data], every party knows them
        if self.federation.rows is not None:
            self.label_rows = self._label_rows()
        if not self.post.leads:
            self.asked = life  # so that calls of another life are not taken for new ones
            self.wake = self.post.news

    def _label_rows(self) -> LabelRows:
        def tell(to: str, note: str) -> None:
            self.post.tell(to, LABELS, note=note)

        rows = LabelRows(self.federation, self.own, self.party, self.algorithm, tell)
        self.post.labels_for, self.post.knows = rows.note_for, rows.known
        self.post.on_labels = self.hear_labels
        return rows

    def hear_labels(self, sender: str, note: str) -> None:
        assert self.label_rows is not None
        wrong = self.label_rows.hear(sender, note)
        if wrong and wrong not in self.meeting.complaints:
            self.meeting.complaints[wrong] = sender
            log.error("%s", wrong)
            if self.state.stage == Stage.WAITING:
                self.leave_unsuited(Unsuited(wrong))

    async def train(self, net: Live) -> None:
        """Begin when the label holders that are there have told which rows are theirs."""
        while not self.fits_all():
            await self.clock.wait(self.post.news, self.clock.now + ASK_EVERY)
            net.check_generation()
        await super().train(net)

    def fits_all(self) -> bool:
        """Whether the labels here fit those of all who are there, as far as that can be told."""
        rows = self.label_rows
        if rows is None or self.state.stage != Stage.WAITING:
            return True
        return not self.leaving and all(map(rows.compared, [self.leader, *self.post.present()]))

    def facts(self) -> MemberFacts:
        told = {} if self.label_rows is None else self.label_rows.facts()
        return msgspec.structs.replace(super().facts(), labels=told)

    def restore(self, kept: MemberFacts) -> None:
        if self.label_rows is not None:
            self.label_rows.restore(kept.labels)

    def resume(self, net: Live) -> None:
        if self.label_rows is not None:
            self.label_rows.begin()
        super().resume(net)
        if self.keeping.trained_before and not self.post.leads:
            self.returned = True
            self.post.begin(self.post.main, self.generation_before)

    async def take_part(self, resume_at: int) -> None:
        """A party that is trained answers at once, whether the leader is there or not."""
        if not self.returned:
            await super().take_part(resume_at)
            return
        self.returned = False
        self.net, self.state.stage = self.keeping.net, Stage.TRAINED
        finish(self.post)

    # -- being asked ------------------------------------------------------------------------------

    def answer_questions(self) -> None:
        if self.party not in self.holders:
            return
        if self.version is None and self.version_before is not None:
            before, self.version_before = self.version_before, None
            self.keeping.use(before)
        if self.version is not None:
            self.state.stage = Stage.ANSWERING
        while self.questions:
            question = self.questions.popleft()
            self.clock.spawn(self.reply(question), f"{self.party}: a question")

    async def reply(self, question: Question) -> None:
        try:
            question.reply(await self.ask(question))
        except Rejoin:
            why = f"{self.leader} has just started again; ask once more"
            question.reply(Answer(cast(Tensor, ABSENT), {}, why))

    def next_call(self, question: Question) -> Call:
        call = super().next_call(question)
        return call if self.post.leads else msgspec.structs.replace(call, caller=self.party)

    def without(self, party: str) -> str:
        """Nobody's program goes on without the collaborator."""
        needed = [p for role in self.federation.roles.others for p in self.federation.playing(role)]
        if party in needed and self.state.stage == Stage.TRAINING:
            return "waiting for it where its part is needed"
        return super().without(party)

    # -- what others say --------------------------------------------------------------------------

    def called(self, sender: str, note: str) -> None:
        call = call_in(note)
        if call is not None and call.caller:
            if call.caller != sender or sender not in self.holders:
                raise WireError("a call in the name of another party")
            self.hear_of(call, weight(None, note))
        elif call is None and not self.post.leads and self.party in self.holders:
            account = read_note(note, Account)
            if account.rows:
                raise WireError("an account of what left a party, which is for the first")
            self.told(sender, account)
        else:
            super().called(sender, note)

    def hear_of(self, call: Call, size: int) -> None:
        """A label holder that does not lead asks: this party does its part beside all else. `size`:
        bytes of memory of the call."""
        if call.number > self.heard_of.get(call.caller, 0) and not (call.account or call.over):
            if self.heeding.get(call.caller, 0) >= CALLS:
                raise WireError("more calls than can be answered")
            self.heard_of[call.caller] = call.number
            if not self.state.stage.after_training:
                return
            if not self.post.quota.take(call.caller, size):
                self.post.quota.drop(call.caller)
                return
            self.heeding[call.caller] = self.heeding.get(call.caller, 0) + 1
            self.clock.spawn(self.heed_beside(call, size), f"{self.party}: a call of {call.caller}")

    async def heed_beside(self, call: Call, size: int) -> None:
        try:
            await self.heed(call)
        finally:
            self.heeding[call.caller] -= 1
            self.post.quota.give_back(call.caller, size)

    async def heed(self, call: Call) -> None:
        before = self.version
        await super().heed(call)
        if self.version != before and self.party in self.holders:
            self.keeping.keep(END - 1)  # for a restart without the leader
            self.post.news.notify()


def call_in(note: str) -> Call | None:
    """The call in a note; None if it is anything else."""
    try:
        return read_note(note, Call)
    except WireError:
        return None
