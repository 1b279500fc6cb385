"""The label holder leads: it finds out with each party which rows they have in common, and lets
every party find out which rows all of them have.

Of another party's rows it learns how many there are, and which of its own are among them.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from colonnade.common.text import printable
from colonnade.errors import InputError
from colonnade.federation.agreement.alignment_file import Alignment, Facts, digest_of
from colonnade.federation.agreement.digest import differences
from colonnade.federation.member.aligning.messages import (
    Any_,
    Ask,
    Begin,
    Commit,
    Greet,
    Hello,
    Kept,
    Over,
    Ready,
    Stop,
    Tell,
)
from colonnade.federation.member.aligning.side import Answers, Lost, Side
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
    """`labelled`: by row of its file, whether it has a label, so that it is trained on."""

    def __init__(self, *arguments: Any, labelled: NDArray[np.bool_], **more: Any) -> None:
        super().__init__(*arguments, **more)
        assert self.keys is not None
        self.labelled = labelled
        self.others = tuple(self.inboxes)
        holders = {*self.federation.clients, *self.federation.label_holders}
        self.holders = tuple(party for party in self.others if party in holders)
        self.hellos: dict[str, Hello] = {}
        self.begun_with: dict[str, int | None] = {}  # the lives of the parties in this run
        self.heard: set[str] = set()  # in this run
        self.done: set[str] = set()  # who has kept the alignment, and may leave

    async def run_to_the_end(self) -> Alignment:
        while True:
            await self.gather()
            try:
                return await self.attempt()
            except Lost as lost:
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
        self.hellos[party] = hello

    def mismatch(self, party: str, hello: Hello) -> str:
        if differing := differences(self.federation.digests, hello.digests):
            keys = printable(", ".join(differing))
            return f"the federation files of {party} and {self.party} differ in {keys}"
        if party not in self.holders:
            return ""
        mine = self.kind_of_keys()
        if hello.kind != mine:
            theirs = WORDS.get(hello.kind, "missing")
            return (
                f"keys of different types: those of {party} are {theirs}, those of {self.party} "
                f"are {WORDS[mine]}. Both must be written alike (a number such as 17.0 or 017 is "
                'text); if they are right as they are, say rows.keys = "text"'
            )
        return ""

    def dismiss(self, party: str, why: str) -> None:
        """Begin anew when a party is back."""
        self.hellos.pop(party, None)
        self.seen.add(party, "takes no part; matching begins anew when it is back", why)
        if why:
            self.send(party, Stop(why[:800]))

    def check_there(self, party: str) -> None:
        for one in self.others:
            life = self.life_of(one)
            if one not in self.done and (life is None or life != self.begun_with[one]):
                raise Lost(one)

    def unexpected(self, party: str, message: Any_) -> None:
        if isinstance(message, Hello):
            if party in self.heard:
                raise Lost(party, "has begun anew")
            self.send(party, Begin(self.run, len(self.tokens)))  # the first one was lost
        elif isinstance(message, Stop):
            raise Lost(party, f"cannot go on: {printable(message.why, 800)}")

    def other_message(self, sender: str) -> None:
        if sender not in self.hellos:
            self.refused.add(
                sender, "trains with rows that were matched before; end it, and start it again"
            )

    # -- a run ------------------------------------------------------------------------------------

    async def attempt(self) -> Alignment:
        self.run, self.heard, self.done = secrets.token_bytes(16), set(), set()
        self.begun_with = {party: self.life_of(party) for party in self.others}
        for party in self.others:
            self.send(party, Begin(self.run, len(self.tokens)))
        found = dict(zip(self.holders, await self.each(self.holders, self.find), strict=True))
        common = self.common(found)
        alignment, bits = self.aligned(found, common)
        tokens = [self.tokens[place] for place in common]
        await self.each(self.holders, lambda party: self.tell(party, tokens, bits))
        self.keep(alignment)
        facts = alignment.facts
        for party in self.others:
            self.send(party, Commit(self.run, len(common), facts.aligned, facts.extra))
        await self.each(self.others, self.confirm)
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
        """Places of the rows that all parties have; an error if there are none."""
        common = set(range(len(self.tokens))).intersection(*found.values())
        nothing = [party for party, places in found.items() if not places]
        if common:
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
        """End this process and those of the others, which are not told any figures."""
        for party in self.others:
            self.send(party, Stop("the parties have no rows in common that can be trained on"))
        raise InputError(f"rows.match: {why}")

    def aligned(self, found: dict[str, set[int]], common: list[int]) -> tuple[Alignment, bytes]:
        """The alignment of this party, and which of the common rows are trained on: a bit for each
        in the order of the digests of their keys."""
        keys, federation = self.keys, self.federation
        assert keys is not None
        order = common_order([self.tokens[place] for place in common], self.federation.seed)
        rows = keys.rows[[self.places[common[i]] for i in order]]
        trained = self.labelled[rows]
        if not trained.any():
            self.give_up(f"none of the {len(common):,} rows that all parties have has a label")
        sizes = {party: self.hellos[party].keys for party in self.holders}
        sizes[self.party] = len(self.tokens)
        beside = min(sizes[party] - len(common) for party in federation.clients)
        name = self.run.hex()
        facts = Facts(
            name=name,
            federation=federation.matching,
            aligned=int(trained.sum()),
            extra=beside if federation.learns_alone else 0,
            rows=len(self.labelled),
            empty=keys.empty,
            keys=digest_of(keys.keys, keys.rows, name),
            matched={party: len(places) for party, places in found.items()},
        )
        try:
            federation.with_found(**facts.found).check()
        except InputError as error:
            self.give_up(f"{len(common):,} rows are at every party, which is too few. {error}")
        ordered = np.concatenate([rows[trained], rows[~trained]])
        return Alignment(facts, ordered), np.packbits(trained).tobytes()

    async def tell(self, party: str, tokens: list[str], bits: bytes) -> None:
        """Let a party find the common rows, which it asks for with all its keys."""
        answers = Answers(self.kind, self.run, tokens, self.hellos[party].keys)
        self.send(party, Tell(self.run, len(tokens), bits))
        while True:
            message = await self.next(party, Ask, Ready)
            self.heard.add(party)
            if isinstance(message, Ready):
                return
            if message is None:
                self.send(party, Tell(self.run, len(tokens), bits))
            elif message.stage == "tell":
                self.reply(party, answers, message)
                await self.breathe()

    async def confirm(self, party: str) -> None:
        while await self.next(party, Kept) is None:
            continue
        self.done.add(party)
