"""A party that is not the leader: it answers the leader's questions, then asks which rows all
parties have.

It learns how many keys the leader has, and which of its own rows are at every party; not which rows
it shares with the leader alone, nor anything of the rows of others. With `rows.partial` it learns
which rows it shares with the leader, and how many the leader shares with any party.
"""

from __future__ import annotations

import logging
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from colonnade.common.text import printable
from colonnade.data.rows import Indices
from colonnade.errors import ColonnadeError, Unsuited
from colonnade.federation.agreement.alignment_file import ADD, Alignment, Facts
from colonnade.federation.agreement.alignment_file import AGAIN as ANEW
from colonnade.federation.member.aligning.adding import addition_of
from colonnade.federation.member.aligning.messages import (
    Any_,
    Ask,
    Begin,
    Carry,
    Commit,
    Greet,
    Kept,
    Over,
    Ready,
    Stop,
    Tell,
)
from colonnade.federation.member.aligning.side import RUNS, Answers, Lost, Side
from colonnade.federation.member.own_keys import digest_of_used
from colonnade.network.clock import SECOND
from colonnade.privacy.alignment.keys import common_order

log = logging.getLogger(__name__)

AGAIN = 2 * SECOND  # between two greetings
FAREWELL = 60 * SECOND  # that a party with an alignment waits for the others


class Anew(ColonnadeError):
    """The leader has begun another run."""

    def __init__(self, begin: Begin) -> None:
        self.begin = begin
        super().__init__("another run")


