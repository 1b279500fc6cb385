"""One party of a running federation: it trains with the others, then takes part in the test and in
answers. Here is what it does whether somebody leads (`led.py`) or nobody does (`leaderless.py`)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import msgspec
import torch

from colonnade.common.text import printable
from colonnade.federation.member.answers import Answer, Question, Refusal, Replies
from colonnade.federation.member.messages import Account, Call
from colonnade.federation.member.row_budget import RowBudget, some_rows
from colonnade.federation.member.stage import Stage
from colonnade.federation.member.training_member import TrainingMember
from colonnade.federation.member.truths import Truth, truths
from colonnade.learning.task import Part, pad_stack
from colonnade.network import ABSENT
from colonnade.network.clock import SECOND, Signal
from colonnade.network.live.network import Live
from colonnade.network.live.peers import Peer
from colonnade.network.program_counter import END, ProgramCounter
from colonnade.network.tally import Tally
from colonnade.network.wire import WireError

log = logging.getLogger(__name__)

TESTED_WITHOUT = "tested without"
FAILED = "could not compute its part; its log says why"
UNTOLD = "did not tell whom it heard"
CHANGED = "the file has changed since this party was started; start it again to read it"
TRIES = 5  # of a test, while somebody who is there was not heard
RETURN = 3.0  # seconds that a trained party, started again, waits for the others
LOOK = 2 * SECOND  # between two looks at who has come back, while nobody asks


class Member(TrainingMember):
    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.questions: deque[Question] = deque()
        self.wake = Signal()  # there is a question
        self.asked = 0  # calls so far
        self.replies: dict[int, Replies] = {}  # to calls of this party that are open, by number
        self.missed_in_test: set[str] = set()
        self.file_changed = False  # as it was when it was last looked at
        self._unknown = Tally(log)
        self.budget = self._budget()

    def _budget(self) -> RowBudget | None:
        """Of the columns here, where noise is added to what is sent of them."""
        releases, rows = self.algorithm.releases, self.federation.rows
        if releases is None or self.own.x is None:
            return None
        aligned = len(self.own.ids) if rows is None else rows.size
        return RowBudget(releases, self.own, aligned, self.folder)

    def resume(self, net: Live) -> None:
        super().resume(net)
        if self.budget is not None:
            self.budget.take_up()

    @property
    def patience(self) -> float:
        return self.federation.network.patience

    @cached_property
    def truths(self) -> Mapping[str, Truth]:
        """The labels that this party knows, by row id."""
        holds = self.party in self.federation.label_holders
        return truths(self.federation, self.own) if holds else {}

    # -- the test ---------------------------------------------------------------------------------

    async def prepare_test(self) -> None:
        """Wait a while for the others and choose the version of the model. A result of an earlier
        process of this party is kept, and then there is nothing to test."""
        known = self.record.known() if self.keeping.trained_before else None
        await self.assemble(RETURN if known else self.post.returns)
        self.choose_version()
        self.state.stage = Stage.TESTING
        self.state.result = known
        if known is not None and not self.algorithm.side_by_side:  # there a round is an epoch
            self.state.round = int(known.cost["rounds"] or 0)
            self.state.rounds = max(self.state.rounds, self.state.round)

    def choose_version(self) -> None:
        """Decide which version of the model is used from now on, and load it."""
        raise NotImplementedError

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
        """Whether a party may still come, or has not yet told which parts it keeps."""
        if not peer.there:
            return self.clock.now - peer.since < patience
        return not peer.reached((END, 0)) or party not in self.post.parts_of

    def worth_another_try(self, absent: Mapping[str, str]) -> bool:
        """Whether an absent party is present again and has its part of the model."""
        there = {self.party, *self.post.present()}
        return bool(absent.keys() & there - self.lacking().keys())

    async def ask_until_heard(self) -> Answer:
        """The test rows; again if there was no answer, or if a party that has its part was not
        heard. A party that has just returned may not have found the others yet, and one that fell
        a moment ago may return: it is waited for."""
        answer = await self.ask(Question(None))
        for _ in range(TRIES):
            if self.may_return(answer.absent):
                await self.assemble(self.post.returns)
            if not (answer.reason or self.worth_another_try(answer.absent)):
                break
            await self.clock.sleep_until(self.clock.now + SECOND)
            answer = await self.ask(Question(None))
        return answer

    def may_return(self, absent: Iterable[str]) -> bool:
        """Whether an absent party is away, but not for long."""
        lately = self.clock.now - int(self.post.returns * SECOND)
        known = [self.post.peers[party] for party in absent if party in self.post.peers]
        return any(not peer.there and peer.since > lately for peer in known)

    def report_result(self, metrics: dict[str, float], notes: list[str]) -> None:
        rounds = self.record.rounds(self.net.round + 1)
        releases = self.algorithm.releases
        if releases is not None:
            notes = list(dict.fromkeys([*notes, *releases.notes()]))
        self.state.result = self.record.result(metrics, rounds, notes, self.algorithm.privacy())
        if (curves := self.algorithm.test_curves) is not None:
            self.record.curves = msgspec.structs.replace(curves, names=list(self.own.classes))
        self.keeping.attempt(self.record.keep)

    # -- who has a part in it ---------------------------------------------------------------------

    def lacking(self) -> dict[str, str]:
        """The parties that have no part of the model in use, each with the reason."""
        if self.version is None:
            return {}
        known = {party: self.post.parts_of.get(party) for party in self.post.peers}
        told = {p: parts.lack(self.version) for p, parts in known.items() if parts is not None}
        missed = {p for parts in [self.post.parts, *known.values()] if parts for p in parts.missed}
        made = dict.fromkeys(sorted(missed), "the model was made without its part")
        return made | {party: why for party, why in told.items() if why}

    def about_the_model(self) -> list[str]:
        return [f"the model lacks {party}: {why}" for party, why in self.lacking().items()]

    def absent(self, there: list[str], silent: set[str], told: Replies) -> dict[str, str]:
        """The parties that had no part in an answer, each with the reason."""
        lacking = self.lacking()
        away = {p: "away" for p, k in self.post.peers.items() if p not in there or not k.there}
        away = {p: why for p, why in away.items() if p not in there or p in silent}
        late = {p: "did not answer in time" for p in self.post.peers if p in silent}
        lacking = {p: why for p, why in lacking.items() if p in there}
        found = told.unheard | late | told.silent | away | lacking
        return {party: found[party] for party in (*self.post.peers, self.party) if party in found}

    # -- questions --------------------------------------------------------------------------------

    async def next_question(self) -> Question | None:
        """The next question; None when a party that the test missed is back with its part."""
        while not self.questions:
            await self.clock.wait(self.wake, self.clock.now + LOOK)
            self.keeping.note()
            if self.missed_in_test and not self.questions:
                known = [self.post.peers[party] for party in self.missed_in_test]
                back = all(peer.there and peer.reached((END, 0)) for peer in known)
                if back and not self.missed_in_test & self.lacking().keys():
                    return None
        return self.questions.popleft()

    async def ask(self, question: Question) -> Answer:
        """Predict the rows of a question with every party that is present."""
        raise NotImplementedError

    def next_call(self, question: Question) -> Call:
        return Call(
            self.asked,
            question.ids,
            version=self.version,
            without=sorted(question.without),
            check=question.check,
            seconds=question.seconds,
        )

    def open_call(self, call: Call) -> Replies:
        """From now on, what the others say of a call is noted. A party that asks takes part itself;
        where the privacy budget of its own rows is used up, it says so like the others."""
        replies = self.replies[call.number] = Replies()
        if self.budget is not None and call.ids and (spent := set(self.budget.spent(call.ids))):
            words = some_rows([*spent], len(set(call.ids)))
            replies.silent[self.party] = f"the privacy budget of {words} is used up"
            places = [i for i, one in enumerate(call.ids) if one in spent]
            replies.refused[self.party] = frozenset(places)
        return replies

    def hear_reply(self, sender: str, account: Account) -> None:
        """Note what another party says of an open call: whom it did not hear, what it refuses."""
        replies = self.replies.get(account.number)
        self.note_reply(Replies() if replies is None else replies, sender, account)

    def note_reply(self, replies: Replies, sender: str, account: Account) -> None:
        """Add what an account says to `replies`; an account that cannot be is refused."""
        others = [party for party in account.silent if party != sender]
        if not all(self.federation.hears(sender, party) for party in others):
            raise WireError("an account of somebody who sends it nothing")
        for party in self.may_be_missed & set(account.silent):
            if party == sender:
                replies.silent.setdefault(party, printable(account.why) or FAILED)
            else:
                replies.unheard.setdefault(party, f"not heard by {sender}")
        if account.refused:
            replies.refused[sender] = frozenset(account.refused)

    @property
    def may_be_missed(self) -> set[str]:
        """The parties of which it matters here that another party did not hear them."""
        return {*self.post.peers}

    async def hear_out(
        self, done: ProgramCounter, parties: Sequence[str], limit: int
    ) -> dict[str, str]:
        """Wait until these parties are done with a call and have told whom they did not hear.
        Returns those that do not tell in time, or leave before: they may have computed without
        others."""
        waiting = {party: self.post.peers[party] for party in parties}
        while True:
            waiting = {party: peer for party, peer in waiting.items() if not peer.reached(done)}
            if not any(peer.there for peer in waiting.values()) or self.clock.now >= limit:
                break
            await self.clock.wait(self.post.news, limit)
        return dict.fromkeys(waiting, UNTOLD)

    def patience_for(self, seconds: float | None) -> float:
        """How long others are waited for where an answer is needed in so many seconds."""
        return self.patience if seconds is None else min(self.patience, seconds)

    def refusal(self, call: Call) -> Refusal:
        """Why this party does not answer a call: it lacks rows, or their privacy budget is used up.
        Then it counts as being absent: a made-up row would be worse. It tells which rows these are,
        so that the others can be asked about again."""
        caller, why = call.caller or self.federation.leader or "", ""
        ids = dict.fromkeys(call.ids or ())
        bad = [one for one in ids if self.own.x is not None and one not in self.own.places]
        if bad:
            why = f"lacks {some_rows(bad, len(ids))}"
        if self.budget is not None:
            spent = self.budget.used_up(call.ids)
            why = why or (f"the privacy budget of {spent} is used up" if spent else "")
            bad += self.budget.spent(call.ids or ())
        if call.without and self.algorithm.sums_only:
            why = "does not answer without the columns of some party: its part in a sum would show"
            bad = []
        if not why:
            return Refusal()
        self._unknown.add(caller, "asks about rows that are not answered about", why)
        refused = set(bad)
        return Refusal(why, tuple(i for i, one in enumerate(call.ids or ()) if one in refused))

    def part(self, ids: Sequence[str] | None, caller: str = "") -> Part:
        """The rows that are asked about, as far as they are here. Who asks takes part as well, and
        does so with average columns where the privacy budget of its own is used up. `caller`: which
        label holder asks, if it is not the first."""
        part = self.algorithm.data.test
        if ids is not None:
            self._look_at_file()
            x: Any = ABSENT
            if self.own.x is not None:
                x = pad_stack([self.own.rows(ids)], max(self.algorithm.task.widths))
            holders = self.algorithm.labels.parties
            asker = holders.index(caller) if caller in holders else 0
            part = Part(x, ABSENT, len(ids), asker)
        if self.budget is None:
            return part
        if spent := self.budget.used_up(ids):
            kind = "asks about rows whose privacy budget is used up; average columns are sent"
            self._unknown.add(self.party, kind, spent)
            return self._average_where_spent(part, ids)
        self.budget.take(ids)
        return part

    def _look_at_file(self) -> None:
        """Training and answers are about the rows as they were read when this party was started."""
        features = self.own.features
        self.file_changed = features is not None and features.file_changed
        if features is not None and self.file_changed:
            self._unknown.add(self.party, CHANGED, features.kept.file)

    def remarks(self) -> list[str]:
        return [*super().remarks(), *([CHANGED] if self.file_changed else [])]

    async def take_part(self, resume_at: int) -> None:
        await super().take_part(resume_at)
        self._look_at_file()

    def _average_where_spent(self, part: Part, ids: Sequence[str] | None) -> Part:
        """Average columns, which are zeros, for the rows whose budget is used up; the others leave
        as they are."""
        assert self.budget is not None
        if ids is None:
            return replace(part, x=torch.zeros_like(part.x))
        spent = set(self.budget.spent(ids))
        kept = [one for one in ids if one not in spent]
        if kept:
            self.budget.take(kept)
        leaves = torch.tensor([one not in spent for one in ids])
        return replace(part, x=part.x * leaves[:, None])

    def beside(
        self, origin: ProgramCounter, program: str, patience: float, without: Sequence[str] = ()
    ) -> Live:
        """A network for predictions, a program of their own beside the training."""
        net = Live(self.post, program, patience=patience)
        net.origin, net.phase, net.ledger = origin, "inference", self.record.ledger
        net.impatient, net.without = True, frozenset(without)
        return net

    def limited(self, net: Live, call: Call) -> Live:
        """Where the caller needs the answer in so many seconds, all waits together end by then."""
        if call.seconds is not None:
            net.until = self.clock.now + int(net.patience * SECOND)
        return net
