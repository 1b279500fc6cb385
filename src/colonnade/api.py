"""Experiments from Python."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from colonnade.experiments.config import Experiment, parse_experiment, read_experiment
from colonnade.experiments.runner import Observer, Outcome, run_experiment


def run(
    experiment: str | os.PathLike[str] | Mapping[str, Any] | Experiment,
    *,
    out: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    set: Sequence[str] = (),
    fresh: bool = False,
    observer: Observer | None = None,
) -> Outcome:
    """Run an experiment: a TOML file, a table of the same shape, or an `Experiment`.

    `out` is the output folder (a temporary one if not given), `set` overrides keys
    (`"data.parties=8"`). The outcome holds the results; `outcome.report()` writes the page.
    """
    source = "experiment"
    if isinstance(experiment, Mapping):
        experiment = parse_experiment(experiment, source, overrides=set)
    elif not isinstance(experiment, Experiment):
        source = str(experiment)
        experiment = read_experiment(Path(experiment), set)
    folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="colonnade-"))
    return run_experiment(
        experiment, folder, jobs=jobs, fresh=fresh, observer=observer, source=source
    )
