"""The files that a party writes while it takes part, so that it goes on after a restart:
checkpoints, its record, and its part of the model in use. A full disk does not end a training: what
could not be written is written later. Only noise that hides labels is waited for."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path
from statistics import median

import msgspec

from colonnade.common.trouble import Trouble
from colonnade.federation.member.attendance import AttendanceFacts
from colonnade.federation.member.background_writer import BackgroundWriter
from colonnade.federation.member.record import Record
from colonnade.learning.algorithm import Algorithm
from colonnade.learning.checkpoint import Checkpoint, CheckpointError, Facts
from colonnade.network.clock import SECOND, Clock
from colonnade.network.live.network import Live
from colonnade.network.parts import Version
from colonnade.network.program_counter import END
from colonnade.network.wire import Count, Step

log = logging.getLogger(__name__)

PAUSE = 0.1  # seconds between two checkpoints, at least
SHARE = 0.005  # least pause between two checkpoints, as a share of the training time so far
COST = 0.03  # largest share of the time that checkpoints take
AGAIN = 2 * SECOND  # between two attempts to write to a full disk


class MemberFacts(msgspec.Struct, frozen=True):
    """What a checkpoint holds of a party beside the algorithm's state."""

    attendance: AttendanceFacts | None = None
    # Where a message of these parties was left out, by program counter.
    missed: list[tuple[list[Step], list[str]]] = []
    generation: Count = 0  # of the leader
    version: Version | None = None  # of the model in use
    labels: dict[str, str] = {}  # which rows each label holder has labels of, as it told


class CheckpointFacts(Facts, kw_only=True):
    also: MemberFacts


class Keeping:
    """Writes the files of a party."""

    def __init__(
        self,
        algorithm: Algorithm,
        folder: Path,
        record: Record,
        clock: Clock,
        facts: Callable[[], MemberFacts],
    ) -> None:
        self.algorithm, self.folder, self.record = algorithm, folder, record
        self.clock, self.facts = clock, facts
        self.checkpoint = Checkpoint(algorithm, folder / "checkpoints", CheckpointFacts)
        self.trained_before = False  # in an earlier life
        self.version: Version | None = None  # of the model in use
        self.saved: Version | None = None  # of the model in the folder
        self.background: BackgroundWriter | None = None  # None: files are written by this thread
        self.trouble = Trouble(log)
        self.stopwatch: Callable[[], float] = lambda: 0.0  # real seconds; none in virtual time
        self._kept = self._begun = clock.now
        self._costs = deque([0.0], maxlen=9)  # seconds that the last checkpoints took
        self._total = 0.0  # that all of them took

    def resume(self, net: Live) -> MemberFacts | None:
        """Restore the checkpoint, if there is one, and give its facts."""
        self.net = net
        facts = self.checkpoint.resume(net)
        if facts is not None:
            self.trained_before = net.resume_at >= END - 1
        return facts

    def begin(self, net: Live) -> None:
        """To be called when the training begins, with its network."""
        self.net, self._begun = net, self.clock.now

    def keep_if_due(self, rounds: int) -> None:
        """Write a checkpoint after so many rounds, if it is time for one."""
        if self._due():
            self.keep(rounds, at_once=False)

    def _due(self) -> bool:
        """Whether it is time for a checkpoint, and the one before is written."""
        so_far = (self.clock.now - self._begun) / SECOND
        writing = 0.0 if self.background is None else self.background.spent
        pause = max(PAUSE, SHARE * so_far, (median(self._costs) + writing) / COST)
        free = self.background is None or self.background.idle
        return free and self.clock.now - self._kept >= pause * SECOND

    def keep(self, rounds: int, *, at_once: bool = True) -> bool:
        """Write a checkpoint after so many rounds. If the disk is full, the checkpoint before
        stays: False. `at_once`: it is written when this returns; else the background thread writes
        it."""
        begun, self._kept = self.stopwatch(), self.clock.now
        if self.background is not None and at_once:
            self.background.wait()
        writer = None if at_once else self.background
        done, facts = self.net.restart_round(rounds), self.facts()
        written = self.attempt(lambda: self.checkpoint.keep(self.net, done, facts, writer))
        self.attempt(self.record.keep)
        self.write_again()
        self._costs.append(self.stopwatch() - begun)
        self._total += self._costs[-1]
        return written

    async def secure(self, rounds: int) -> None:
        """Write a checkpoint; while a full disk refuses it, this waits and tries again. For what
        must not be drawn again after a restart, before anybody is told of it."""
        while not self.keep(rounds):
            await self.clock.sleep_until(self.clock.now + AGAIN)

    @property
    def share(self) -> float:
        """Of the time since the training began in this process, the share that checkpoints took,
        in the training and in the background."""
        so_far = (self.clock.now - self._begun) / SECOND
        writing = 0.0 if self.background is None else self.background.total
        return (self._total + writing) / so_far if so_far > 0 else 0.0

    def note(self) -> None:
        """From time to time, outside the training: write the ledger, and what a full disk
        refused."""
        if self.clock.now - self._kept >= AGAIN:
            self._kept = self.clock.now
            self.attempt(self.record.keep)
            self.write_again()

    async def finish(self) -> None:
        """Before a clean end: write the record, with what left in the test and in answers. While a
        full disk refuses the record, the model or a part of it, this waits and tries again."""
        versions = self.algorithm.training.versions
        if self._unsaved and self.version is not None:
            versions.use(self.version)  # a question may have been about another one
        self.attempt(self.record.keep)
        self.write_again()
        while self.record.dirty or versions.unwritten or self._unsaved:
            await self.clock.sleep_until(self.clock.now + AGAIN)
            self.attempt(self.record.keep)
            self.write_again()

    @property
    def _unsaved(self) -> bool:
        """Whether the folder lacks the model in use."""
        return self.version is not None and self.version != self.saved

    def write_again(self) -> None:
        """Write parts of the model that a full disk refused before."""
        versions = self.algorithm.training.versions
        if versions.unwritten:
            versions.write(self.net)
        if versions.used == self.version and self._unsaved:
            self.attempt(self.save)

    def use(self, version: Version | None) -> bool:
        """Load this party's part of a version, and save it as the model; False if this party has
        no such part."""
        if version is None or not self.algorithm.training.versions.use(version):
            return False
        self.version = version
        if self.saved != version:
            self.attempt(self.save)
        return True

    def save(self) -> None:
        folder = self.folder / "models" / self.record.run
        self.algorithm.save(folder, self.net, durable=True)
        self.saved = self.version

    def attempt(self, write: Callable[[], None]) -> bool:
        """Call `write`; an error, such as a full disk, is logged and does not end the training:
        False."""
        try:
            write()
            self.trouble.over(str(self.folder))
        except (CheckpointError, OSError) as error:
            self.trouble.tell(f"{self.folder}: {error}")
            return False
        return True
