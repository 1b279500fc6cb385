"""A party of a federation in which nobody leads (MAGS): every device tests for itself, and whoever
is asked for predictions calls the others.

A call goes from neighbour to neighbour. Whoever hears of it does its part at once, beside whatever
else it is doing, and waits for nobody longer than `patience`.

A device that answers hears others itself, and what it says is made without those that it did not
hear. So it tells the caller whom it did not hear, if the two are neighbours, and the caller waits
for that. After the test that all devices make together, each tells all of its neighbours.

A call names its caller, and calls of one caller are numbered, so that each is heard of once. Nobody
can check who a call that was passed on is from. A neighbour's calls are therefore taken from that
neighbour only, as long as it is there; a number far ahead of the own clock is refused; and whoever
hears a call in a neighbour's name tells that neighbour, so that its next call has a higher number.
"""

from __future__ import annotations

import logging
import zlib
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from torch import Tensor

from colonnade.common.text import printable, with_reasons
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.member.answers import Answer, Question, Refusal, Replies
from colonnade.federation.member.led import LedMember
from colonnade.federation.member.member import FAILED, TESTED_WITHOUT, Member
from colonnade.federation.member.messages import Account, Call, text
from colonnade.federation.member.several import SeveralMember, call_in
from colonnade.federation.member.stage import Stage
from colonnade.network import ABSENT, is_absent
from colonnade.network.clock import SECOND
from colonnade.network.live.messages import CALL, HEARTBEAT
from colonnade.network.live.network import Live
from colonnade.network.live.peers import Peer
from colonnade.network.live.post import DAY
from colonnade.network.parts import Version
from colonnade.network.program_counter import END, ProgramCounter
from colonnade.network.wire import WireError, read_note

log = logging.getLogger(__name__)

TESTING = ProgramCounter((END, 1))
TESTED = ProgramCounter((END, 2, 0))
COMMON = 0  # the number under which devices tell whom they did not hear in the test of all
BUSY = "busy with another version"
OWN = "messages and bytes are those that left this device"


