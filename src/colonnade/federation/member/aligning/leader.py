"""The label holder leads: it finds out with each party which rows they have in common, and lets
every party find out which rows all of them have.

Of another party's rows it learns how many there are, and which of its own are among them.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from colonnade.common.text import printable
from colonnade.errors import InputError
from colonnade.federation.agreement.alignment_file import Alignment, Facts
from colonnade.federation.agreement.digest import differences
from colonnade.federation.member.aligning.adding import addition_of, unlike
from colonnade.federation.member.aligning.announcing import held_by, news_for_all, news_for_one
from colonnade.federation.member.aligning.messages import (
    PLACES,
    Any_,
    Ask,
    Begin,
    Carry,
    Commit,
    Greet,
    Hello,
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

WORDS = {"numbers": "whole numbers", "text": "text"}
NOTHING = (
    "Compare one key that both should have: are they the same numbers, with the same leading "
    "zeros? See rows.normalise in the federation file, and data.id in the party files"
)

AGAIN = 2 * SECOND  # between two requests to greet

R = TypeVar("R")


class Leader(Side):
    """`labelled`: by row of its file, whether it has a label, so that it is trained on. `order`: a
    secret of this party that decides the order of rows with `rows.partial`; "": a new one."""

    def __init__(
        self, *arguments: Any, labelled: NDArray[np.bool_], order: str = "", **more: Any
    ) -> None:
        super().__init__(*arguments, **more)
        assert self.keys is not None
        assert self.federation.rows is not None
        # Rows that are added are never trained on: they count as those without a label.
        self.labelled = labelled if self.before is None else np.zeros_like(labelled)
        self.partial = self.federation.rows.partial
        self.order = order or secrets.token_hex(16)
        self.others = tuple(self.inboxes)
        holders = {*self.federation.clients, *self.federation.label_holders}
        self.holders = tuple(party for party in self.others if party in holders)
        self.hellos: dict[str, Hello] = {}
        self.begun_with: dict[str, int | None] = {}  # the lives of the parties in this run
        self.heard: set[str] = set()  # in this run
        self.done: set[str] = set()  # who has kept the alignment, and may leave
        self.told: set[str] = set()  # to whom it was shown, in this run, which rows are common
        self.runs: Counter[str] = Counter()  # that ended because of a party to whom it was shown

    async def run_to_the_end(self) -> Alignment:
        while True:
            await self.gather()
            try:
                return await self.attempt()
            except Lost as lost:
                self.count_run(lost.party)
                self.dismiss(lost.party, lost.why)

    # -- who is there -----------------------------------------------------------------------------

    async def gather(self) -> None:
        """Until every party has said that it is ready."""
        due = self.clock.now + AGAIN
        while True:
            for party in self.others:
                while self.inboxes[party]:
                    message = self.inboxes[party].popleft()
                    if isinstance(message, Hello):
                        self.meet(party, message)
                    elif isinstance(message, Stop):
                        self.refused.add(party, "cannot go on", message.why)
                if not self.lives[party]:
                    self.hellos.pop(party, None)
            if len(self.hellos) == len(self.others):
                return
            missing = [party for party in self.others if party not in self.hellos]
            self.watch("", f"waiting for {', '.join(missing)}", 0, 0)
            if self.clock.now >= due:
                due = self.clock.now + AGAIN
                for party in missing:  # one that is there may believe that a run goes on
                    self.send(party, Greet())
            await self.clock.wait(self.news, due)

    def meet(self, party: str, hello: Hello) -> None:
        why = self.mismatch(party, hello)
        if why:
            self.refused.add(party, why, level=logging.ERROR)
            self.send(party, Stop(why[:800]))
            return
        self.hellos[party] = self.of_this_run(hello)

    def of_this_run(self, hello: Hello) -> Hello:
        """With the number of keys that take part."""
        if self.before is None:
            return hello
        return msgspec.structs.replace(hello, keys=hello.outside[self.before.facts.newest])

    def mismatch(self, party: str, hello: Hello) -> str:
        if differing := differences(self.federation.digests, hello.digests):
            keys = printable(", ".join(differing))
            return f"the federation files of {party} and {self.party} differ in {keys}"
        if why := unlike(party, hello.outside, self.party, self.before):
            return why
        if party not in self.holders:
            return ""
        hello = self.of_this_run(hello)
        if why := self.too_many(party, hello.keys):
            return why
        mine = self.kind_of_keys()
        if hello.kind != mine:
            theirs = WORDS.get(hello.kind, "missing")
            return (
                f"keys of different types: those of {party} are {theirs}, those of {self.party} "
                f"are {WORDS[mine]}. Both must be written alike (17.0 is text; so is 017, unless "
                'rows.normalise has "zeros"); if they are right as they are, say rows.keys = "text"'
            )
        return ""

    def dismiss(self, party: str, why: str) -> None:
        """Begin anew when a party is back."""
        self.hellos.pop(party, None)
        self.seen.add(party, "takes no part; matching begins anew when it is back", why)
        if why:
            self.send(party, Stop(why[:800]))

    def count_run(self, party: str) -> None:
        """A party that leaves once it was shown the common rows, again and again, may ask for other
        keys each time."""
        self.runs[party] += party in self.told
        if self.runs[party] >= RUNS:
            self.end_with(
                f"{party} was told the common rows in {RUNS} runs and kept none of them. In each "
                "it may have tried out other keys; ask what happened there, and start again",
                "rows were matched too often",
            )

    def check_there(self, party: str) -> None:
        for one in self.others:
            life = self.life_of(one)
            if one not in self.done and (life is None or life != self.begun_with[one]):
                raise Lost(one)

    def unexpected(self, party: str, message: Any_) -> None:
        if isinstance(message, Hello):
            if party in self.heard:
                raise Lost(party, "has begun anew")
            self.send(party, self.begin())  # the first one was lost
        elif isinstance(message, Stop):
            raise Lost(party, f"cannot go on: {printable(message.why, 800)}")

    def other_message(self, sender: str) -> None:
        if sender not in self.hellos:
            self.refused.add(
                sender, "trains with rows that were matched before; end it, and start it again"
            )

    # -- a run ------------------------------------------------------------------------------------

    def begin(self) -> Begin:
        after = "" if self.before is None else self.before.facts.newest
        return Begin(self.run, len(self.tokens), after)

    async def attempt(self) -> Alignment:
        self.run = secrets.token_bytes(16)
        self.heard, self.told, self.done = set(), set(), set()
        self.begun_with = {party: self.life_of(party) for party in self.others}
        for party in self.others:
            self.send(party, self.begin())
        found = dict(zip(self.holders, await self.each(self.holders, self.find), strict=True))
        common = self.in_order(self.common(found))
        if self.before is None:
            alignment = self.aligned(found, common)
            aligned, extra = alignment.facts.aligned, alignment.facts.extra
        else:
            alignment, aligned, extra = self.extended(self.before, found, common), 0, 0

        async def tell(party: str) -> None:
            asked, told = self.announcement(found[party], common, aligned)
            await self.tell(party, [self.tokens[place] for place in asked], told)

        await self.each(self.holders if common else (), tell)
        if self.before is None:
            self.keep(alignment)
        for party in self.others:
            self.send(party, Commit(self.run, len(common), aligned, extra))
        await self.each(self.others, self.confirm)
        # Others can go back from an addition that this party has not kept; it cannot itself, since
        # it may have answered about the added rows.
        if self.before is not None and common:
            self.keep(alignment)
        for party in self.others:
            self.send(party, Over(self.run))
        return alignment

    async def each(self, parties: Iterable[str], program: Callable[[str], Awaitable[R]]) -> list[R]:
        async def one(party: str) -> R:
            return await program(party)

        tasks = [self.clock.spawn(one(party), f"matching with {party}") for party in parties]
        return await self.clock.join(tasks)

    async def find(self, party: str) -> set[int]:
        """Places among `tokens` that this party has, too."""
        return set(await self.ask(party, "find", self.tokens, self.hellos[party].keys))

    def common(self, found: dict[str, set[int]]) -> list[int]:
        """Places of the rows that all parties have, or with `partial` some other party; an error
        if there are none."""
        common = set(range(len(self.tokens))).intersection(*found.values())
        nothing = [party for party, places in found.items() if not places]
        adding = self.before is not None
        if self.partial and (adding or not nothing):
            common = set[int]().union(*found.values())
        if adding or (common and not (self.partial and nothing)):
            return sorted(common)
        if nothing:
            why = (
                f"no key of {self.party} ({len(self.tokens):,} keys) is one of {nothing[0]} "
                f"({self.hellos[nothing[0]].keys:,} keys). {NOTHING}"
            )
        else:
            shared = ", ".join(f"{len(places):,} with {p}" for p, places in found.items())
            why = f"no row is at every party: {self.party} has {shared} in common"
        self.give_up(why)

    def give_up(self, why: str) -> NoReturn:
        self.end_with(why, "the parties have no rows in common that can be trained on")

    def end_with(self, why: str, told: str) -> NoReturn:
        """End this process and those of the others, which are not told any figures."""
        for party in self.others:
            self.send(party, Stop(told))
        raise InputError(f"rows.match: {why}")

    def in_order(self, places: Sequence[int]) -> list[int]:
        """Places of the common rows in the common order: those with a label come first. With
        `partial` the order is a secret: by a known one, whoever lacks a row could tell from its
        neighbours which keys it may have, and which not."""
        seed = self.order if self.partial else self.federation.seed
        order = common_order([self.tokens[place] for place in places], seed)
        known = [places[i] for i in order]
        return sorted(known, key=lambda place: not self.labelled[self.row(place)])

    def announcement(
        self, found: set[int], common: Sequence[int], aligned: int
    ) -> tuple[Sequence[int], Tell]:
        """The rows for which a party is answered, and what it is told of them."""
        facts, seed = (self.run, self.tokens), self.federation.seed
        if self.partial:
            return news_for_one(*facts, found, common, aligned, seed)
        return common, news_for_all(*facts, common, aligned, seed)

    def row(self, place: int) -> int:
        assert self.keys is not None
        return int(self.keys.rows[self.places[place]])

    def aligned(self, found: dict[str, set[int]], common: list[int]) -> Alignment:
        """The alignment of this party."""
        keys, federation = self.keys, self.federation
        assert keys is not None
        rows = np.array([self.row(place) for place in common], dtype=np.int64)
        trained = int(self.labelled[rows].sum())
        who = "this party and some other have" if self.partial else "all parties have"
        if not trained:
            self.give_up(f"none of the {len(common):,} rows that {who} has a label")
        self.check_places(found)
        sizes = {party: self.hellos[party].keys for party in self.holders}
        sizes[self.party] = len(self.tokens)
        beside = min(sizes[party] - len(common) for party in federation.clients)
        extra, name = beside if federation.learns_alone else 0, self.run.hex()
        facts = Facts(
            name=name,
            federation=federation.matching,
            aligned=trained,
            extra=extra,
            rows=len(self.labelled),
            empty=keys.empty,
            keys=digest_of_used(keys, rows, extra, name),
            matched={party: len(places) for party, places in found.items()},
            sizes={party: self.hellos[party].keys for party in found},
            partial=self.partial,
            order=self.order if self.partial else "",
        )
        try:
            federation.with_found(**facts.found).check()
        except InputError as error:
            where = "in common with some party" if self.partial else "at every party"
            self.give_up(f"{len(common):,} rows are {where}, which is too few. {error}")
        return Alignment(facts, rows, self.held(found, common))

    def extended(
        self, before: Alignment, found: dict[str, set[int]], common: list[int]
    ) -> Alignment:
        """The alignment of this party with the rows that are new; as it was, if there are none."""
        assert self.keys is not None
        self.check_places(found)
        rows = np.array([self.row(place) for place in common], dtype=np.int64)
        sizes = {party: self.hellos[party].keys for party in found}
        matched = {party: len(places) for party, places in found.items()}
        sets = self.run, self.keys, rows, len(common)
        self.addition = addition_of(*sets, len(self.labelled), sizes, matched)
        if not common:
            return before
        return before.with_added(self.addition, rows, self.held(found, common))

    def held(self, found: dict[str, set[int]], common: list[int]) -> dict[str, NDArray[np.bool_]]:
        return held_by(self.federation.clients, found, common) if self.partial else {}

    def check_places(self, found: dict[str, set[int]]) -> None:
        if self.partial and max(map(len, found.values())) > PLACES:
            self.give_up(f"partial = true is for at most {PLACES:,} rows in common with one party")

    async def tell(self, party: str, tokens: list[str], told: Tell) -> None:
        """Let a party find the common rows, which it asks for with all its keys."""
        answers = Answers(self.kind, self.run, tokens, self.hellos[party].keys)
        self.send(party, told)
        while True:
            message = await self.next(party, Ask, Carry, Ready)
            self.heard.add(party)
            if isinstance(message, Ready):
                return
            if message is None:
                self.send(party, told)
            elif isinstance(message, Carry):
                if message.number == 0 and self.kind.worker and not answers.seen:
                    answers.seen[0] = b""  # once in a run
                    self.told.add(party)
                    theirs = self.hellos[party].keys
                    await self.carry(party, "tell", tokens, theirs, message)
            elif message.stage == "tell":
                self.told.add(party)
                self.reply(party, answers, message)
                await self.breathe()

    async def confirm(self, party: str) -> None:
        while await self.next(party, Kept) is None:
            continue
        self.done.add(party)
