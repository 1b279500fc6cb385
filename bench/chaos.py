"""Real processes that are killed while they train: what becomes of the model.

For each method: `colonnade up` on digits, three times undisturbed, then with a random process
killed about every two seconds, for many seeds. (Undisturbed runs differ as well where parties do
not wait for each other: in `dvfl`.) A run is *within* if its test accuracy is at most one point
below the lowest undisturbed one, *explained* if it is lower and its notes name the parties that the
model or the test lacks, or that missed more than a fifth of the rounds, and *silent* if it is lower
and nothing says so.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich import box
from rich.table import Table

from bench.timing import Figure
from colonnade.cli import main
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.member.local_processes import up

EVERY = 2.0  # seconds between two kills, about
POINT = 0.01
SEEDS, CALM = 20, 3  # runs with kills, and without
# Long enough for five kills and more: all epochs are done, whatever the validation says.
SHARED: dict[str, Any] = {"epochs": 16, "patience": 16, "lr": 5e-3}
METHODS: dict[str, dict[str, Any]] = {
    **{
        f"splitnn {missing}": {"algorithm": "splitnn", "missing": missing, **SHARED}
        for missing in ("wait", "skip", "zeros", "buffer", "stale")
    },
    "dvfl": {
        "algorithm": "dvfl",
        "aggregators": 2,
        "client_epochs": 15,
        "aggregator_epochs": 30,
        "epochs": 60,
    },
    "fedonce": {"algorithm": "fedonce", "client_epochs": 60, "epochs": 120, "patience": 120},
    "mags": {"algorithm": "mags", "method": "CD-MVFL-G2", "epochs": 14, "lr": 8e-3},
    "fedvs": {"algorithm": "fedvs", "epochs": 40, "patience": 40},
}


# Seed, accuracy, kills, notes.
Run = tuple[int | None, float, int, tuple[str, ...]]


@dataclass
class Chaos:
    """What became of one method."""

    method: str
    undisturbed: list[float]
    runs: list[Run] = field(default_factory=list)

    def kind(self, accuracy: float, notes: Iterable[str]) -> str:
        if accuracy >= min(self.undisturbed) - POINT - 1e-9:
            return "within"
        named = any(note.startswith(("tested without", "the model lacks")) for note in notes)
        return "explained" if named or any(map(missed_much, notes)) else "silent"

    def count(self, kind: str) -> int:
        return sum(self.kind(accuracy, notes) == kind for _, accuracy, _, notes in self.runs)


def missed_much(note: str) -> bool:
    """Whether a note names a party that missed more than a fifth of the rounds."""
    found = re.search(r": ([\d,]+) of ([\d,]+) rounds", note)
    took, of = (int(n.replace(",", "")) for n in found.groups()) if found else (1, 1)
    return took < 0.8 * of


def federate(name: str, method: Mapping[str, Any], folder: Path, seed: int | None) -> Any:
    """The result of one training, and how many processes were killed."""
    data = {"dataset": "digits", "parties": 4, "split": "bands"}
    table = {"name": name, "data": data, "method": dict(method)}
    source = folder / "federation.toml"
    killed: list[str] = []
    say = lambda text: killed.append(text) if text.startswith("killed ") else None  # noqa: E731
    facts: Any = {} if seed is None else {"kill_every": EVERY, "seed": seed}
    federation = parse_federation(table, str(source))
    result = up(federation, source, folder / "out", main, say=say, **facts)
    return result, len(killed)


def attempt(name: str, method: Mapping[str, Any], seed: int | None) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        result, kills = federate(name, method, Path(folder), seed)
    return seed, result.metrics.get("test_accuracy") or 0.0, kills, tuple(result.notes)


def study(name: str, method: Mapping[str, Any], seeds: Iterable[int]) -> Chaos:
    found = Chaos(name, [attempt(name, method, None)[1] for _ in range(CALM)])
    for seed in seeds:
        run = attempt(name, method, seed)
        found.runs.append(run)
        kind = found.kind(run[1], run[3])
        line = f"{name} seed {seed}: {100 * run[1]:.2f} after {run[2]} kills, {kind}"
        print(line, *run[3], sep="\n    ", file=sys.stderr, flush=True)
    return found


def run() -> list[Figure]:
    studies = [study(name, method, range(SEEDS)) for name, method in METHODS.items()]
    return [Figure("chaos", one.method, 0.0, detail=one) for one in studies]


def table(figures: list[Figure]) -> Table:
    caption = (
        f"test accuracy on digits, %; a process is killed about every {EVERY:.0f} s. within: at "
        "most a point below the lowest undisturbed; explained: lower, and the result names who is "
        "missing; silent: lower, and nothing says so"
    )
    result = Table(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left")
    result.add_column("method")
    headers = ("undisturbed", "median", "worst", "runs", "kills", "within", "explained", "silent")
    for header in headers:
        result.add_column(header, justify="right", no_wrap=True)
    for figure in figures:
        one: Chaos = figure.detail
        accuracies = [accuracy for _, accuracy, _, _ in one.runs]
        kills = [count for _, _, count, _ in one.runs]
        result.add_row(
            one.method,
            _range([f"{100 * x:.1f}" for x in (min(one.undisturbed), max(one.undisturbed))]),
            *(f"{100 * x:.1f}" for x in (median(accuracies), min(accuracies))),
            str(len(one.runs)),
            _range([f"{min(kills)}", f"{max(kills)}"]),
            *(str(one.count(kind)) for kind in ("within", "explained", "silent")),
        )
    return result


def _range(ends: list[str]) -> str:
    return " – ".join(dict.fromkeys(ends))
