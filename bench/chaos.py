"""Real processes that are killed while they train: what becomes of the model.

For each method: `colonnade up` on digits, undisturbed, then with a random process killed about
every two seconds, for many seeds. Half of the rows are test rows, so that a point is nine rows.

A disturbed run is another training of the same model: rounds are done again, steps are missed. So
it is compared with undisturbed runs from several initial weights. Where every device has a result
(`mags`), the worst device's counts. A run is *within a point* if its test accuracy is at most one
point below that of the undisturbed run from the same initial weights, and no device ended without a
part of the model; else it is *lower*. A lower run is *named* if a note of its results says whom the
model or the test lacks, or names a party that missed more than a fifth of the rounds, whichever
party that is; else nothing says so. Apart from that, a lower run is *usual* if it is at most one
point below the lowest undisturbed one.

Whether a run, lower or not, tested *one model* is not judged by its accuracy: the parts that the
parties have stored are tested once more in one process, see `stored_parts.py`, and must have the
accuracy and the loss that the results tell. A run that names parties which the
model or the test lacks is not tested once more.

`python -m bench chaos --keep FILE` appends every run to FILE as it ends, one JSON object per line,
and does not repeat runs that FILE holds: so the table, which takes more than an hour, can be made
in several parts. `--jobs 2` runs two federations at a time. `--seeds 2`, `--every 15` and
`--methods mags,dvfl` make other tables; keep their runs in files of their own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import tomli_w
from rich import box
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from bench.stored_parts import disagreement
from bench.timing import Figure
from colonnade.common.results import Result, read_results

EVERY = 2.0  # seconds between two kills, about
POINT = 0.01
EQUAL = 1e-5  # accuracies and losses that differ by rounding only
NAMING = ("tested without", "the model lacks")  # how notes begin that name whom the model lacks
NO_PART = "has no part of the model of its neighbours"
SEEDS, CALM = 20, 5  # runs with kills, and initial weights of runs without
# Epochs for a training of ten seconds and more, that is five kills and more. All epochs are done,
# whatever the validation says. Methods that stand still while a party is away need fewer.
SPLIT_EPOCHS = {"wait": 10, "skip": 100, "zeros": 100, "buffer": 100, "stale": 100}
# A run that ends with fewer kills is made again with other ones, so many times at most; where kills
# are rarer than usual, a run without any.
LEAST, TRIES = 5, 8
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
        "client_epochs": 50,
        "aggregator_epochs": 100,
        "epochs": 200,
    },
    "fedonce": {"algorithm": "fedonce", "client_epochs": 200, "epochs": 400, "patience": 400},
    "cvfl": {"algorithm": "cvfl", "epochs": 60, "patience": 60, "lr": 3e-3, "optimizer": "adam"},
    "vafl": {"algorithm": "vafl", "epochs": 80, "patience": 80, "lr": 5e-3},
    "mags": {"algorithm": "mags", "method": "CD-MVFL-G2", "epochs": 80, "lr": 8e-3},
    "fedvs": {
        "algorithm": "fedvs",
        "epochs": 120,
        "patience": 120,
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
    "fdml": {"algorithm": "fdml", "epochs": 120, "patience": 120, "batch": 64},
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
    without: int = 0  # devices that ended without a part of the model, and so without a test
    every: float = EVERY
    # How far the accuracy or loss of the stored parts is off; None: not tested once more.
    apart: float | None = None

    @property
    def named(self) -> bool:
        """Whether the notes say whom the model or the test lacks, or who missed many rounds."""
        return self.lacking or any(map(missed_much, self.notes))

    @property
    def lacking(self) -> bool:
        """Whether the notes say whom the model or the test lacks."""
        return any(note.startswith(NAMING) or NO_PART in note for note in self.notes)

    @property
    def key(self) -> tuple[str, int | None, int]:
        return self.method, self.seed, self.weights


@dataclass
class Chaos:
    """What became of one method."""

    method: str
    undisturbed: list[float]  # the first: from the same initial weights as the disturbed ones
    runs: list[Run] = field(default_factory=list)

    @property
    def lower(self) -> list[Run]:
        """The runs that are not within a point."""
        least = self.undisturbed[0] - POINT - 1e-9
        return [run for run in self.runs if run.accuracy < least or run.without]

    @property
    def usual(self) -> list[Run]:
        """The lower runs that are within a point of the lowest undisturbed one."""
        least = min(self.undisturbed) - POINT - 1e-9
        return [run for run in self.lower if run.accuracy >= least and not run.without]

    @property
    def compared(self) -> list[Run]:
        """The runs whose stored parts were tested once more."""
        return [run for run in self.runs if run.apart is not None]

    @property
    def one_model(self) -> list[Run]:
        """Those of them whose stored parts are one model, and give what the results tell."""
        return [run for run in self.compared if (run.apart or 0.0) < EQUAL]


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
    """Train with one process per party. With too few kills the run is made again, however the
    training ended: whether a run counts depends on its kills only."""
    again, least = 0, LEAST if wanted.every <= EVERY else 1
    while True:
        with tempfile.TemporaryDirectory() as folder:
            ended = _federate(wanted, Path(folder), again * SEEDS)
        again += 1
        if wanted.seed is None or ended.kills >= least or again == TRIES:
            return ended


def _federate(wanted: Run, folder: Path, further: int) -> Run:
    """By the command, as a user would: processes of a script that calls `up` import the script, and
    this one imports scikit-learn, a second of computing for each start."""
    digits(folder / "digits.npz")
    data = {"path": str(folder / "digits.npz"), "parties": 4, "split": "bands"}
    method = dict(METHODS[wanted.method])
    table = {"name": wanted.method, "seed": wanted.weights, "data": data, "method": method}
    source = folder / "federation.toml"
    source.write_text(tomli_w.dumps(table))
    words = ["up", str(source), "--out", str(folder / "out"), "--json"]
    if wanted.seed is not None:
        words += ["--kill-every", str(wanted.every), "--chaos-seed", str(wanted.seed + further)]
    ended = subprocess.run([sys.executable, "-m", "colonnade", *words], capture_output=True)
    told = ended.stderr.decode()
    if ended.returncode:
        raise RuntimeError(f"{wanted}: {told[-2000:]}")
    parties = sorted(path for path in (folder / "out").iterdir() if path.is_dir())
    results = [one for party in parties for one in read_results(party)]
    kills = len(re.findall("^killed ", told, re.MULTILINE))
    ended = replace(judged(wanted, results), kills=kills, commit=commit())
    return ended if ended.lacking else replace(ended, apart=disagreement(folder / "out"))


def judged(run: Run, results: Sequence[Result]) -> Run:
    """The run by its worst result. A device that has no part of the model has a result without
    metrics; its notes say why."""
    tested = [one for one in results if one.metrics.get("test_accuracy") is not None]
    without = [one for one in results if one not in tested]
    worst = min(tested, key=lambda one: one.metrics["test_accuracy"] or 0.0, default=None)
    shown = [one for one in (worst, *without) if one is not None]
    return replace(
        run,
        accuracy=0.0 if worst is None else worst.metrics["test_accuracy"] or 0.0,
        notes=tuple(dict.fromkeys(note for one in shown for note in one.notes)),
        without=len(without),
    )


@cache
def commit() -> str:
    """Of this checkout."""
    words = ("git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD")
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


@dataclass(frozen=True)
class Plan:
    """Which runs to make."""

    seeds: int | None = None  # None: `SEEDS`
    every: float = EVERY
    methods: tuple[str, ...] = ()  # all of them

    def runs(self) -> list[Run]:
        """The undisturbed runs first; then all methods seed by seed, so that whatever has been done
        when the benchmark is interrupted is a table."""
        methods = self.methods or tuple(METHODS)
        seeds = SEEDS if self.seeds is None else self.seeds
        calm = [Run(name, None, weights) for name in methods for weights in range(CALM)]
        disturbed = [(name, seed) for seed in range(seeds) for name in methods]
        return calm + [Run(name, seed, 0, every=self.every) for name, seed in disturbed]


def kept(path: Path | None) -> dict[tuple[str, int | None, int], Run]:
    """The runs of an earlier call."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    runs = [Run(**{**facts, "notes": tuple(facts["notes"])}) for facts in map(json.loads, lines)]
    return {run.key: run for run in runs}


