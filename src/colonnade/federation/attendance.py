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
    def __init__(self, parties: tuple[str, ...]) -> None:
        self.rounds = 0
        self.seen = {party: Seen() for party in parties}

    def count(self, round: int, there: Iterable[str]) -> None:
        self.rounds += 1
        for party in there:
            one = self.seen[party]
            one.rounds += 1
            one.first = round if one.first < 0 else one.first

    def notes(self) -> list[str]:
        """A line for everybody who missed a round."""
        missed = {party: one for party, one in self.seen.items() if one.rounds < self.rounds}
        return [self._note(party, one) for party, one in missed.items()]

    def _note(self, party: str, one: Seen) -> str:
        text = f"{party}: {one.rounds:,} of {self.rounds:,} rounds"
        if one.first > 1:
            text += f", joined at {one.first:,}"
        few = one.rounds < HALF * self.rounds
        return f"warning: {text}; the model knows little of its columns" if few else text

    def facts(self) -> Any:
        return [self.rounds, msgspec.to_builtins(self.seen)]

    def restore(self, facts: Any) -> None:
        if facts is not None:
            rounds, seen = msgspec.convert(facts, tuple[int, dict[str, Seen]])
            self.rounds = rounds
            self.seen |= {party: one for party, one in seen.items() if party in self.seen}
