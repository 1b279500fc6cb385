"""What one party knows of another party, its peer."""

from __future__ import annotations

from dataclasses import dataclass, field

from colonnade.network.live.lives import Lives
from colonnade.network.program_counter import MAIN, Positions, ProgramCounter

BRANCHES = 256  # programs that a party may run side by side


@dataclass
class Peer:
    there: bool = False
    since: int = 0  # nanoseconds: when the peer came or left
    logged: int = -1  # `since`, of the absence of which the log has told that it is waited for
    # Programs, by their branch, in which the peer is not waited for until it has caught up.
    late: set[ProgramCounter] = field(default_factory=set)
    times_late: int = 0  # how often the peer owed a message for too long
    heard: int = 0  # nanoseconds: when its last usable message came
    positions: Positions = field(default_factory=lambda: Positions(BRANCHES))
    told: ProgramCounter = MAIN  # this party's position, as the peer was last told
    lives: Lives = field(default_factory=Lives)

    def reached(self, counter: tuple[int, ...]) -> bool:
        """Whether the peer said that it has done its part up to this program counter."""
        return self.positions.reached(counter)

    def update_late(self, branch: ProgramCounter, caught_up: bool) -> None:
        """A peer that has caught up in a program is not late in it any more."""
        if caught_up:
            self.late.discard(branch)