class Follower(Side):
    """`rows`: of its file."""

    def __init__(self, *arguments: Any, leader: str, rows: int, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.leader, self.rows = leader, rows
        assert self.federation.rows is not None
        self.partial = self.federation.rows.partial
        self.life: int | None = None  # of the leader
        self.kept: Alignment | None = None
        self.confirmed = False  # the leader has said that all have kept what was found
        self.runs = 0  # in which the leader was answered
        self.theirs = 0  # keys of the leader

    async def run_to_the_end(self) -> Alignment:
        while True:
            begin = await self.meet()
            try:
                return await self.take_part(begin)
            except Lost as lost:
                if self.kept is not None:
                    return self.kept
                self.seen.add(self.leader, "away; waiting for it", lost.why)

    def check_confirmed(self) -> None:
        """ColonnadeError: rows were added here, and the leader may not have them."""
        if self.addition is not None and self.addition.rows and not self.confirmed:
            raise ColonnadeError(
                f"{self.party}: {self.leader} left before it said that everybody has the new rows; "
                "they are kept here. Run colonnade align --add once more, at every party"
            )

    async def meet(self) -> Begin:
        """Greet the leader until it begins."""
        while True:
            self.life = self.life_of(self.leader)
            if self.life is None:
                self.watch("", f"waiting for {self.leader}", 0, 0)
                await self.clock.wait(self.news)
                continue
            self.watch("", f"waiting for {self.leader} to begin", 0, 0)
            self.send(self.leader, self.hello())
            try:
                await self.next(self.leader, until=self.clock.now + AGAIN)
            except Anew as anew:
                return anew.begin
            except Lost:
                continue

    async def take_part(self, begin: Begin) -> Alignment:
        while True:
            self.run, self.kept = begin.run, None
            try:
                return await self.one_run(begin)
            except Anew as anew:
                begin = anew.begin

    async def one_run(self, begin: Begin) -> Alignment:
        self.theirs = begin.keys
        self.start_after(begin.after)
        if self.keys is not None and (why := self.too_many(self.leader, begin.keys)):
            self.stop(why)
        answers = Answers(self.kind, self.run, self.tokens, begin.keys)
        common: Indices | None = None
        trained = 0
        while True:
            end = self.clock.now + FAREWELL if self.kept else None
            message = await self.next(self.leader, Ask, Carry, Tell, Commit, Over, until=end)
            match message:
                case Carry(stage="find", number=0) if self.kind.worker and not answers.seen:
                    self.count_run(answers)
                    answers.seen[0] = b""  # once in a run
                    await self.carry(self.leader, "find", self.tokens, begin.keys, message)
                case Ask(stage="find"):
                    self.count_run(answers)
                    self.reply(self.leader, answers, message)
                case Tell():
                    if common is None:
                        common, trained = await self.learn(message)
                    self.send(self.leader, Ready(self.run))
                case Commit():
                    self.commit(message, common, trained)
                    self.send(self.leader, Kept(self.run))
                case Over() | None if self.kept is not None:
                    self.confirmed = message is not None
                    return self.kept

    def start_after(self, name: str) -> None:
        """Where rows are added: go on from the leader's alignment, also if this party has kept one
        more addition in a run that broke off."""
        before = self.before
        if before is None and not name:
            return
        if before is None or name not in before.facts.names[-2:]:
            self.stop(f"{self.party} has another alignment of rows than {self.leader}; {ANEW}")
        self.go_on_from(before.at(name))

    def count_run(self, answers: Answers) -> None:
        """A leader that begins again and again may ask for other keys each time."""
        self.runs += not answers.seen
        if self.runs > RUNS:
            self.stop(
                f"{self.leader} has matched rows {RUNS} times and kept nothing. In each run it may "
                "have tried out other keys; ask what happened there, and start again"
            )

    async def learn(self, tell: Tell) -> tuple[Indices, int]:
        """The rows that all parties have, in the common order, and how many are trained on."""
        assert self.keys is not None
        found = await self.ask(self.leader, "tell", self.tokens, tell.common)
        if len(found) != tell.common:
            self.stop(
                f"{self.party} finds {len(found):,} of {tell.common:,} common rows. Has a file "
                "changed meanwhile? Start again"
            )
        order = common_order([self.tokens[place] for place in found], self.federation.seed)
        rows = self.keys.rows[[self.places[found[i]] for i in order]]
        return (self.placed if self.partial else self.labelled_first)(tell, rows)

    def labelled_first(self, tell: Tell, rows: Indices) -> tuple[Indices, int]:
        bits = np.frombuffer(tell.labelled, dtype=np.uint8)
        if len(bits) != -(-tell.common // 8):
            self.stop(f"{self.leader} does not say which rows have a label")
        trained = np.unpackbits(bits, count=tell.common).astype(bool)
        return np.concatenate([rows[trained], rows[~trained]]), int(trained.sum())

    def placed(self, tell: Tell, rows: Indices) -> tuple[Indices, int]:
        """With `partial`: the rows at the places that the leader tells; -1 elsewhere."""
        told = len(tell.places) // 4
        places = np.frombuffer(tell.places[: 4 * told], dtype="<u4").astype(np.int64)
        fit = told == len(rows) == len(np.unique(places)) and tell.aligned <= tell.rows
        if not fit or (len(places) and places.max() >= tell.rows):
            self.stop(f"{self.leader} tells places of rows that cannot be")
        ordered = np.full(tell.rows, -1, dtype=np.int64)
        ordered[places] = rows
        return ordered, tell.aligned

    def commit(self, commit: Commit, common: Indices | None, trained: int) -> None:
        if self.keys is None:
            common, trained = np.zeros(0, dtype=np.int64), commit.aligned
        if self.base is not None and common is None and not commit.common:
            common, trained = np.zeros(0, dtype=np.int64), 0  # no new row is common
        if common is None or trained != commit.aligned or len(common) not in (0, commit.common):
            self.stop(f"{self.leader} announces other rows than {self.party} has found")
        if self.base is not None:
            self.commit_added(self.base, commit.common, common)
            return
        name = self.run.hex()
        used = self.keys and digest_of_used(self.keys, common, commit.extra, name)
        facts = Facts(
            name=name,
            federation=self.federation.matching,
            aligned=commit.aligned,
            extra=commit.extra,
            rows=self.rows,
            empty=0 if self.keys is None else self.keys.empty,
            keys=used or "",
            sizes={self.leader: self.theirs},
            partial=self.partial,
        )
        self.kept = Alignment(facts, common, self.held(common))
        self.keep(self.kept)

    def commit_added(self, base: Alignment, count: int, rows: Indices) -> None:
        sizes = {self.leader: self.theirs}
        self.addition = addition_of(self.run, self.keys, rows, count, self.rows, sizes)
        self.kept = base.with_added(self.addition, rows, self.held(rows)) if count else base
        self.keep(self.kept)  # in any case: a run that broke off may have kept more

    def held(self, rows: Indices) -> dict[str, NDArray[np.bool_]]:
        return {self.party: rows >= 0} if self.partial else {}

    def stop(self, why: str) -> NoReturn:
        self.send(self.leader, Stop(why[:800]))
        raise Unsuited(f"rows.match: {why}")

    # -- what else may come -----------------------------------------------------------------------

    def check_there(self, party: str) -> None:
        if self.life_of(self.leader) is None or self.life_of(self.leader) != self.life:
            raise Lost(self.leader)

    def unexpected(self, party: str, message: Any_) -> None:
        if party != self.leader:
            self.refused.add(party, "refused: only the label holder matches rows with this party")
        elif isinstance(message, Stop):
            raise Unsuited(f"{self.leader} says: {printable(message.why, 800)}")
        elif isinstance(message, Greet) and self.run and self.kept is None:
            self.run = b""
            raise Lost(self.leader, "begins anew")
        elif isinstance(message, Begin) and message.run != self.run:
            raise Anew(message)

    def other_message(self, sender: str) -> None:
        if sender == self.leader and self.kept is None:
            if self.before is not None:
                raise Unsuited(f"{self.leader} runs colonnade join; end it everywhere, and {ADD}")
            raise Unsuited(
                f"{self.leader} trains already, with rows that were matched before, but this party "
                "has no alignment. Match the rows again: colonnade align, at every party"
            )
