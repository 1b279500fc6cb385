"""Real processes that are killed while they train: what becomes of the model.

For each method: `colonnade up` on digits, undisturbed, then with a random process killed about
every two seconds, for many seeds. Half of the rows are test rows, so that a point is nine rows.

A disturbed run is another training of the same model: rounds are done again, steps are missed. So
it is compared with undisturbed runs from several initial weights. A run is *within* if its test
accuracy is at most one point below the undisturbed run from the same initial weights, *usual* if it
is at most one point below the lowest undisturbed one, *explained* if it is lower and its notes name
the parties that the model or the test lacks, or that missed more than a fifth of the rounds, and
*silent* if it is lower and nothing says so.
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

import numpy as np
from rich import box
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from bench.timing import Figure
from colonnade.cli import main
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.member.local_processes import up

EVERY = 2.0  # seconds between two kills, about
POINT = 0.01
KINDS = ("within", "usual", "explained", "silent")
SEEDS, CALM = 20, 5  # runs with kills, and initial weights of runs without
# Epochs for a training of ten seconds and more, that is five kills and more. All epochs are done,
# whatever the validation says. Methods that stand still while a party is away need fewer.
SPLIT_EPOCHS = {"wait": 120, "skip": 100, "zeros": 110, "buffer": 110, "stale": 110}
METHODS: dict[str, dict[str, Any]] = {
    **{
        f"splitnn {missing}": {
            "algorithm": "splitnn",
            "missing": missing,
            "epochs": epochs,
            "patience": epochs,
            "lr": 5e-3,
        }
        for missing, epochs in SPLIT_EPOCHS.items()
    },
    "dvfl": {
        "algorithm": "dvfl",
        "aggregators": 2,
        "client_epochs": 35,
        "aggregator_epochs": 70,
        "epochs": 150,
    },
    "fedonce": {"algorithm": "fedonce", "client_epochs": 300, "epochs": 600, "patience": 600},
    "cvfl": {"algorithm": "cvfl", "epochs": 25, "patience": 25, "lr": 3e-3, "optimizer": "adam"},
    "vafl": {"algorithm": "vafl", "epochs": 25, "patience": 25, "lr": 5e-3},
    "mags": {"algorithm": "mags", "method": "CD-MVFL-G2", "epochs": 150, "lr": 8e-3},
    "fedvs": {
        "algorithm": "fedvs",
        "epochs": 60,
        "patience": 60,
        "lr": 0.02,
        "data_bits": 5,  # standardised columns reach further than pixels
        "model_bits": 11,
    },
}


# Seed, accuracy, kills, notes.
Run = tuple[int | None, float, int, tuple[str, ...]]


@dataclass
class Chaos:
    """What became of one method."""

    method: str
    undisturbed: list[float]  # the first: from the same initial weights as the disturbed ones
    runs: list[Run] = field(default_factory=list)

    def kind(self, accuracy: float, notes: Iterable[str]) -> str:
        if accuracy >= self.undisturbed[0] - POINT - 1e-9:
            return "within"
        if accuracy >= min(self.undisturbed) - POINT - 1e-9:
            return "usual"
        named = any(note.startswith(("tested without", "the model lacks")) for note in notes)
        return "explained" if named or any(map(missed_much, notes)) else "silent"

    def count(self, kind: str) -> int:
        return sum(self.kind(accuracy, notes) == kind for _, accuracy, _, notes in self.runs)


def missed_much(note: str) -> bool:
    """Whether a note names a party that missed more than a fifth of the rounds."""
    found = re.search(r": ([\d,]+) of ([\d,]+) rounds", note)
    took, of = (int(n.replace(",", "")) for n in found.groups()) if found else (1, 1)
    return took < 0.8 * of


def digits(path: Path) -> None:
    """Digits with a fixed split into halves: the same test rows for all initial weights."""
    found: Any = load_digits()
    x = (found.images / 16).astype("float32")
    split = train_test_split(x, found.target, test_size=0.5, random_state=0, stratify=found.target)
    np.savez(path, **dict(zip(("x_train", "x_test", "y_train", "y_test"), split, strict=True)))


def federate(
    name: str, method: Mapping[str, Any], folder: Path, seed: int | None, weights: int = 0
) -> Any:
    """The result of one training, and how many processes were killed. `seed`: of the kills;
    `weights`: of the initial weights."""
    digits(folder / "digits.npz")
    data = {"path": str(folder / "digits.npz"), "parties": 4, "split": "bands"}
    table = {"name": name, "seed": weights, "data": data, "method": dict(method)}
    source = folder / "federation.toml"
    killed: list[str] = []
    say = lambda text: killed.append(text) if text.startswith("killed ") else None  # noqa: E731
    facts: Any = {} if seed is None else {"kill_every": EVERY, "seed": seed}
    federation = parse_federation(table, str(source))
    result = up(federation, source, folder / "out", main, say=say, **facts)
    return result, len(killed)


def attempt(name: str, method: Mapping[str, Any], seed: int | None, weights: int = 0) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        result, kills = federate(name, method, Path(folder), seed, weights)
    return seed, result.metrics.get("test_accuracy") or 0.0, kills, tuple(result.notes)


def study(name: str, method: Mapping[str, Any], seeds: Iterable[int]) -> Chaos:
    found = Chaos(name, [attempt(name, method, None, weights)[1] for weights in range(CALM)])
    line = ", ".join(f"{100 * accuracy:.2f}" for accuracy in found.undisturbed)
    print(f"{name} undisturbed: {line}", file=sys.stderr, flush=True)
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
        "most a point below the undisturbed run from the same initial weights; usual: at most a "
        f"point below the lowest of {CALM} undisturbed runs; explained: lower, and the result "
        "names the parties that are missing; silent: lower, and nothing says so"
    )
    result = Table(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left")
    result.add_column("method")
    for header in ("undisturbed", "median", "worst", "runs", "kills", *KINDS):
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
            *(str(one.count(kind)) for kind in KINDS),
        )
    return result


def _range(ends: list[str]) -> str:
    return " – ".join(dict.fromkeys(ends))
