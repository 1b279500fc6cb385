"""A label holder that is killed every five seconds: does the training get on?

Four column holders and the label holder of digits, each started by `colonnade join`, as five
organisations would. The label holder is killed again and again, and started anew at once. Measured:
how long it takes from its start until it trains again, how many rounds are done between two kills,
how many rounds a kill costs, and which share of its time goes into checkpoints.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.processes import table as table
from bench.timing import Figure, Measure, Spread, Target
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.member.folder import STATUS
from colonnade.federation.member.local_files import prepare
from colonnade.federation.member.stage import Stage
from colonnade.federation.member.status import read_status

PARTIES = 4  # with columns
EVERY, KILLS, LIMIT = 5.0, 8, 60.0
TOLD = 0.7  # seconds; a party writes how far it is twice a second
EPOCHS = 2000  # more than will be done


@dataclass
class Restarts:
    seconds: list[float] = field(default_factory=list)  # from a start to the next round
    gained: list[float] = field(default_factory=list)  # rounds between two kills
    lost: list[float] = field(default_factory=list)  # share of the rounds so far, by one kill
    lost_seconds: list[float] = field(default_factory=list)  # what these rounds had taken
    of_allowed: list[float] = field(default_factory=list)  # the same, of what may be lost
    checkpoints: list[float] = field(default_factory=list)  # share of the time, in percent


def run() -> list[Figure]:
    with TemporaryDirectory() as name:
        found = kill_again_and_again(Path(name), KILLS, EVERY)
    return [
        _figure("seconds from its start until it trains again", found.seconds, Target(3, False)),
        _figure("rounds between two kills", found.gained, Target(1)),
        _figure("rounds lost by a kill, % of those done", found.lost),
        _figure("rounds lost by a kill, in seconds", found.lost_seconds),
        _figure("the same, of 1 % or 0.2 s, whichever is more", found.of_allowed, Target(1, False)),
        _figure("checkpoints, % of the time", found.checkpoints, Target(3, False)),
    ]


def _figure(variant: str, values: list[float], target: Target | None = None) -> Figure:
    spread = Spread.of(values)
    return Figure("restarts", variant, 0.0, "", Measure(spread, spread), target)


def kill_again_and_again(folder: Path, kills: int, every: float) -> Restarts:
    data = {"dataset": "digits", "parties": PARTIES, "split": "bands", "validation": 0.0}
    method = {"algorithm": "splitnn", "epochs": EPOCHS, "patience": EPOCHS, "batch": 64}
    source = folder / "federation.toml"
    federation = parse_federation({"name": "restarts", "data": data, "method": method}, str(source))
    prepare(federation, source, folder / "out")
    parties = {party: Party(folder / "out", party) for party in federation.members}
    server, found = parties["server"], Restarts()
    try:
        for party in parties.values():
            party.start()
        wait_for(lambda: server.round() > 0)
        for _ in range(kills):
            at = server.round()
            time.sleep(every)
            found.checkpoints.append(100 * server.checkpoints())
            server.kill()
            begun = time.monotonic()
            server.start()
            time.sleep(TOLD)  # until the others, who wait for it, have written how far they were
            done = max(party.round() for party in parties.values() if party is not server)
            wait_for(lambda: server.round() > 0)
            found.seconds.append(time.monotonic() - begun)
            found.gained.append(done - at)
            lost = max(0, done - server.resumed_at())
            found.lost.append(100 * lost / max(1, done))
            found.lost_seconds.append(every * lost / max(1, done - at))
            percent, seconds = found.lost[-1], found.lost_seconds[-1]
            found.of_allowed.append(min(percent / 1, seconds / 0.2))
    finally:
        for party in parties.values():
            party.kill()
    return found


def wait_for(ready: Callable[[], bool]) -> None:
    limit = time.monotonic() + LIMIT
    while not ready():
        if time.monotonic() > limit:
            raise TimeoutError(f"nothing happens for {LIMIT:.0f} s")
        time.sleep(0.02)


class Party:
    """One `colonnade join`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file, self.folder = folder / f"{name}.toml", folder / name
        self.log = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        (self.folder / STATUS).unlink(missing_ok=True)
        command = [sys.executable, "-m", "colonnade", "join", str(self.file), "--once"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def round(self) -> int:
        """Of the training that goes on; 0 if none does."""
        told = read_status(self.folder)
        return told["round"] if told.get("stage") == Stage.TRAINING else 0

    def checkpoints(self) -> float:
        """The share of its time that went into checkpoints, since it began to train."""
        return read_status(self.folder).get("checkpoints", 0.0)

    def resumed_at(self) -> int:
        """The round from which it last went on."""
        told = r"going on from its\s+checkpoint:\s+([\d,]+)\s+rounds"
        found = re.findall(told, self.log.read_text())
        return int(found[-1].replace(",", "")) if found else 0
