"""Which party of a running federation contributes what: its label holder asks for the score on the
test rows, with and without the columns of some parties."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from colonnade.common.explanations import Explanation, PartyExplanation
from colonnade.common.text import printable, with_reasons
from colonnade.errors import ColonnadeError, InputError
from colonnade.federation.agreement.party_file import PartyFile
from colonnade.federation.asking.predictions import ANSWER, ERROR, need_labels
from colonnade.federation.member.place import visiting
from colonnade.federation.member.score_requests import ScoreAsked, Scored
from colonnade.learning.coalitions import ORDERS, evaluations, shapley
from colonnade.network.transport.zenoh import ask
from colonnade.network.wire import read_note

NO_NOISE = "No noise test: it would need columns that only their holders have."

Ask = Callable[[bytes], bytes | None]


def explain(
    party: PartyFile, orders: int = ORDERS, watch: Callable[[float], None] = lambda share: None
) -> Explanation:
    """Ask the process of a party that runs, which is the label holder where there is one."""
    need_labels(party, "explain")
    if (leader := party.federation.leader) not in (None, party.party):
        raise InputError(f"{party.source}: explain is for {leader!r}, which tests the model")
    place = visiting(party)
    found = explained(
        lambda data: ask(place, party.party, "score", data, timeout=ANSWER),
        f"{party.party} does not answer; it must be running: colonnade join {party.source}",
        orders,
        watch,
    )
    found.write(party.folder)
    return found


def explained(
    question: Ask,
    silence: str,
    orders: int = ORDERS,
    watch: Callable[[float], None] = lambda share: None,
) -> Explanation:
    """`question` sends a request and returns the answer; `silence`: what None means."""
    started, asked = time.monotonic(), 0

    def scored(without: frozenset[str]) -> Scored:
        nonlocal asked
        asked += 1
        answer = question(msgspec.json.encode(ScoreAsked(sorted(without))))
        if answer is None:
            raise ColonnadeError(silence)
        told = read_note(answer, Scored)
        if told.failure:
            raise ColonnadeError(printable(told.failure, ERROR))
        if told.absent:
            raise ColonnadeError(
                f"not heard: {with_reasons(told.absent)}. What the parties contribute can be told "
                "when all are there"
            )
        return told

    about = scored(frozenset())
    everyone = frozenset(about.parties)
    total = evaluations(len(everyone), orders)

    def score(heard: frozenset[str]) -> float:
        watch(min(1.0, asked / total))
        return about.score if heard == everyone else scored(everyone - heard).score

    shares = shapley(about.parties, score, orders=orders, seed=about.seed)
    parties = [
        PartyExplanation(
            party=party,
            shapley=shares.values[party],
            shapley_error=shares.error(party),
            absent=shares.full - shares.without[party],
        )
        for party in about.parties
    ]
    same = ("method", "faults", "seed", "run", "metric", "rows", "error")
    return Explanation(
        **{name: getattr(about, name) for name in same},
        full=shares.full,
        empty=shares.empty,
        parties=parties,
        evaluations=asked,
        seconds=round(time.monotonic() - started, 3),
        notes=[NO_NOISE],
    )
