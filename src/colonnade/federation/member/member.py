"""One party of a running federation: it trains with the others, then takes part in the test and in
answers. Here is what it does whether somebody leads (`led.py`) or nobody does (`leaderless.py`)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from colonnade.federation.member.answers import Answer, Question
from colonnade.federation.member.messages import Call
from colonnade.federation.member.row_budget import RowBudget, some_rows
from colonnade.federation.member.stage import Stage
from colonnade.federation.member.training_member import TrainingMember
from colonnade.learning.task import Part, pad_stack
from colonnade.network import ABSENT
from colonnade.network.clock import SECOND, Signal
from colonnade.network.live.network import Live
from colonnade.network.live.peers import Peer
from colonnade.network.program_counter import END, ProgramCounter
from colonnade.network.tally import Tally

log = logging.getLogger(__name__)

TESTED_WITHOUT = "tested without"
TRIES = 5  # of a test, while somebody who is there was not heard
RETURN = 3.0  # seconds that a trained party, started again, waits for the others
LOOK = 2 * SECOND  # between two looks at who has come back, while nobody asks


class Member(TrainingMember):
    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.questions: deque[Question] = deque()
        self.wake = Signal()  # there is a question
        self.asked = 0  # calls so far
        self.missed_in_test: set[str] = set()
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

    # -- the test ---------------------------------------------------------------------------------

    async def prepare_test(self) -> None:
        """Wait a while for the others and choose the version of the model. A result of an earlier
        process of this party is kept, and then there is nothing to test."""
        known = self.record.known() if self.keeping.trained_before else None
        await self.assemble(RETURN if known else self.post.returns)
        self.choose_version()
        self.state.stage = Stage.TESTING
        self.state.result = known

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
        answer = await self.ask(None)
        for _ in range(TRIES):
            if self.may_return(answer.absent):
                await self.assemble(self.post.returns)
            if not (answer.reason or self.worth_another_try(answer.absent)):
                break
            await self.clock.sleep_until(self.clock.now + SECOND)
            answer = await self.ask(None)
        return answer

    def may_return(self, absent: Iterable[str]) -> bool:
        """Whether an absent party is away, but not for long."""
        lately = self.clock.now - int(self.post.returns * SECOND)
        known = [self.post.peers[party] for party in absent if party in self.post.peers]
        return any(not peer.there and peer.since > lately for peer in known)

    def report_result(self, metrics: dict[str, float], notes: list[str]) -> None:
        rounds = self.record.rounds(self.net.round + 1)
        releases, privacy = self.algorithm.releases, {}
        if releases is not None:
            notes, privacy = list(dict.fromkeys([*notes, *releases.notes()])), releases.facts()
        self.state.result = self.record.result(metrics, rounds, notes, privacy)
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

    def absent(self, there: list[str], silent: set[str], told: dict[str, str]) -> dict[str, str]:
        """The parties that had no part in an answer, each with the reason."""
        lacking = self.lacking()
        away = {p: "away" for p, k in self.post.peers.items() if p not in there or not k.there}
        away = {p: why for p, why in away.items() if p not in there or p in silent}
        late = {p: told.get(p, "did not answer in time") for p in self.post.peers if p in silent}
        found = late | told | away | {p: why for p, why in lacking.items() if p in there}
        return {party: found[party] for party in self.post.peers if party in found}

    # -- questions --------------------------------------------------------------------------------

    async def next_question(self) -> Question | None:
        """The next question; None when a party that the test missed is back with its part."""
        while not self.questions:
            await self.clock.wait(self.wake, self.clock.now + LOOK)
            self.keeping.note()
            if self.missed_in_test and not self.questions:
                known = {party: self.post.peers[party] for party in self.missed_in_test}
                back = all(peer.there and peer.reached((END, 0)) for peer in known.values())
                if back and not self.missed_in_test & self.lacking().keys():
                    return None
        return self.questions.popleft()

    async def ask(self, ids: list[str] | None, without: frozenset[str] = frozenset()) -> Answer:
        """Predict these rows with every party that is present; None: the test rows. `without`: of
        whose columns nothing is said."""
        raise NotImplementedError

    def refusal(self, call: Call) -> str:
        """Why this party does not answer a call: it lacks rows, or their privacy budget is used up.
        Then it counts as being absent: a made-up row would be worse. "": it answers."""
        caller, why = call.caller or self.federation.leader or "", ""
        if call.ids is not None and self.own.x is not None:
            asked = dict.fromkeys(call.ids)
            unknown = [one for one in asked if one not in self.own.places]
            why = f"lacks {some_rows(unknown, len(asked))}" if unknown else ""
        if not why and self.budget is not None:
            spent = self.budget.used_up(call.ids)
            why = f"the privacy budget of {spent} is used up" if spent else ""
        if call.without and self.algorithm.sums_only:
            why = "does not answer without the columns of some party: its part in a sum would show"
        if why:
            self._unknown.add(caller, "asks about rows that are not answered about", why)
        return why

    def part(self, ids: Sequence[str] | None, caller: str = "") -> Part:
        """The rows that are asked about, as far as they are here. Who asks takes part as well, and
        does so with average columns where the privacy budget of its own is used up. `caller`: which
        label holder asks, if it is not the first."""
        part = self.algorithm.data.test
        if ids is not None:
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
            return replace(part, x=torch.zeros_like(part.x))
        self.budget.take(ids)
        return part

    def beside(
        self, origin: ProgramCounter, program: str, patience: float, without: Sequence[str] = ()
    ) -> Live:
        """A network for predictions, a program of their own beside the training."""
        net = Live(self.post, program, patience=patience)
        net.origin, net.phase, net.ledger = origin, "inference", self.record.ledger
        net.impatient, net.without = True, frozenset(without)
        return net
