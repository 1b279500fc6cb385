"""What one party knows of another party, its peer."""

from __future__ import annotations

from dataclasses import dataclass, field

from colonnade.network.live.lives import Lives
from colonnade.network.program_counter import BEGINNING, MAIN, Positions, ProgramCounter

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
    # In the main program, and in its present generation: how far earlier processes of the peer
    # were, and how far earlier processes of this party were, as the peer says (None: not yet).
    before: ProgramCounter = BEGINNING
    mine_before: ProgramCounter | None = None

    def forget_positions(self) -> None:
        """The process of the peer has ended, or another one has begun."""
        self.before = max(self.before, self.positions.get(MAIN, BEGINNING))
        self.positions.forget()
        self.told = MAIN

    def begin_generation(self, first: bool) -> None:
        """A new generation of the main program begins. `first`: the first one that this process
        hears of; earlier processes of this party may have taken part in it."""
        self.before = BEGINNING
        if not first:
            self.mine_before = BEGINNING

    def learn_before(self, counter: ProgramCounter) -> None:
        """The peer says how far earlier processes of this party were. The first word counts: later
        ones are about this process."""
        if self.mine_before is None:
            self.mine_before = counter

    def reached(self, counter: tuple[int, ...]) -> bool:
        """Whether the peer said that it has done its part up to this program counter."""
        return self.positions.reached(counter)

    def update_late(self, branch: ProgramCounter, caught_up: bool) -> None:
        """A peer that has caught up in a program is not late in it any more."""
        if caught_up:
            self.late.discard(branch)