def run(keep: Path | None = None, jobs: int = 1, plan: Plan | None = None) -> list[Figure]:
    """`jobs`: so many federations at a time; one leaves a core idle while parties are away."""
    done = kept(keep)
    todo = [wanted for wanted in (plan or Plan()).runs() if wanted.key not in done]
    pool = ThreadPoolExecutor(jobs)
    try:
        for future in as_completed([pool.submit(federate, wanted) for wanted in todo]):
            ended = future.result()
            done[ended.key] = ended
            if keep is not None:
                with keep.open("a") as file:
                    file.write(json.dumps(asdict(ended)) + "\n")
            print(_line(ended), *ended.notes, sep="\n    ", file=sys.stderr, flush=True)
    finally:
        pool.shutdown(cancel_futures=True)
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
    studies: list[Chaos] = [figure.detail for figure in figures if figure.detail.runs]
    pace = _range(sorted({f"{run.every:g}" for one in studies for run in one.runs}))
    caption = (
        f"test accuracy on digits, %, of the worst device; a process is killed about every {pace} "
        "s. undisturbed: from the same initial weights (lowest – highest of several). within: at "
        "most a point below the undisturbed run from the same initial weights. lower, named: notes "
        "say whom the model or the test lacks, or who missed more than a fifth of the rounds. "
        "usual: lower, but at most a point below the lowest undisturbed run. one model: of the "
        "runs that lack nobody, those whose stored parts, put together in one process, have the "
        "accuracy and the loss of the results"
    )
    result = Table(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left")
    result.add_column("method")
    for header in HEADERS:
        result.add_column(header, justify="right")
    for one in studies:
        result.add_row(*_row(one))
    return result


HEADERS = ("runs", "kills (median)", "undisturbed", "median", "worst")
HEADERS += ("within", "lower, named", "lower, not named", "usual", "one model")


def _row(one: Chaos) -> list[str]:
    accuracies = [run.accuracy for run in one.runs]
    kills = [run.kills for run in one.runs]
    low, high = (f"{100 * end(one.undisturbed):.1f}" for end in (min, max))
    named = sum(run.named for run in one.lower)
    return [
        one.method,
        str(len(one.runs)),
        f"{_range([f'{min(kills)}', f'{max(kills)}'])} ({median(kills):g})",
        f"{100 * one.undisturbed[0]:.1f} ({_range([low, high])})",
        *(f"{100 * x:.1f}" for x in (median(accuracies), min(accuracies))),
        str(len(one.runs) - len(one.lower)),
        str(named),
        str(len(one.lower) - named),
        str(len(one.usual)),
        f"{len(one.one_model)} of {len(one.compared)}",
    ]


def _range(ends: list[str]) -> str:
    return " – ".join(dict.fromkeys(ends))
