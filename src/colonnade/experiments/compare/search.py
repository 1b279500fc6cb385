"""Settings by successive halving on the validation rows.

All trials of all methods are trained for a quarter of the epochs; the better half of each method's
trials for half of the epochs; the best of these is taken. The test rows have no part in it. Each
stage is an experiment in a folder of its own, so that an interrupted search goes on like any run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from colonnade.common.metric_names import LOWER, key_of
from colonnade.common.results import read_history
from colonnade.common.toml import Table
from colonnade.experiments.compare.contenders import Contender, scaled
from colonnade.experiments.config import Experiment
from colonnade.experiments.runner import Outcome

STAGES = (0.25, 0.5)  # of the epochs

Make = Callable[[str, Sequence[Table]], Experiment]  # an experiment of these methods, by its name
Run = Callable[[Experiment, Path], Outcome]


@dataclass(frozen=True)
class Trial:
    """What one trial gave on the validation rows."""

    method: str
    stage: int
    values: Table  # of the keys that are tuned
    score: float  # higher is better; -inf: the training failed
    figure: float | None  # of the deciding metric, as it is printed


@dataclass(frozen=True)
class Found:
    """The settings of each method, and how they were found."""

    tables: list[Table]  # with all of their epochs
    trials: list[Trial]


def search(
    methods: Sequence[Contender], make: Make, run: Run, folder: Path, share: float, metric: str
) -> Found:
    """`share`: of the usual epochs, for the final trainings. `metric`: the one that decides, such
    as `accuracy`."""
    alive = {one.name: one.trials() for one in methods}
    alone = {name: tables[0] for name, tables in alive.items() if len(tables) == 1}
    alive = {name: tables for name, tables in alive.items() if name not in alone}
    done: list[Trial] = []
    for stage, part in enumerate(STAGES):
        tables = [scaled(table, part * share) for found in alive.values() for table in found]
        if not tables:
            break
        outcome = run(make(f"search {stage + 1}", tables), folder / f"search-{stage + 1}")
        for one in methods:
            if one.name in alive:
                ranked = _ranked(one, alive[one.name], outcome, stage, metric)
                done += [trial for trial, _ in ranked]
                best = math.ceil(len(ranked) / 2) if stage + 1 < len(STAGES) else 1
                alive[one.name] = [table for _, table in ranked[:best]]
    chosen = {**alone, **{name: tables[0] for name, tables in alive.items()}}
    tables = [{**scaled(chosen[one.name], share), "name": one.name} for one in methods]
    return Found(tables, done)


def _ranked(
    method: Contender, tables: Sequence[Table], outcome: Outcome, stage: int, metric: str
) -> list[tuple[Trial, Table]]:
    """Best first; of equal ones, the one with the lower loss."""
    runs = {result.method: result.run for result in outcome.results}
    found = []
    for table in tables:
        run = runs.get(table["name"])
        points = [] if run is None else read_history(outcome.folder, run)
        score, loss, figure = best_of(points, metric)
        trial = Trial(method.name, stage, method.values(table), score, figure)
        found.append((loss, trial, table))
    found.sort(key=lambda one: (-one[1].score, one[0]))
    return [(trial, table) for _, trial, table in found]


def best_of(
    points: Sequence[Mapping[str, float | None]], metric: str
) -> tuple[float, float, float | None]:
    """The best point of a curve: its score, its loss and its figure."""
    sign = -1.0 if metric in LOWER else 1.0
    known = [
        (sign * value, point.get("validation_loss") or math.inf, value)
        for point in points
        if (value := point.get(f"validation_{key_of(metric)}")) is not None and math.isfinite(value)
    ]
    return max(known, key=lambda one: (one[0], -one[1]), default=(-math.inf, math.inf, None))


def at_the_edge(trials: Sequence[Trial]) -> dict[str, Table]:
    """The values that were taken though nothing was tried beyond them, by method. Nothing is beyond
    0."""
    found: dict[str, Table] = {}
    for method in dict.fromkeys(trial.method for trial in trials):
        mine = [trial for trial in trials if trial.method == method]
        taken = next(trial for trial in mine if trial.stage == mine[-1].stage)
        for key, value in taken.values.items():
            tried = {trial.values[key] for trial in mine}
            if _number(value) and len(tried) > 1 and value in (min(tried), max(tried)) and value:
                found.setdefault(method, {})[key] = value
    return found


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def described(values: Table) -> str:
    """The values of a trial, for a table."""
    return ", ".join(f"{key} {value}" for key, value in values.items()) or "as given"
