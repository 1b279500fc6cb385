"""Who took part in how many rounds of the training, as far as one party saw."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

HALF = 0.5  # below that, a result comes with a warning


class Seen(msgspec.Struct):
    rounds: int = 0
    first: int = -1  # the first round, from 0


class Attendance:
    def __init__(self, me: str, others: tuple[str, ...]) -> None:
        self.rounds = 0
        self.seen = {party: Seen() for party in others}
        self.alone = {me: 0}  # rounds without labels that a party did, as it told

    def count(self, round: int, there: Iterable[str]) -> None:
        self.rounds += 1
        for party in there:
            one = self.seen[party]
            one.rounds += 1
            one.first = round if one.first < 0 else one.first

    def notes(self, unlabelled: int = 0) -> list[str]:
        """A line for everybody who missed a round. `unlabelled`: so many rounds were without
        labels."""
        missed = {party: one for party, one in self.seen.items() if one.rounds < self.rounds}
        lines = [_note(p, one.rounds, self.rounds, one.first) for p, one in missed.items()]
        short = {p: n for p, n in self.alone.items() if p in self.seen and n < unlabelled}
        return lines + [_note(p, n, unlabelled, 0, " without labels") for p, n in short.items()]

    def facts(self) -> Any:
        return [self.rounds, msgspec.to_builtins(self.seen), self.alone]

    def restore(self, facts: Any) -> None:
        if facts is not None:
            rounds, seen, alone = msgspec.convert(
                facts, tuple[int, dict[str, Seen], dict[str, int]]
            )
            self.rounds = rounds
            self.seen |= {party: one for party, one in seen.items() if party in self.seen}
            self.alone |= alone


def _note(party: str, rounds: int, of: int, first: int, what: str = "") -> str:
    text = f"{party}: {rounds:,} of {of:,} rounds{what}"
    if first > 1:
        text += f", joined at {first:,}"
    few = rounds < HALF * of
    return f"warning: {text}; the model knows little of it" if few else text
