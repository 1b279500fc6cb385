"""What the leader and the other parties have in common while they match their rows.

A run goes from the leader to each party and back, in parts: the asking side sends `Ask`, the other
one an `Answer`. An answer is a function of its question, so that a lost one may be asked for again.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from colonnade.errors import ColonnadeError
from colonnade.federation.agreement.alignment_file import Addition, Alignment
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.member.aligning.adding import to_go_on_from
from colonnade.federation.member.aligning.carrying import PAUSE, Carrier, Failed
from colonnade.federation.member.aligning.messages import (
    MARK,
    Answer,
    Any_,
    Ask,
    Carried,
    Carry,
    Hello,
    Stage,
    Stop,
    decode,
    encode,
)
from colonnade.federation.member.own_keys import outside
from colonnade.network.clock import SECOND, Signal
from colonnade.network.tally import Tally
from colonnade.network.transport.transport import Transport
from colonnade.network.wire import WireError
from colonnade.privacy.alignment.keys import KeyColumn, token
from colonnade.privacy.alignment.protocols import (
    PART,
    Asking,
    Kind,
    NotOfThisProtocol,
    parts,
    protocol,
)

log = logging.getLogger(__name__)

WINDOW = 8  # parts that are asked for and not answered yet
RESEND = 60 * SECOND  # until a part is asked for again
WAITING = 256  # messages of one party that wait to be read
RUNS = (
    16  # in which one party is answered, in one life of this process: in each it may try out keys
)
MANY, TIMES = 10_000, 10  # more keys than this, and so many times the own ones, are told in the log

T = TypeVar("T")
Watch = Callable[[str, str, int, int], None]  # takes a party, what is done, how far, of how many


class Lost(ColonnadeError):
    """A party has left, or does not do its part; the run has to begin anew."""

    def __init__(self, party: str, why: str = "") -> None:
        self.party, self.why = party, why
        super().__init__(f"{party}: {why or 'away'}")


class Answers:
    """The answering side of one stage with one party. It answers about as many keys as the other
    side has told, and about each part once: a second question would try out other keys."""

    def __init__(self, kind: Kind, run: bytes, tokens: Sequence[str], theirs: int) -> None:
        self.side = None if kind.worker else kind.answering(run)
        self.own, self.theirs = parts(tokens), theirs
        self.total = max(len(self.own), pieces(theirs))
        self.seen: dict[int, bytes] = {}

    def to(self, ask: Ask) -> Answer:
        mark = hashlib.blake2b(ask.request, digest_size=16).digest()
        if self.side is None:
            raise NotOfThisProtocol("a question of another protocol")
        if ask.part >= self.total or self.seen.setdefault(ask.part, mark) != mark:
            raise NotOfThisProtocol("a question for other keys than it told")
        setup = self.side.setup(self.own[ask.part]) if ask.part < len(self.own) else b""
        most = min(PART, self.theirs - ask.part * PART)
        answer = self.side.answer(ask.request, most) if most > 0 else b""
        return Answer(ask.run, ask.stage, ask.part, setup, answer)


class Side:
    """One party. `keys`: None if it has no rows. `keep`: writes the alignment down. `before`: the
    alignment that rows are added to; None: all rows are matched."""

    def __init__(
        self,
        federation: Federation,
        transport: Transport,
        keys: KeyColumn | None,
        keep: Callable[[Alignment], None],
        watch: Watch = lambda party, what, done, total: None,
        before: Alignment | None = None,
    ) -> None:
        rows = federation.rows
        assert rows is not None
        assert rows.match is not None
        self.federation, self.transport, self.party = federation, transport, transport.party
        self.clock, self.keys, self.keep, self.watch = transport.clock, keys, keep, watch
        self.kind, self.kind_name = protocol(rows.match), rows.match
        self.every_key, self.before = keys, before
        self.addition: Addition | None = None  # what came of it, where rows are added
        self.go_on_from(before)
        self.run = b""
        self.news, self.refused, self.seen = Signal(), Tally(log), Tally(log, first=20)
        self.inboxes: dict[str, deque[Any_]] = {
            party: deque(maxlen=WAITING) for party in federation.members if party != self.party
        }
        self.lives: dict[str, list[int]] = {party: [] for party in self.inboxes}
        self.bytes = 0  # that left this party

    def go_on_from(self, before: Alignment | None) -> None:
        """Match the keys that are not in this alignment; None: all keys."""
        self.base, keys = before, self.every_key
        if keys is not None and before is not None:
            keys = outside(keys, before.rows)
        self.keys = keys
        # In a random order: the place of a key in the file is nobody's business.
        self.places = list(range(len(keys.keys))) if keys is not None else []
        secrets.SystemRandom().shuffle(self.places)
        self.tokens = [token(keys.keys[place]) for place in self.places] if keys else []

    # -- messages --------------------------------------------------------------------------------

    def listen(self, life: int = 0) -> None:
        self.transport.listen(self.deliver, self.notice, life)

    def deliver(self, sender: str, data: bytes) -> None:
        """Whatever arrives: a message waits to be read, anything else is counted and refused."""
        if sender not in self.inboxes:
            return
        try:
            message = decode(data)
        except WireError as error:
            if not data.startswith(MARK):
                self.other_message(sender)
            self.refused.add(sender, f"refused: {error.kind}", error.detail)
            return
        self.inboxes[sender].append(message)
        self.news.notify()

    def notice(self, party: str, there: bool, life: int) -> None:
        if party not in self.lives:
            return
        known = self.lives[party]
        if there and life not in known:
            known.append(life)
        elif not there and life in known:
            known.remove(life)
        self.news.notify()

    def other_message(self, sender: str) -> None:
        """A party sent what belongs to a training."""
        return None

    def send(self, party: str, message: Any_) -> None:
        data = encode(message)
        self.bytes += len(data)
        self.transport.publish(party, data)

    def life_of(self, party: str) -> int | None:
        return self.lives[party][0] if self.lives[party] else None

    async def next(self, party: str, *kinds: type[T], until: int | None = None) -> T | None:
        """The next message of these kinds that belongs to the run; None when the time is over."""
        limit = self.clock.now + RESEND if until is None else until
        while True:
            while self.inboxes[party]:
                message = self.inboxes[party].popleft()
                if isinstance(message, kinds) and getattr(message, "run", self.run) == self.run:
                    return message
                self.unexpected(party, message)
            self.check_there(party)  # after what it had sent before it left
            if self.clock.now >= limit:
                return None
            await self.clock.wait(self.news, limit)

    def check_there(self, party: str) -> None:
        """Lost, if a party is no more the one that the run began with."""
        raise NotImplementedError

    def unexpected(self, party: str, message: Any_) -> None:
        """A message that nothing waits for: of an earlier run, or one that changes what is done."""
        return None

    async def breathe(self) -> None:
        """After a computation: let other tasks go on, and messages come in."""
        await self.clock.sleep_until(self.clock.now)

    # -- a stage ----------------------------------------------------------------------------------

    async def carry(
        self,
        party: str,
        stage: Stage,
        mine: Sequence[str],
        theirs: int,
        first: Carry | None = None,
    ) -> list[int]:
        """A stage of a protocol that a process of its own runs. `first`: a message of the party
        that asks, if that is not this one; then this one finds nothing."""
        carrier = Carrier(
            self.run,
            stage,
            self.kind.worker,
            lambda message: self.send(party, message),
            asks=first is None,
            most=len(mine) + theirs,
        )
        try:
            carrier.start(mine)
            if first is not None:
                carrier.take(first)
            while not carrier.pump():
                until = self.clock.now + PAUSE
                message = await self.next(party, Carry, Carried, until=until)
                if message is not None:
                    carrier.take(message)
            return carrier.found() if first is None else []
        except Failed as error:
            log.warning("%s: %s. %s", self.kind_name, error, carrier.last_words())
            why = f"{self.kind_name}: {error}"
            self.send(party, Stop(why))
            raise Lost(party, why) from error
        finally:
            carrier.close()
            self.watch(party, stage if first is None else "answer", 1, 1)

    async def ask(self, party: str, stage: Stage, mine: Sequence[str], theirs: int) -> list[int]:
        """Which of these keys another party has, of which it has told how many it has."""
        if not mine or not theirs:
            return []
        if self.kind.worker:
            return await self.carry(party, stage, mine, theirs)
        side, own = self.kind.asking(self.run), parts(mine)
        total, asked = max(len(own), pieces(theirs)), 0
        waiting: dict[int, Ask] = {}
        answers: dict[int, Answer] = {}
        while len(answers) < total:
            while asked < total and len(waiting) < WINDOW:
                request = side.request(own[asked]) if asked < len(own) else b""
                waiting[asked] = Ask(self.run, stage, asked, request)
                self.send(party, waiting[asked])
                asked += 1
                await self.breathe()
            answer = await self.next(party, Answer)
            if answer is None:
                self.send(party, waiting[min(waiting)])
            elif answer.stage == stage and waiting.pop(answer.part, None) is not None:
                answers[answer.part] = answer
                self.watch(party, stage, len(answers), 2 * total)
        ordered = [answers[part] for part in range(total)]
        return await self._matched(party, stage, side, own, ordered, theirs)

    async def _matched(
        self,
        party: str,
        stage: Stage,
        side: Asking,
        own: list[Sequence[str]],
        told: list[Answer],
        theirs: int,
    ) -> list[int]:
        found: list[int] = []
        try:
            side.learn([answer.setup for answer in told[: pieces(theirs)]], theirs)
            for part, keys in enumerate(own):
                found += [part * PART + place for place in side.matched(keys, told[part].answer)]
                self.watch(party, stage, len(told) + part + 1, 2 * len(told))
                await self.breathe()
        except NotOfThisProtocol as error:
            raise Lost(party, f"its answers are no part of the protocol: {error}") from error
        self.watch(party, stage, 2 * len(told), 2 * len(told))
        return found

    def reply(self, party: str, answers: Answers, ask: Ask) -> None:
        """Answer a question; one that is no part of the protocol is refused."""
        try:
            self.send(party, answers.to(ask))
        except NotOfThisProtocol as error:
            self.refused.add(party, "refused: a question that is no part of the protocol", error)
        else:
            self.watch(party, "answer", len(answers.seen), answers.total)

    def hello(self) -> Hello:
        kind = "" if self.keys is None else self.kind_of_keys()
        outside = to_go_on_from(self.before, self.every_key)
        return Hello(self.federation.digests, len(self.tokens), kind, outside)

    def matched_before(self, party: str) -> int:
        """How many keys of a party take no part because they are in the alignment."""
        if self.base is None:
            return 0
        held = self.base.held.get(party)
        return len(self.base.rows) if held is None else int(held.sum())

    def too_many(self, party: str, keys: int) -> str:
        """Why so many keys of another party are refused; "" if they are not. Many more than here
        are told: whoever makes up keys finds out which of them are common."""
        assert self.federation.rows is not None
        most = self.federation.rows.most_keys
        keys += self.matched_before(party)
        mine = len(self.tokens) + self.matched_before(self.party)
        if most is not None and keys > most:
            return (
                f"{party} has {keys:,} keys, and rows.most_keys = {most:,} in the federation file"
            )
        if keys > MANY and keys > TIMES * mine and self.keys is not None:
            kind = f"has {keys:,} keys, for {mine:,} here; made-up keys would show which"
            self.seen.add(party, f"{kind} of them are here. Is that so? See rows.most_keys")
        return ""

    def kind_of_keys(self) -> Literal["numbers", "text"]:
        """As the federation file declares it, or as the file shows."""
        assert self.federation.rows is not None
        assert self.keys is not None
        return self.federation.rows.keys or self.keys.kind


def pieces(keys: int) -> int:
    """In how many parts so many keys come."""
    return -(-keys // PART)
