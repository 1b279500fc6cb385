"""What one party knows of another party, its peer."""

from __future__ import annotations

from dataclasses import dataclass, field

from colonnade.network.live.lives import Lives
from colonnade.network.program_counter import BEGINNING, MAIN, Positions, ProgramCounter

BRANCHES = 256  # programs that a party may run side by side


@dataclass(frozen=True)
class Past:
    """How far earlier processes of a party were in the main program, and their newest digest of
    weights."""

    position: ProgramCounter
    weights: str = ""

    def allows(self, start: ProgramCounter, weights: str) -> bool:
        """Whether what others have of a validation that begins at `start` is of a process with
        these weights: no earlier process came so far, or it had the same ones."""
        return not self.position.reached(start) or self.weights == weights != ""


NOTHING = Past(BEGINNING)


@dataclass
class Peer:
    there: bool = False
    since: int = 0  # nanoseconds: when the peer came or left
    logged: int = -1  # `since`, of the absence of which the log has told that it is waited for
    # Programs, by their branch, in which the peer is not waited for until it has caught up; True
    # where it owed a message for too long. Who waits for everybody waits for one that is slow only.
    late: dict[ProgramCounter, bool] = field(default_factory=dict)
    times_late: int = 0  # how often the peer owed a message for too long
    heard: int = 0  # nanoseconds: when its last usable message came
    positions: Positions = field(default_factory=lambda: Positions(BRANCHES))
    told: ProgramCounter = MAIN  # this party's position, as the peer was last told
    lives: Lives = field(default_factory=Lives)
    # In the main program, and in its present generation: how far earlier processes of the peer
    # were, and how far earlier processes of this party were, as the peer says (None: not yet).
    before: Past = NOTHING
    mine_before: Past | None = None
    weights: str = ""  # the peer's newest digest; see messages.py

    def forget_positions(self) -> None:
        """The process of the peer has ended, or another one has begun."""
        position = max(self.before.position, self.positions.get(MAIN, BEGINNING))
        self.before = Past(position, self.weights)
        self.positions.forget()
        self.told = MAIN

    def begin_generation(self, first: bool) -> None:
        """A new generation of the main program begins. `first`: the first one that this process
        hears of; earlier processes of this party may have taken part in it."""
        self.before, self.weights = NOTHING, ""
        if not first:
            self.mine_before = NOTHING

    def learn_before(self, past: Past) -> None:
        """The peer says how far earlier processes of this party were. The first word counts: later
        ones are about this process."""
        if self.mine_before is None:
            self.mine_before = past

    def reached(self, counter: tuple[int, ...]) -> bool:
        """Whether the peer said that it has done its part up to this program counter."""
        return self.positions.reached(counter)

    def update_late(self, branch: ProgramCounter, caught_up: bool) -> None:
        """A peer that has caught up in a program is not late in it any more."""
        if caught_up:
            self.late.pop(branch, None)
