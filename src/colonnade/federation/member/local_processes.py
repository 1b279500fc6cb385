"""All parties as processes of this machine: `colonnade up`, for trials.

Each party is the same as on a machine of its own: a process with a certificate, a party file and a
folder, started as by `colonnade join`. With `kill_every`, processes are killed at random and
started again, for as long as the training goes on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

from colonnade.common.private_files import private
from colonnade.common.results import Result, read_results
from colonnade.errors import ColonnadeError, InputError
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.member.folder import LOG, STATUS
from colonnade.federation.member.local_files import FEDERATION, prepare
from colonnade.federation.member.member import TESTED_WITHOUT
from colonnade.federation.member.stage import LIFE, Stage
from colonnade.federation.member.status import read_status

TIME_TO_LEAVE = 5.0  # seconds after SIGTERM before a process is killed

Main = Callable[[], None]  # the command line: runs what `sys.argv` says


def begin(*arguments: Any) -> None:
    """What a forked process runs; the fork server has imported the module already."""
    from colonnade.federation.member import fork_server

    fork_server.join(*arguments)


@dataclass
class Chaos:
    """Kills a random process about every so many seconds; it comes back 1 to 3 seconds later."""

    every: float
    random: Random
    due: float = 0.0
    kills: int = 0
    returns: dict[str, float] = field(default_factory=dict)

    def schedule(self, now: float) -> None:
        """Choose the time of the next kill."""
        self.due = now + self.every * self.random.uniform(0.5, 1.5)


class Local:
    """The processes of a federation on this machine. `main`: the command line that each of them
    runs, as `colonnade join PARTY.toml`. `serve`: they go on answering questions after the test."""

    def __init__(
        self, federation: Federation, folder: Path, main: Main, *, serve: bool = False
    ) -> None:
        self.federation, self.folder, self.main, self.serve = federation, folder, main, serve
        self.processes: dict[str, ForkServerProcess] = {}
        self.context = get_context("forkserver")
        self.context.set_forkserver_preload(
            ["colonnade.federation.member.fork_server", main.__module__]
        )
        os.environ["COLONNADE_FORK_SERVER"] = str(folder / FEDERATION)

    def start(self, party: str) -> None:
        folder = self.folder / party
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / STATUS).unlink(missing_ok=True)
        # Without a leader, a party that has ended could not help the others to finish.
        once = not self.serve and self.federation.leader is not None
        arguments = (self.main, self.folder / f"{party}.toml", folder / LOG, once)
        process = self.context.Process(target=begin, args=arguments, name=party)
        process.start()
        self.processes[party] = process

    def kill(self, party: str) -> None:
        """Kill a process without warning, as a power cut would."""
        process = self.processes.pop(party)
        process.kill()
        process.join()

    def stop(self) -> None:
        """Ask all processes to end, and kill those that do not."""
        for process in self.processes.values():
            process.terminate()
        deadline = time.monotonic() + TIME_TO_LEAVE
        for process in self.processes.values():
            process.join(max(0.1, deadline - time.monotonic()))
            if process.exitcode is None:
                process.kill()
                process.join()
        self.processes.clear()

    def stage(self) -> Stage:
        """The stage of the label holder; where nobody leads, the earliest stage of all parties."""
        federation = self.federation
        watched = [federation.leader] if federation.leader else self.processes
        told = [read_status(self.folder / p).get("stage") for p in watched]
        stages = [Stage(stage) if stage in LIFE else Stage.STARTING for stage in told]
        return min(stages, key=LIFE.index, default=Stage.STARTING)

    def over(self) -> bool:
        """Whether the label holder has ended; where nobody leads, whether all parties are
        tested."""
        if self.federation.leader is None:
            everybody = len(self.processes) == len(self.federation.members)
            return everybody and self.stage() == Stage.ANSWERING
        process = self.processes.get(self.federation.leader)
        return process is not None and process.exitcode == 0

    def check(self) -> None:
        """Raise the error of a process that ended with one."""
        for party, process in self.processes.items():
            code = process.exitcode
            if code not in (None, 0):
                kind = InputError if code == 2 else ColonnadeError
                raise kind(f"{party} ended with an error: {why_ended(self.folder / party)}")


def up(
    federation: Federation,
    source: Path,
    folder: Path,
    main: Main,
    *,
    kill_every: float | None = None,
    seed: int | None = None,
    watch: Callable[[dict[str, Any]], None] = lambda status: None,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[str, Result]:
    """Train with one process per party, to the end. Returns the most complete result of those who
    hold labels, and whose it is."""
    prepare(federation, source, folder)
    chaos = None if kill_every is None else begin_chaos(kill_every, seed, say)
    with private(folder), running(Local(federation, folder, main)) as local:
        _wait(local, chaos, watch, say)
    found = [(p, one) for p in federation.label_holders for one in read_results(folder / p)]
    if not found:
        raise ColonnadeError(f"{federation.speaker} has no result; see {folder}")
    if chaos is not None:
        say(f"{chaos.kills} processes were killed while the training went on.")
    return most_complete(found)


def most_complete(found: Sequence[tuple[str, Result]]) -> tuple[str, Result]:
    """Of several parties' results one with metrics, with the fewest parties missing; of equal ones
    the first."""
    return min(found, key=lambda one: (not one[1].metrics, lacks(one[1])))


def lacks(result: Result) -> int:
    """How many parties were missing in the model of a result, or in its test."""
    return sum(note.startswith(("the model lacks", TESTED_WITHOUT)) for note in result.notes)


@contextmanager
def running(local: Local) -> Iterator[Local]:
    try:
        for party in local.federation.members:
            local.start(party)
        yield local
    finally:
        local.stop()


def _wait(
    local: Local,
    chaos: Chaos | None,
    watch: Callable[[dict[str, Any]], None],
    say: Callable[[str], None],
) -> None:
    caution = ""
    while True:
        time.sleep(0.1)
        local.check()
        status = read_status(local.folder / local.federation.speaker)
        watch(status)
        if not caution and (caution := status.get("caution", "")):
            say(caution)
        if local.over():
            return
        if chaos is not None:
            kill_and_restart(local, chaos, say)


def begin_chaos(every: float, seed: int | None, say: Callable[[str], None]) -> Chaos:
    if seed is None:
        seed = SystemRandom().randrange(2**31)
    say(f"chaos: a process is killed about every {every:g} s; --chaos-seed {seed}")
    return Chaos(every, Random(seed))


def kill_and_restart(local: Local, chaos: Chaos, say: Callable[[str], None]) -> None:
    """Kill a process if it is time, and start killed processes again when their pause is over."""
    now, stage = time.monotonic(), local.stage()
    for party, when in list(chaos.returns.items()):
        if now >= when:
            del chaos.returns[party]
            local.start(party)
    if stage.after_training:
        return
    if stage == Stage.TRAINING and chaos.due == 0.0:
        chaos.schedule(now)
    if chaos.due and now >= chaos.due and local.processes:
        party = chaos.random.choice(sorted(local.processes))
        local.kill(party)
        chaos.kills += 1
        chaos.returns[party] = now + chaos.random.uniform(1, 3)
        say(f"killed {party}")
        chaos.schedule(now)


def notes_of(folder: Path, parties: Iterable[str]) -> list[str]:
    """What the parties noticed about their own columns, as they wrote into their folders: it is
    told to no other party."""
    return [note for party in parties for note in read_status(folder / party).get("notes", ())]


def why_ended(folder: Path) -> str:
    """The sentence with which a party's process ended; of one that could not write it, the end of
    its log."""
    told = read_status(folder).get("ended", {}).get("reason")
    return told or end_of_log(folder / LOG)


def end_of_log(log: Path) -> str:
    try:
        text = log.read_text(errors="replace")
    except FileNotFoundError:
        return (
            "its process ended before it had a log. A Python script that calls `up` must do so "
            'under `if __name__ == "__main__":`, because every process imports the script'
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[-1].startswith("Error "):  # as the command line says it, on one line
        return lines[-1].removeprefix("Error ")
    return " ".join(lines[-3:])[-1000:] or f"no reason given; see {log}"
