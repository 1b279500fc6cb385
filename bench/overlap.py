"""Parties that have only some of the rows each: what rows that some of them lack are worth.

Four column holders have a random share of the training rows each. Either only rows that all four
have train, with and without party-wise dropout, or also those that some lack (`partial = true`),
where a party that lacks a row is absent for it. Measured on test rows that every party has, and in
simulations also on test rows of which each party has the same share as of the training rows.

Simulations on MNIST (4,000 rows to train and validate with, so that rows are scarce) and on the
default of credit card clients (6,000); and digits over real processes with mutual TLS, which match
their rows by private set intersection first.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tomli_w
from rich import box
from rich.table import Table
from sklearn.datasets import load_digits

from bench.timing import Figure
from colonnade.algorithms.splitnn import SplitNNSettings
from colonnade.data import DataSpec, load
from colonnade.data.loading import read_source
from colonnade.experiments.run import build, drive
from colonnade.federation.agreement.alignment_file import read_alignment
from colonnade.learning.task import Holding

SHARES, SEEDS = (0.9, 0.7, 0.5), (0, 1, 2)
SETS: dict[str, dict[str, Any]] = {
    "mnist": {"rows": 4_000, "parties": 4},
    "credit_default": {"rows": 6_000, "parties": 4, "metric": "auc"},
}
EPOCHS: int | None = None  # None: the usual ones
CLIENTS = ("north", "east", "south", "west")
VARIANTS: dict[str, dict[str, Any]] = {
    "rows that all have": {"partial": False},
    "rows that all have, dropout 0.3": {"partial": False, "dropout": 0.3},
    "rows that some lack, too": {"partial": True},
}
IN_PROCESSES = (False, True)  # partial


@dataclass(frozen=True)
class Overlap:
    """One line of the table."""

    where: str
    share: float
    variant: str
    rows: list[int]  # trained on, by seed
    whole: list[float]  # the metric on test rows that every party has
    partly: list[float]  # on test rows that parties lack, too


def run() -> list[Figure]:
    lines = [
        simulated(name, share, variant) for name in SETS for share in SHARES for variant in VARIANTS
    ]
    lines += [over_processes(share, partial) for share in SHARES for partial in IN_PROCESSES]
    return [Figure("overlap", line.variant, 0.0, detail=line) for line in lines]


# -- simulations -----------------------------------------------------------------------------------


def simulated(name: str, share: float, variant: str) -> Overlap:
    keys = dict(VARIANTS[variant])
    shared = {"overlap": share, "partial": keys.pop("partial")}
    rows, whole, partly = [], [], []
    spec = {"dataset": name, **SETS[name], **shared}
    source = read_source(DataSpec(**spec))
    for seed in SEEDS:
        method = SplitNNSettings(name="splitnn", algorithm="splitnn", epochs=EPOCHS, **keys)
        data = load(DataSpec(**spec, test_overlap=share), seed, source)
        algorithm, net = build(method, data, seed)
        drive(algorithm.train(net))
        metric = f"test_{algorithm.task.goal.deciding.key}"
        partly.append(drive(algorithm.evaluate(net))[metric])
        complete = load(DataSpec(**spec), seed, source)
        algorithm.data = Holding.at(net, complete, algorithm.columns, algorithm.labels)
        whole.append(drive(algorithm.evaluate(net))[metric])
        rows.append(len(data.train))
    return Overlap(f"{name}, simulated", share, variant, rows, whole, partly)


# -- processes -------------------------------------------------------------------------------------


def over_processes(share: float, partial: bool) -> Overlap:
    found = [federated(share, partial, seed) for seed in SEEDS]
    variant = list(VARIANTS)[2 if partial else 0]
    rows, whole = ([one[i] for one in found] for i in (0, 1))
    return Overlap("digits, processes", share, variant, rows, whole, [])  # pyright: ignore


def federated(share: float, partial: bool, seed: int) -> tuple[int, float]:
    """Rows that are trained on, and the accuracy on test rows, of `colonnade up`."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, share, partial, seed)
        command = [sys.executable, "-m", "colonnade", "up", "federation.toml"]
        done = subprocess.run(
            [*command, "--out", "out", "--json"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        told = json.loads(done.stdout)["result"]
        found = read_alignment(folder / "out" / "hospital")
        assert found is not None
        tested = round(0.2 * 1797)
        return found.facts.aligned - tested, told["metrics"]["test_accuracy"]


def write(folder: Path, share: float, partial: bool, seed: int) -> None:
    """Keys, columns and labels of digits; each column holder lacks some training rows."""
    x, y = load_digits(return_X_y=True)
    random = np.random.default_rng(seed)
    order = random.permutation(len(y))
    tested = round(0.2 * len(y))
    test, train = order[:tested], order[tested:]
    use = {int(i): "test" for i in test} | {
        int(i): "validation" if n < len(train) // 10 else "train" for n, i in enumerate(train)
    }
    _csv(folder, "hospital", ["key", "use", "digit"], ([i, use[i], y[i]] for i in use))
    parties = [{"name": "hospital", "role": "server"}]
    for k, party in enumerate(CLIENTS):
        own = random.permutation(train)[: round(share * len(train))]
        held = random.permutation(np.concatenate([test, own]))
        names = [f"pixel{i}" for i in range(16)]
        cells = ([i, *x[i, 16 * k : 16 * k + 16]] for i in held.tolist())
        _csv(folder, party, ["key", *names], cells)
        parties.append({"name": party, "role": "clients"})
    for party in ("hospital", *CLIENTS):
        data = {"path": f"{party}.csv", "id": "key"}
        data |= {"label": "digit"} if party == "hospital" else {}
        own = {"federation": "federation.toml", "party": party, "keys": "keys", "data": data}
        (folder / f"{party}.toml").write_text(tomli_w.dumps(own))
    split = {"party": "hospital", "column": "use"}
    rows = {"match": "private", "classes": 10, "split_by": split, "partial": partial}
    method = {"algorithm": "splitnn"} | ({"epochs": EPOCHS} if EPOCHS else {})
    whole = {"name": "overlap", "seed": seed, "rows": rows, "method": method, "parties": parties}
    (folder / "federation.toml").write_text(tomli_w.dumps(whole))


def _csv(folder: Path, party: str, names: list[str], rows: Iterable[list[Any]]) -> None:
    lines = [",".join(map(str, row)) for row in (names, *rows)]
    (folder / f"{party}.csv").write_text("\n".join(lines))


def table(figures: list[Figure]) -> Table:
    result = Table(
        box=box.SIMPLE_HEAD,
        caption="mean of the seeds (worst): accuracy; of credit_default the AUC",
        caption_justify="left",
    )
    for header in ("data", "share", "trained on"):
        result.add_column(header)
    for header in ("rows", "test rows that all have", "test rows that some lack"):
        result.add_column(header, justify="right")
    for figure in figures:
        line = figure.detail
        assert isinstance(line, Overlap)
        cells = (line.where, f"{line.share:g}", line.variant, f"{mean(line.rows):,.0f}")
        result.add_row(*cells, _cell(line.whole), _cell(line.partly))
    return result


def _cell(values: list[float]) -> str:
    return f"{100 * mean(values):.1f} ({100 * min(values):.1f})" if values else ""
