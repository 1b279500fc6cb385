"""The story of docs/tutorial/first-federation.md, typed by a program: three tables and three party
files on disk, then keys, three processes with mutual TLS that match their rows and train, and
predictions for patients without a diagnosis.

Every command is a process of its own, as a person would type it; the time of each is from its start
to its end, of `join` until the hospital answers questions.
"""

from __future__ import annotations

import csv
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import tomli_w
from rich.table import Table

from bench import processes
from bench.timing import Figure, Measure, Spread, Target
from colonnade.common.toml import read_toml
from colonnade.federation.member.local_files import free_addresses
from colonnade.federation.member.stage import Stage
from colonnade.federation.member.status import read_status

EXAMPLE = Path(__file__).parents[1] / "examples" / "first-federation"
PARTIES = ("lab", "clinic", "hospital")
REPEATS, EPOCHS = 3, None  # None: as many as the example says
LONGEST = 300.0  # seconds until the hospital answers
COMMANDS = 10  # at most


def run() -> list[Figure]:
    runs = [once() for _ in range(REPEATS)]
    figures = [
        _figure(f"{what}: seconds", [one[what] for one in runs])
        for what in ("keys make", "join, until it answers", "predict", "report", "all of it")
    ]
    commands = _figure("commands", [one["commands"] for one in runs], Target(COMMANDS, False))
    cpu = _figure("processor seconds of all processes", [one["cpu"] for one in runs])
    rows = _figure("new patients answered", [one["rows"] for one in runs])
    return [commands, *figures, cpu, rows]


def _figure(variant: str, values: list[float], target: Target | None = None) -> Figure:
    spread = Spread.of(values)
    return Figure("clinics", variant, 0.0, "", Measure(spread, spread), target)


def table(figures: list[Figure]) -> Table:
    return processes.table(figures)


def once() -> dict[str, float]:
    """Seconds of each command, processor seconds of all, how many commands there were, and how many
    rows were answered."""
    with TemporaryDirectory() as name:
        folder = Path(name) / "clinics"
        write(folder)
        before = processor_seconds()
        with ExitStack() as stack:
            story = Story(folder, stack)
            seconds = {
                "keys make": story.timed(lambda: story.typed("keys", "make", "federation.toml")),
                "join, until it answers": story.timed(story.join),
                "predict": story.timed(
                    lambda: story.typed("predict", "hospital.toml", "--out", "new-patients.csv")
                ),
                "report": story.timed(lambda: story.typed("report", "hospital")),
            }
        cpu = processor_seconds() - before
        with (folder / "new-patients.csv").open(newline="") as file:
            answers = list(csv.DictReader(file))
    assert answers, "no patient was answered"
    assert not any(row["absent"] for row in answers), "a party was absent"
    whole = {"all of it": sum(seconds.values()), "rows": float(len(answers)), "cpu": cpu}
    return {**seconds, **whole, "commands": float(story.commands)}


def processor_seconds() -> float:
    """Of processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def write(folder: Path) -> None:
    """The files of the example, at ports that are free."""
    shutil.copytree(EXAMPLE, folder)
    subprocess.run([sys.executable, "make_data.py"], cwd=folder, check=True)
    table = read_toml(folder / "federation.toml")
    addresses = free_addresses(len(table["parties"]))
    table["parties"] = [
        {**party, "endpoint": address}
        for party, address in zip(table["parties"], addresses, strict=True)
    ]
    table["method"] |= {} if EPOCHS is None else {"epochs": EPOCHS}
    (folder / "federation.toml").write_text(tomli_w.dumps(table))


class Story:
    """What is typed in a folder, and how often."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack, self.commands = folder, stack, 0

    def timed(self, part: Callable[[], None]) -> float:
        begun = time.perf_counter()
        part()
        return time.perf_counter() - begun

    def started(self, *words: str) -> subprocess.Popen[str]:
        self.commands += 1
        return subprocess.Popen(
            [sys.executable, "-m", "colonnade", *words],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ.copy(),
        )

    def typed(self, *words: str) -> None:
        process = self.started(*words)
        out, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(out)

    def join(self) -> None:
        """Until the hospital answers; the processes end with the story."""
        for party in PARTIES:
            process = self.started("join", f"{party}.toml")
            self.stack.callback(process.communicate)
            self.stack.callback(process.send_signal, signal.SIGTERM)
            if party == "hospital":
                self._wait(process)

    def _wait(self, hospital: subprocess.Popen[str]) -> None:
        end = time.monotonic() + LONGEST
        while read_status(self.folder / "hospital").get("stage") != Stage.ANSWERING:
            if hospital.poll() is not None or time.monotonic() > end:
                hospital.terminate()
                raise RuntimeError(f"the hospital does not answer: {hospital.communicate()[0]}")
            time.sleep(0.05)
