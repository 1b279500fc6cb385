"""What a party keeps in its folder, so that a restart goes on: checkpoints, its record, and its
part of the model in use. A full disk does not end a training: what it refused is written later."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from colonnade.common.trouble import Trouble
from colonnade.federation.member.background_writer import BackgroundWriter
from colonnade.federation.member.record import Record
from colonnade.learning.algorithm import Algorithm
from colonnade.learning.checkpoint import Checkpoint, CheckpointError
from colonnade.network.clock import SECOND, Clock
from colonnade.network.live.network import Live
from colonnade.network.parts import Version
from colonnade.network.program_counter import END

log = logging.getLogger(__name__)

PAUSE = 0.1  # seconds between two checkpoints, at least
SHARE = 0.005  # of the training so far: not more often than that
COST = 0.03  # of the time, at most, is spent on checkpoints
AGAIN = 2 * SECOND  # between two attempts to write what a full disk refused


class Keeping:
    """`facts`: what a checkpoint holds of the party beside the algorithm's state."""

    def __init__(
        self,
        algorithm: Algorithm,
        folder: Path,
        record: Record,
        clock: Clock,
        facts: Callable[[], dict[str, Any]],
    ) -> None:
        self.algorithm, self.folder, self.record = algorithm, folder, record
        self.clock, self.facts = clock, facts
        self.checkpoint = Checkpoint(algorithm, folder / "checkpoints")
        self.trained_before = False  # in an earlier life
        self.version: Version | None = None  # of the model in use
        self.saved: Version | None = None  # of the model in the folder
        self.background: BackgroundWriter | None = None  # None: what is written is written at once
        self.trouble = Trouble(log)
        self.stopwatch: Callable[[], float] = lambda: 0.0  # real seconds; none in virtual time
        self._kept = self._begun = clock.now
        self._costs = deque([0.0], maxlen=9)  # seconds that the last checkpoints took

    def resume(self, net: Live) -> dict[str, Any] | None:
        """Go on from the checkpoint, if there is one; its facts."""
        self.net = net
        facts = self.checkpoint.resume(net)
        if facts is not None:
            self.trained_before = net.resume_at >= END - 1
        return facts

    def begin(self, net: Live) -> None:
        """The training begins."""
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

    def keep(self, rounds: int, *, at_once: bool = True) -> None:
        """Write a checkpoint after so many rounds. Without room on the disk, a restart goes on from
        the one before. Unless `at_once`, a thread of its own does the writing."""
        begun, self._kept = self.stopwatch(), self.clock.now
        if self.background is not None and at_once:
            self.background.wait()
        writer = None if at_once else self.background
        done, facts = self.net.restart_round(rounds), {**self.facts(), "version": self.version}
        self.attempt(lambda: self.checkpoint.keep(self.net, done, facts, writer))
        self.attempt(self.record.keep)
        self.write_again()
        self._costs.append(self.stopwatch() - begun)

    def note(self) -> None:
        """Write down what left, now and then, and what a full disk refused."""
        if self.clock.now - self._kept >= AGAIN:
            self._kept = self.clock.now
            self.attempt(self.record.keep)
            self.write_again()

    async def finish(self) -> None:
        """Before a clean end: write what there is, with what left in the test and in answers. As
        long as a full disk refuses the result or a part of the model, the process stays."""
        self.attempt(self.record.keep)
        self.write_again()
        while self.record.unwritten is not None or self.algorithm.training.versions.unwritten:
            await self.clock.sleep_until(self.clock.now + AGAIN)
            self.attempt(self.record.keep)
            self.write_again()

    def write_again(self) -> None:
        versions = self.algorithm.training.versions
        if versions.unwritten:
            versions.write(self.net)
        if self.version is not None and versions.used == self.version != self.saved:
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

    def attempt(self, write: Callable[[], None]) -> None:
        """Write something; a full disk is told and does not end the training."""
        try:
            write()
            self.trouble.over(str(self.folder))
        except (CheckpointError, OSError) as error:
            self.trouble.tell(f"{self.folder}: {error}")