class LeaderlessMember(Member):
    def __init__(self, *arguments: Any, life: int, **more: Any) -> None:
        super().__init__(*arguments, life=life, **more)
        self.asked = life  # so that calls of another life are not taken for new ones
        self.heard_of: dict[str, int] = {}  # the newest call of each caller
        self.busy = 0  # answers that are being worked on
        self.tested = False
        self.in_use: Version | None = None  # the version that most keep
        self.to_do: dict[str, deque[Call]] = {}  # by caller; there while one is worked off
        # In the test of all, by neighbour: whom it did not hear, and why.
        self.unheard_by: dict[str, dict[str, str]] = {}

    async def train(self, net: Live) -> None:
        """Train, unless more neighbours disagree with this device's files or rows than agree: then
        this device is the one that is wrong."""
        if len(set(self.meeting.complaints.values())) > len(self.meeting.agreeing):
            raise self.meeting.outvoted()
        await super().train(net)

    def greeted(self, sender: str, note: str) -> None:
        super().greeted(sender, note)
        strangers = len(self.meeting.strangers)
        if self.state.stage == Stage.WAITING and 2 * strangers > len(self.post.peers):
            self.leave_unsuited(self.meeting.outvoted())

    async def afterwards(self) -> None:
        await self.prepare_test()
        if self.state.result is None:
            there = [peer for peer in self.post.peers.values() if peer.there]
            most = 2 * sum(peer.reached(TESTED) for peer in there) > len(there)
            late = most or self.keeping.trained_before
            test = self.test_late if late else self.test_with_all
            metrics, away = await test()
            self.tested = True
            if away:
                await self.assemble(self.post.returns)
            if self.worth_another_try(away):
                again, missed = await self.test_late()
                if len(missed) < len(away):
                    metrics, away = again, missed
            self.state.metrics |= metrics
            notes = [*self.own.data.notes, OWN]
            notes += [f"{TESTED_WITHOUT} {with_reasons(away)}"] if away else []
            if self.version is None:
                notes.append(self.why_not())
            notes += self.about_the_model() + self.attendance.own_notes() + self.attendance.notes()
            self.report_result(metrics, notes)
        self.tell_tested()
        self.state.stage = Stage.ANSWERING
        while not self.once:
            if (question := await self.next_question()) is not None:
                question.reply(await self.ask(question))
        await self.see_off()
        self.over = True

    def tell_tested(self) -> None:
        self.post.reach(TESTED)
        for party in self.post.present():
            self.post.beat(party)
        self.tested = True

    def unsettled(self, party: str, peer: Peer, patience: int) -> bool:
        """Before its first test a device does not wait for an absent one once others have begun."""
        begun = any(k.there and k.reached(TESTING) for k in self.post.peers.values())
        hurry = begun and not self.tested and not peer.there
        return super().unsettled(party, peer, patience) and not hurry

    def choose_version(self) -> None:
        """Of the versions that this device keeps, the one that most neighbours keep as well; of
        two, the best. A device that lacks a version which most of those who are there keep was away
        when it was made: it has no part of the model and cannot answer."""
        there = [self.post.parts_of[p] for p in self.post.present() if p in self.post.parts_of]
        all_ = [self.post.parts, *there]
        best = self.algorithm.training.progress["best"]

        def support(version: Version) -> int:
            return sum(parts.have(version) for parts in all_)

        others = {kept.version for parts in there for kept in parts.kept}
        mine = {kept.version for kept in self.post.parts.kept}
        most = max(others - mine, key=support, default=None)
        if mine:
            self.in_use = max(mine, key=lambda v: (support(v), v[1] == best, v))
        if most is not None and 2 * support(most) > len(all_):
            self.in_use = max([*mine, most], key=support)
        if self.in_use is None or not self.keeping.use(self.in_use):
            log.warning("%s", self.why_not())

    def why_not(self) -> str:
        """Why this device cannot answer."""
        why = "untrained" if self.in_use is None else self.post.parts.lack(self.in_use)
        return f"{self.party} has no part of the model of its neighbours: {why or 'untrained'}"

    async def test_with_all(self) -> tuple[dict[str, float], dict[str, str]]:
        """All devices test together once they are trained. Returns the metrics, and which devices
        were missed, with the reason."""
        if self.version is None or not self.algorithm.data.test.rows:
            return {}, {}
        there = self.post.present()
        if not self.ready_for(self.version):
            return {}, {self.party: BUSY}
        self.busy += 1
        origin = ProgramCounter((*TESTING, *self.version))
        net, done = self.quickly(origin, "test"), origin.at(END, 0)
        metrics = await self.algorithm.test(net)
        self.busy -= 1
        everybody = list(self.post.peers)  # one that came meanwhile may have heard this device
        self.tell_unheard(COMMON, net.silent, everybody)
        self.tell_done(done, everybody)
        told, heard = Replies(), [party for party in there if party not in net.silent]
        limit = self.clock.now + int(self.patience * SECOND)
        told.unheard = await self.hear_out(done, heard, limit)
        for party in heard:
            told.unheard |= self.unheard_by.get(party, {})
        self.post.passes(TESTING.at(END, 0), forget=True)
        return metrics, self.absent(there, net.silent, told)

    async def test_late(self) -> tuple[dict[str, float], dict[str, str]]:
        """A device that was away during the common test asks the others for their part again."""
        part = self.algorithm.data.test
        if self.version is None or not part.rows:
            return {}, {}
        answer = await self.ask_until_heard()
        known = not is_absent(answer.logits)
        return self.algorithm.measure(answer.logits, part.y, "test") if known else {}, answer.absent

    async def see_off(self) -> None:
        """Stay until all neighbours are tested, or until those that are away had time to return: a
        device that leaves at once would be missing in their tests."""
        done: set[str] = set()
        limit = self.clock.now + int(self.post.returns * SECOND)
        while self.clock.now < limit:
            done |= {p for p, peer in self.post.peers.items() if peer.reached(TESTED)}
            if len(done) == len(self.post.peers):
                break
            await self.clock.wait(self.post.news, limit)

    # -- questions --------------------------------------------------------------------------------

    async def ask(self, question: Question) -> Answer:
        """Predict these rows at this device, with every device that is present."""
        self.asked += 1
        call = self.next_call(question)
        there = self.post.present()
        nothing = cast(Tensor, ABSENT)
        if not self.ready_for(call.version):
            return Answer(nothing, {self.party: self.post.parts.newest()})
        told = self.open_call(call)
        self.pass_on(call, there)
        done, begun = self.origin_of(call).at(END, 0), self.clock.now
        logits, silent = nothing, set[str]()
        if not call.check:
            self.busy += 1
            net = self.network(call)
            logits, silent = await self.algorithm.predict(net, self.part(call.ids)), net.silent
            self.busy -= 1
        since = self.clock.now if call.seconds is None else begun
        limit = since + int(self.patience_for(call.seconds) * SECOND)
        untold = await self.hear_out(done, [p for p in there if p not in silent], limit)
        if call.seconds is None:  # with a deadline, an answer does not wait for all to tell
            told.unheard |= untold
        del self.replies[call.number]
        self.post.passes(done, forget=True)
        self.keeping.note()
        return Answer(logits, self.absent(there, silent, told), "", told.refused)

    def next_call(self, question: Question) -> Call:
        return msgspec.structs.replace(super().next_call(question), caller=self.party)

    def ready_for(self, version: Version | None) -> bool:
        """One version at a time: while this device answers for one, it does not for another. Who
        calls chooses the version; this device's own choice stays as it is."""
        versions = self.algorithm.training.versions
        if version is None or (self.busy and version != versions.used):
            return False
        return versions.use(version)

    def called(self, sender: str, note: str) -> None:
        if (call := call_in(note)) is None:
            account = read_note(note, Account)
            if account.rows:
                raise WireError("an account of what left a device, which nobody collects")
            self.hear_reply(sender, account)
            return
        if call.caller not in self.federation.members:
            raise WireError("a call of somebody who is not a member")
        own = call.caller == self.party
        if call.number > self.post.latest() + (DAY if own else 0):
            raise WireError("a call to come: its clock is days ahead of ours, or ours is wrong")
        if own:  # others have heard of a later call of ours
            self.asked = max(self.asked, call.number)
            return
        neighbour = self.post.peers.get(call.caller)
        if neighbour is not None and neighbour.there and sender != call.caller:
            if call.number > self.heard_of.get(call.caller, 0):  # before its own word, or forged
                self.pass_on(Call(call.number, caller=call.caller), [call.caller])
            return
        self.hear_of(call, sender)

    def hear_of(self, call: Call, sender: str) -> None:
        newest = self.heard_of.get(call.caller, 0)
        if call.number <= newest:
            if sender == call.caller and call.number < newest:  # its clock was set back
                self.pass_on(Call(newest, caller=sender), [sender])
            return
        self.heard_of[call.caller] = call.number
        others = [p for p in self.post.present() if p not in (sender, call.caller)]
        if not call.check:
            self.pass_on(call, others)
        if not self.state.stage.after_training:
            return  # to forget the call would drop the training's messages, which come before it
        if (refusal := self.refusal(call)).why or call.check:
            self.decline(call, refusal)
        elif call.caller in self.to_do:
            self.to_do[call.caller].append(call)
        else:
            self.to_do[call.caller] = deque([call], maxlen=1)  # it has given up those before
            self.clock.spawn(self.work_off(call.caller), f"calls of {call.caller}")

    def decline(self, call: Call, refusal: Refusal) -> None:
        """Take no part in a call, so that nobody waits for this device. A neighbour that calls is
        told why."""
        if refusal.why:
            rows, why = list(refusal.rows), printable(refusal.why)
            self.tell_unheard(call.number, {self.party}, [call.caller], why=why, refused=rows)
        self.tell_done(self.origin_of(call).at(END, 0), self.post.present())
        self.forget(call)

    def tell_unheard(
        self, number: int, silent: set[str], parties: Sequence[str], **more: Any
    ) -> None:
        """Tell neighbours whom this device did not hear in a call, or in the test of all."""
        told = Account(number=number, silent=sorted(silent), **more)
        for party in parties:
            if silent and party in self.post.peers:
                self.post.tell(party, CALL, note=text(told))

    def tell_done(self, done: ProgramCounter, parties: Sequence[str]) -> None:
        """Tell neighbours that this device has done its part of a call, or of the test of all."""
        self.post.reach(done)
        for party in parties:
            if party in self.post.peers:
                self.post.tell(party, HEARTBEAT, done)

    @property
    def may_be_missed(self) -> set[str]:
        """This device as well: what others say is then made without its columns."""
        return {*self.post.peers, self.party}

    def hear_reply(self, sender: str, account: Account) -> None:
        if account.number != COMMON:
            super().hear_reply(sender, account)
            return
        replies = Replies()
        self.note_reply(replies, sender, account)
        self.unheard_by[sender] = replies.unheard

    def changed(self, party: str, there: bool) -> None:
        super().changed(party, there)
        if there and party in self.heard_of:  # others may have called in its name
            self.pass_on(Call(self.heard_of[party], caller=party), [party])

    async def work_off(self, caller: str) -> None:
        calls = self.to_do[caller]
        while calls:
            call = calls.pop()
            if not self.ready_for(call.version):
                self.decline(call, Refusal(BUSY))
                continue
            self.busy += 1
            net = self.network(call)
            try:
                await self.algorithm.predict(net, self.part(call.ids))
                self.tell_unheard(call.number, net.silent - {self.party}, [caller])
                self.keeping.note()
            except Exception as error:
                self.post.refuse(caller, "a call that cannot be answered", error)
                self.tell_unheard(call.number, {self.party}, [caller], why=FAILED)
            finally:
                self.busy -= 1
            self.tell_done(self.origin_of(call).at(END, 0), [caller])
            self.forget(call)
        del self.to_do[caller]

    def forget(self, call: Call) -> None:
        """Drop the messages of a call, those that will still come included."""
        self.post.passes(self.origin_of(call).at(END, 0), forget=True)

    def pass_on(self, call: Call, parties: list[str]) -> None:
        for party in parties:
            self.post.tell(party, CALL, note=text(call))

    def network(self, call: Call) -> Live:
        patience = self.patience_for(call.seconds)
        program = f"call of {call.caller}"
        return self.limited(
            self.quickly(self.origin_of(call), program, call.without, patience), call
        )

    def origin_of(self, call: Call) -> ProgramCounter:
        """Calls of different devices go on side by side, each in a branch of its own; what is sent
        for other rows, because somebody told of another call, is not taken for an answer."""
        rows = zlib.crc32("\x1f".join([*(call.ids or []), *call.without]).encode())
        number = ~self.federation.members.index(call.caller)
        return ProgramCounter((END, number, call.number, rows, *(call.version or ())))

    def quickly(
        self,
        origin: ProgramCounter,
        program: str,
        without: Sequence[str] = (),
        patience: float | None = None,
    ) -> Live:
        for peer in self.post.peers.values():
            if peer.reached((END, 0)):  # who was late in training need not be so now
                peer.late.clear()
            elif peer.late:
                peer.late[origin.branch] = False
        return self.beside(
            origin, program, self.patience if patience is None else patience, without
        )


def member_kind(federation: Federation) -> type[Member]:
    """The class of a party of this federation."""
    if federation.leader is None:
        return LeaderlessMember
    return SeveralMember if federation.roles.several else LedMember
