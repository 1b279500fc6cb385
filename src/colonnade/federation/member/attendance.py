"""In how many rounds of the training each party took part, as far as one party saw."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

HALF = 0.5  # below that, a result comes with a warning


class Seen(msgspec.Struct):
    """The rounds of one other party."""

    rounds: int = 0
    first: int = -1  # the first round, from 0
    start: int = 0  # the life in which the party last started without a checkpoint
    anew: int = 0  # the round after which the party came back without a checkpoint
    last: int = -1  # the last round, from 0


class AttendanceFacts(msgspec.Struct, array_like=True):
    """An attendance as a checkpoint holds it."""

    rounds: int
    seen: dict[str, Seen]
    alone: dict[str, int]
    next: int = 0  # 0: not in checkpoints of earlier versions
    skipped: int = 0


class Attendance:
    """`begin`: the first round with labels; rounds before that are counted by each party alone."""

    def __init__(self, me: str, others: tuple[str, ...], begin: int = 0) -> None:
        self.me, self.begin = me, begin
        self.rounds = 0
        self.next, self.skipped = begin, 0  # rounds that this party jumped over while it was away
        self.seen = {party: Seen() for party in others}
        self.alone = {me: 0}  # rounds without labels that each party did, as it told

    def count(self, round: int, there: Iterable[str]) -> None:
        """A round that is done again, after a restart, counts once."""
        self.rounds += round >= self.next
        self.skipped += max(0, round - self.next)
        self.next = max(self.next, round + 1)
        for party in there:
            one = self.seen[party]
            one.rounds += round > one.last
            one.last = max(one.last, round)
            one.first = round if one.first < 0 else one.first

    def begins_anew(self, party: str, start: int, rounds: int) -> bool:
        """Note the greeting of a party. `start`: its life if it started without a checkpoint, else
        0. Returns whether it has lost what it learnt in earlier rounds; these rounds then do not
        count any more. `rounds`: done so far."""
        before = self.seen[party]
        if start in (0, before.start):
            return False
        before.start = start
        if before.rounds:
            self.seen[party] = Seen(start=start, anew=rounds)
        return before.rounds > 0

    def notes(self, unlabelled: int = 0) -> list[str]:
        """A line for every other party that missed a round. `unlabelled`: the number of rounds
        without labels."""
        missed = {party: one for party, one in self.seen.items() if one.rounds < self.rounds}
        saw = f" that {self.me} saw" if self.skipped else ""
        lines = [_note(p, one.rounds, self.rounds, one, saw) for p, one in missed.items()]
        short = {p: n for p, n in self.alone.items() if p in self.seen and n < unlabelled}
        return lines + [_note(p, n, unlabelled, None, " without labels") for p, n in short.items()]

    def own_notes(self) -> list[str]:
        """A line if this party itself missed rounds."""
        total = self.next - self.begin
        return [_note(self.me, total - self.skipped, total, None)] if self.skipped else []

    def facts(self) -> AttendanceFacts:
        return AttendanceFacts(self.rounds, self.seen, self.alone, self.next, self.skipped)

    def restore(self, kept: AttendanceFacts | None) -> None:
        if kept is not None:
            self.rounds, self.skipped = kept.rounds, kept.skipped
            self.next = kept.next or self.begin + kept.rounds
            self.seen |= {party: one for party, one in kept.seen.items() if party in self.seen}
            self.alone |= kept.alone


def _note(party: str, rounds: int, of: int, seen: Seen | None, what: str = "") -> str:
    text = f"{party}: {rounds:,} of {of:,} rounds{what}"
    if seen is not None and seen.anew:
        text += f", began again with new weights at {seen.anew:,}"
    elif seen is not None and seen.first > 1:
        text += f", joined at {seen.first:,}"
    few = rounds < HALF * of
    return f"warning: {text}; the model knows little of it" if few else text
