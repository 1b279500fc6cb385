"""One training of growing size in a process of its own: what it takes, holds and sends.

A training is one epoch on random columns, without validation rows. Times are processor times, so
that other work on the machine counts little.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Literal

from bench import timing
from bench.mags import noise
from colonnade.algorithms import registry
from colonnade.experiments.config import parse_experiment
from colonnade.experiments.markdown import commit
from colonnade.experiments.run import build, drive, warm_up
from colonnade.experiments.runner import run_experiment
from colonnade.learning.settings import Settings
from colonnade.network import Topology

PARTIES, COLUMNS = 4, 4  # unless they grow
BATCH, BATCHES = 64, 8
REPEATS, SHORT = 3, 2.0  # epochs shorter than so many seconds are measured so often: the median
LARGE_BATCH = 8192  # where rows grow: an epoch of 10⁷ rows has 1,221 such batches
MODELS: Mapping[str, Any] = {"encoder": [16, 4], "head": [64], "epochs": 1}


@dataclass(frozen=True, eq=False)
class Family:
    """A method whose cost is measured."""

    name: str
    algorithm: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    topology: Literal["complete", "grid"] = "complete"

    def method(self, batch: int) -> Settings:
        chosen = {**MODELS, "batch": batch, **self.settings}
        kind = registry()[self.algorithm].settings
        return kind(name=self.name, algorithm=self.algorithm, **chosen)


@dataclass(frozen=True)
class Point:
    """One epoch of one method at one size; for `runs`, so many trainings and their report."""

    family: str
    quantity: str  # parties | rows | columns | runs
    size: int
    batches: int
    seconds: float  # in the rounds of the epoch, by processor time
    around: float  # before the first round and after the last one
    held: int  # bytes: the largest memory of the process above that of an idle one
    messages: int  # between different parties
    bytes: int
    commit: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        return self.family, self.quantity, self.size

    @property
    def units(self) -> int:
        """What the epoch is divided by, so that the rest grows with the quantity alone: batches,
        unless it is rows or runs that grow."""
        return self.batches if self.quantity in ("parties", "columns") else 1

    @property
    def time(self) -> float:
        """Seconds of a batch, of all rows, or of all runs."""
        return self.seconds / self.units

    @property
    def sent(self) -> float:
        """Bytes, of the same."""
        return self.bytes / self.units


def measured(family: Family, quantity: str, size: int) -> Point:
    """In a process of its own, whose memory tells nothing of other points."""
    if timing.SMALLEST:
        return measure(family, quantity, size)
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with context.Pool(1) as pool:
        return pool.apply(measure, (family, quantity, size))


def measure(family: Family, quantity: str, size: int) -> Point:
    import torch

    torch.set_num_threads(1)
    warm_up()
    before = memory("VmRSS")
    work = lambda: many_runs(size) if quantity == "runs" else one_epoch(family, quantity, size)  # noqa: E731
    done = [work()]
    held = max(0, memory("VmHWM") - before)
    while len(done) < REPEATS and done[0]["seconds"] < SHORT and not timing.SMALLEST:
        done.append(work())
    times = {key: median(one[key] for one in done) for key in ("seconds", "around")}
    facts = {**done[0], **times, "held": held, "commit": commit()}
    return Point(family.name, quantity, size, **facts)


def one_epoch(family: Family, quantity: str, size: int) -> dict[str, Any]:
    parties = size if quantity == "parties" else PARTIES
    columns = size if quantity == "columns" else COLUMNS
    batch = LARGE_BATCH if quantity == "rows" else BATCH
    rows = size if quantity == "rows" else BATCH * BATCHES
    data = noise(parties, (columns,), rows, validation=0)
    began = time.process_time()
    graph = Topology(family.topology)
    algorithm, net = build(family.method(batch), data, seed=0, topology=graph)
    rounds: list[float] = []
    net.watch = lambda round: rounds.append(time.process_time())
    net.watch_side_by_side = lambda child: rounds.append(time.process_time())
    drive(algorithm.train(net))
    whole = time.process_time() - began
    # The last round has no end of its own: it is taken to be as long as the others.
    seconds = (rounds[-1] - rounds[0]) * len(rounds) / max(1, len(rounds) - 1)
    messages, sent = net.ledger.total("training", "supervision", leave_out=algorithm.outside)
    return {
        "batches": -(-rows // batch),
        "seconds": seconds,
        "around": max(0.0, whole - seconds),
        "messages": messages,
        "bytes": sent,
    }


def many_runs(size: int) -> dict[str, Any]:
    """A grid of so many runs that hardly train, one after the other, and its report."""
    table = {
        "name": "many",
        "seeds": list(range(size)),
        "data": {"dataset": "wine"},
        "methods": [{"algorithm": "splitnn", "epochs": 1, "encoder": [4], "head": [4]}],
    }
    with TemporaryDirectory(prefix="colonnade-bench-") as folder:
        began = time.process_time()
        outcome = run_experiment(parse_experiment(table, "many"), Path(folder))
        ran = time.process_time()
        outcome.report()
        after = time.process_time() - ran
    sent = [(r.cost["messages"], r.cost["bytes"]) for r in outcome.results]
    messages, sent = (int(sum(each or 0 for each in one)) for one in zip(*sent, strict=True))
    return {
        "batches": size,
        "seconds": ran - began,
        "around": after,
        "messages": messages,
        "bytes": sent,
    }


def memory(what: str, read: Callable[[], str] = Path("/proc/self/status").read_text) -> int:
    """Resident bytes of this process: `VmRSS` now, `VmHWM` at the most so far."""
    found = re.search(rf"{what}:\s+(\d+) kB", read())
    return int(found.group(1)) * 1024 if found else 0
