"""The program counter: the position of an exchange in a running program.

A program counter is the rounds begun and the step, outermost first: `(3, 2)` is the second step of
the third round. What happens inside a step, such as a validation, has rounds and steps of its own
behind those of the step: `(3, 2, 1, 5)`. Programs that run side by side are marked by a negative
number, `~k` for program k: `(3, 2, ~1, 4, 1)`. All parties count in the same way, so a message for
a program counter is understood by everybody.

Program counters of one program are ordered as Python orders tuples. Program counters of programs
that run side by side have no order: neither has `reached` the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

AFTER = 1 << 20  # the step after a loop of rounds, whether a party ran the loop or skipped it
DONE = AFTER - 1  # the step after all steps of a round, and before what follows the loop
END = 1 << 60  # the round after the last one
LARGEST = 1 << 62  # no number of a received program counter is larger
DEPTH = 32  # a received program counter has at most so many numbers


class ProgramCounter(tuple[int, ...]):
    """Immutable, hashable and ordered; see the module."""

    __slots__ = ()

    def at(self, rounds: int, step: int) -> ProgramCounter:
        """A position in the program that was started here."""
        return ProgramCounter((*self, rounds, step))

    def beside(self, number: int) -> ProgramCounter:
        """Where program `number` of those that run side by side from here was started."""
        return ProgramCounter((*self, ~number))

    @property
    def branch(self) -> ProgramCounter:
        """The origin of the innermost program of those that run side by side; empty in the main
        program."""
        if not self or min(self) >= 0:  # the usual case, kept fast: asked for every message
            return MAIN
        last = max(i for i, number in enumerate(self) if number < 0)
        return ProgramCounter(self[: last + 1])

    def inside(self, start: tuple[int, ...]) -> bool:
        """Whether this position is in the program with origin `start`."""
        return self[: len(start)] == start

    def reached(self, other: tuple[int, ...]) -> bool:
        """Whether a party at this position has done its part of the exchange at `other`."""
        for mine, wanted in zip(self, other, strict=False):
            if mine != wanted:
                return mine > wanted and mine >= 0 and wanted >= 0
        return len(self) >= len(other)

    def rounds_done(self, start: tuple[int, ...]) -> int:
        """How many rounds of the program with origin `start` a party at this position has done."""
        depth = len(start)
        if self[:depth] != start:
            return END if self.reached(start) else 0
        if len(self) <= depth:
            return 0
        over = len(self) > depth + 1 and self[depth + 1] >= DONE
        return max(0, self[depth] - 1 + over)


MAIN = ProgramCounter()  # where the main program starts
BEGINNING = MAIN.at(0, 0)


def after_rounds(start: ProgramCounter, rounds: int) -> ProgramCounter:
    """The position of a party that has done so many rounds of a program, and nothing since."""
    return start.at(rounds, DONE if rounds else 0)


class Positions(Mapping[ProgramCounter, ProgramCounter]):
    """How far one party is: the newest program counter of each of the programs that it runs side by
    side, by their branches."""

    def __init__(self, most: int) -> None:
        self.most = most  # branches; a malicious party must not fill the memory
        self._newest: dict[ProgramCounter, ProgramCounter] = {}

    def move(self, counter: ProgramCounter) -> None:
        """The party is at this position now, even if it was further before."""
        branch = counter.branch
        if branch not in self._newest and len(self._newest) >= self.most:
            return
        self._newest[branch] = counter
        if len(self._newest) > 1:  # programs end when the surrounding program goes on
            ended = [b for b in self._newest if counter.reached(b) and not counter.inside(b)]
            self.forget(ended)

    def advance(self, counter: ProgramCounter) -> None:
        """A message says that the party is at this position; an old message is ignored."""
        if not self.reached(counter):
            self.move(counter)

    def reached(self, counter: tuple[int, ...]) -> bool:
        for mine in self._newest.values():  # noqa: SIM110 - a generator takes twice as long
            if mine.reached(counter):
                return True
        return False

    def rounds_done(self, start: tuple[int, ...]) -> int:
        return max((mine.rounds_done(start) for mine in self._newest.values()), default=0)

    def forget(self, branches: Iterable[ProgramCounter] | None = None) -> None:
        """Forget these branches; all of them if not given."""
        for branch in list(self._newest) if branches is None else branches:
            self._newest.pop(branch, None)

    def __getitem__(self, branch: ProgramCounter) -> ProgramCounter:
        return self._newest[branch]

    def __iter__(self) -> Iterator[ProgramCounter]:
        return iter(self._newest)

    def __len__(self) -> int:
        return len(self._newest)
