"""What one party knows of another one."""

from __future__ import annotations

from dataclasses import dataclass, field

from colonnade.network.live.lives import Lives
from colonnade.network.program_counter import MAIN, Positions, ProgramCounter

BRANCHES = 256  # programs that a party may run side by side


@dataclass
class Peer:
    there: bool = False
    since: int = 0  # nanoseconds: when it came or left
    # Programs, by their branch, in which it is there but is not waited for until it has caught up.
    late: set[ProgramCounter] = field(default_factory=set)
    strikes: int = 0  # how often it owed a message for too long
    heard: int = 0  # nanoseconds: when it last said something that could be used
    positions: Positions = field(default_factory=lambda: Positions(BRANCHES))
    told: ProgramCounter = MAIN  # the newest of this party's positions that it was told
    lives: Lives = field(default_factory=Lives)

    def reached(self, counter: tuple[int, ...]) -> bool:
        return self.positions.reached(counter)

    def excuse(self, branch: ProgramCounter, caught_up: bool) -> None:
        """A peer that has caught up is late no more."""
        if caught_up:
            self.late.discard(branch)
