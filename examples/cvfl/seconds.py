"""Virtual seconds until the target, interpolated between epochs. With --grid, the first three
methods of the file are run with all rates and momenta of a grid.

python examples/cvfl/seconds.py examples/cvfl/async.toml [--grid] [--out DIR] [--set KEY=VALUE]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import msgspec
from rich.console import Console
from rich.table import Table

import colonnade as cn
from colonnade.experiments.config import read_experiment
from colonnade.learning.settings import Settings

MOMENTA = (0.0, 0.5, 0.8, 0.9)
REACHES = (0.14, 0.2, 0.28, 0.4)  # rate / (1 − momentum): what a gradient moves a net in all
Seconds = dict[str, list[float | None]]  # by method, seed by seed


def grid(methods: Sequence[Settings]) -> list[Settings]:
    """The first three methods with all settings. A mean of four gradients has four times the
    rate."""
    found = []
    for method in methods[:3]:
        times = 4 if getattr(method, "synchronous", None) == "mean" else 1
        for momentum in MOMENTA:
            for reach in REACHES:
                lr = round(times * reach * (1 - momentum), 4)
                name = f"{method.name}, momentum {momentum:g}, rate {lr:g}"
                changed = {"lr": lr, "momentum": momentum, "name": name}
                found.append(msgspec.structs.replace(method, **changed))
    return found


def seconds_until(target: float, points: Sequence[dict[str, float]]) -> float | None:
    """When the straight line between two validations crosses the target; None: never."""
    before = None
    for point in points:
        now, loss = point["virtual_seconds"], point["validation_loss"]
        if loss <= target:
            if before is None:
                return now
            return before[0] + (now - before[0]) * (before[1] - target) / (before[1] - loss)
        before = now, loss
    return None


def measure(experiment: cn.Experiment, out: Path | None, jobs: int) -> Seconds:
    """Run what is not in the folder yet, and read the curves."""
    assert experiment.target is not None
    outcome = cn.run(experiment, out=out, jobs=jobs)
    found: Seconds = {method.name: [] for method in experiment.methods}
    for result in sorted(outcome.results, key=lambda result: result.seed):
        lines = (outcome.folder / "history" / f"{result.run}.jsonl").read_text().splitlines()
        points = [json.loads(line) for line in lines]
        found[result.method].append(seconds_until(experiment.target, points))
    return found


def main(arguments: Sequence[str] | None = None) -> Seconds:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args(arguments)
    experiment = read_experiment(given.file, given.set)
    if given.grid:
        experiment = msgspec.structs.replace(experiment, methods=tuple(grid(experiment.methods)))
    found = measure(experiment, given.out, given.jobs)
    shown = Table(title=f"virtual seconds until a validation loss of {experiment.target:g}")
    for title in ("method", *(f"seed {seed}" for seed in sorted(experiment.seeds)), "mean"):
        shown.add_column(title, justify="left" if title == "method" else "right")
    for name, values in found.items():
        figures = ["never" if v is None else f"{v:.0f}" for v in values]
        mean = "" if None in values else f"{fmean(v for v in values if v is not None):.0f}"
        shown.add_row(name, *figures, mean)
    Console(width=110).print(shown)
    return found


if __name__ == "__main__":
    main()
