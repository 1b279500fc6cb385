"""Real processes that are killed while they train: what becomes of the model.

For each method: `colonnade up` on digits, undisturbed, then with a random process killed about
every two seconds, for many seeds. Half of the rows are test rows, so that a point is nine rows.

A disturbed run is another training of the same model: rounds are done again, steps are missed. So
it is compared with undisturbed runs from several initial weights. A run is *within* if its test
accuracy is at most one point below the undisturbed run from the same initial weights, *usual* if it
is at most one point below the lowest undisturbed one, *explained* if it is lower and its notes name
the parties that the model or the test lacks, or that missed more than a fifth of the rounds, and
*silent* if it is lower and nothing says so.

`python -m bench chaos --keep FILE` appends every run to FILE as it ends, one JSON object per line,
and does not repeat runs that FILE holds: so the table, which takes more than an hour, can be made
in several parts.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cache
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
# whatever the validation says. Methods that stand still while a party is away need fewer: with
# `wait` nearly all of the time passes while somebody is away (25 epochs: 1 or 179 kills).
SPLIT_EPOCHS = {"wait": 15, "skip": 40, "zeros": 60, "buffer": 60, "stale": 60}
LEAST, TRIES = 5, 8  # kills; a run that ends with fewer is made again with other ones
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
    "mags": {"algorithm": "mags", "method": "CD-MVFL-G2", "epochs": 100, "lr": 8e-3},
    "fedvs": {
        "algorithm": "fedvs",
        "epochs": 60,
        "patience": 60,
        "lr": 0.02,
        "data_bits": 5,  # standardised columns reach further than pixels
        "model_bits": 11,
    },
    **{
        f"vim {solver}": {
            "algorithm": "vim",
            "solver": solver,
            "epochs": 40,
            "patience": 40,
            "batch": 64,
            "tau": 10,
            "lr": 0.05,
        }
        for solver in ("admm", "admm-j")
    },
    "fdml": {"algorithm": "fdml", "epochs": 60, "patience": 60, "batch": 64},
}


@dataclass(frozen=True)
class Run:
    """One training. `seed`: of the kills, None: undisturbed; `weights`: of the initial weights."""

    method: str
    seed: int | None
    weights: int
    accuracy: float = 0.0
    kills: int = 0
    notes: tuple[str, ...] = ()
    commit: str = ""

    @property
    def key(self) -> tuple[str, int | None, int]:
        return self.method, self.seed, self.weights


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
        return sum(self.kind(run.accuracy, run.notes) == kind for run in self.runs)


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


def federate(wanted: Run) -> Run:
    """Train with one process per party. `LEAST` kills at least, however the training ends: whether
    a run counts depends on its kills only."""
    again = 0
    while True:
        with tempfile.TemporaryDirectory() as folder:
            ended = _federate(wanted, Path(folder), again * SEEDS)
        again += 1
        if wanted.seed is None or ended.kills >= LEAST or again == TRIES:
            return ended


def _federate(wanted: Run, folder: Path, further: int) -> Run:
    digits(folder / "digits.npz")
    data = {"path": str(folder / "digits.npz"), "parties": 4, "split": "bands"}
    method = dict(METHODS[wanted.method])
    table = {"name": wanted.method, "seed": wanted.weights, "data": data, "method": method}
    source = folder / "federation.toml"
    killed: list[str] = []
    say = lambda text: killed.append(text) if text.startswith("killed ") else None  # noqa: E731
    facts: Any = {} if wanted.seed is None else {"kill_every": EVERY, "seed": wanted.seed + further}
    federation = parse_federation(table, str(source))
    result = up(federation, source, folder / "out", main, say=say, **facts)
    accuracy = result.metrics.get("test_accuracy") or 0.0
    notes, at = tuple(result.notes), commit()
    return replace(wanted, accuracy=accuracy, kills=len(killed), notes=notes, commit=at)


@cache
def commit() -> str:
    """Of this checkout."""
    words = ("git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD")
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


def plan() -> list[Run]:
    """The undisturbed runs first; then all methods seed by seed, so that whatever has been done
    when the benchmark is interrupted is a table."""
    calm = [Run(name, None, weights) for name in METHODS for weights in range(CALM)]
    return calm + [Run(name, seed, 0) for seed in range(SEEDS) for name in METHODS]


def kept(path: Path | None) -> dict[tuple[str, int | None, int], Run]:
    """The runs of an earlier call."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    runs = [Run(**{**facts, "notes": tuple(facts["notes"])}) for facts in map(json.loads, lines)]
    return {run.key: run for run in runs}


def run(keep: Path | None = None) -> list[Figure]:
    done = kept(keep)
    for wanted in plan():
        if wanted.key in done:
            continue
        ended = done[wanted.key] = federate(wanted)
        if keep is not None:
            with keep.open("a") as file:
                file.write(json.dumps(asdict(ended)) + "\n")
        print(_line(ended), *ended.notes, sep="\n    ", file=sys.stderr, flush=True)
    return [Figure("chaos", one.method, 0.0, detail=one) for one in studies(done.values())]


def studies(runs: Iterable[Run]) -> list[Chaos]:
    """By method, as far as there are runs."""
    found: dict[str, Chaos] = {}
    for one in sorted(runs, key=lambda run: (run.seed is not None, run.seed or run.weights)):
        study = found.setdefault(one.method, Chaos(one.method, []))
        if one.seed is None:
            study.undisturbed.append(one.accuracy)
        else:
            study.runs.append(one)
    return [found[name] for name in METHODS if name in found]


def _line(run: Run) -> str:
    how = f"undisturbed, weights {run.weights}" if run.seed is None else f"seed {run.seed}"
    return f"{run.method}, {how}: {100 * run.accuracy:.2f} after {run.kills} kills"


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
        accuracies = [run.accuracy for run in one.runs]
        kills = [run.kills for run in one.runs]
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
