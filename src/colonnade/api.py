"""Experiments from Python."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from colonnade.common.explanations import Explanation
from colonnade.common.private_files import as_private_as
from colonnade.experiments.config import Experiment, parse_experiment, read_experiment
from colonnade.experiments.embedding_map import MapKind
from colonnade.experiments.engine import engine_of
from colonnade.experiments.explain import Ask, explain_folder
from colonnade.experiments.runner import Observer, Outcome, run_experiment
from colonnade.learning.coalitions import ORDERS


def run(
    experiment: str | os.PathLike[str] | Mapping[str, Any] | Experiment,
    *,
    out: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    engine: str = "local",
    address: str | None = None,
    set: Sequence[str] = (),
    fresh: bool = False,
    observer: Observer | None = None,
    track: Sequence[str] = (),
) -> Outcome:
    """Run an experiment: a TOML file, a table of the same shape, or an `Experiment`.

    `out` is the output folder (a temporary one if not given; a new one is for you only, mode 700),
    `set` overrides keys
    (`"data.parties=8"`). `engine="ray"` runs on the machines of a Ray cluster, whose head has the
    `address`; `jobs` are runs at a time (1 on this machine, one per processor of a cluster).
    `track` names trackers: `"tensorboard"`, `"mlflow"`. The outcome holds the results;
    `outcome.report()` writes the page.
    """
    where = engine_of(engine, address, jobs)
    source = "experiment"
    if isinstance(experiment, Mapping):
        experiment = parse_experiment(experiment, source, overrides=set)
    elif not isinstance(experiment, Experiment):
        source = str(experiment)
        experiment = read_experiment(Path(experiment), set)
    folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="colonnade-"))
    facts = {"fresh": fresh, "observer": observer, "source": source, "track": track}
    with as_private_as(folder):
        return run_experiment(experiment, folder, engine=where, **facts)


def explain(
    folder: str | os.PathLike[str] | Outcome,
    *,
    method: str | None = None,
    faults: str | None = None,
    seed: int | None = None,
    sigma: float = 1.0,
    orders: int = ORDERS,
    map: MapKind = "pca",
    summarise: float | None = None,
    observer: Observer | None = None,
) -> list[Explanation]:
    """Which party contributed what, in runs of an output folder: see
    docs/explanation/explanations.md.

    Of each method (or the named one), the run with the first kind of faults and the first seed (or
    the named ones). `sigma` is the scale of the noise test, `orders` how many orders of more than
    10 parties are sampled, and `summarise` the share of parties to train anew with.
    """
    path = folder.folder if isinstance(folder, Outcome) else Path(folder)
    return explain_folder(path, Ask(method, faults, seed, sigma, orders, map, summarise), observer)
