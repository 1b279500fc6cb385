"""The runs of an experiment, and which of them train the same models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from colonnade.common.results import slug
from colonnade.experiments.config import Experiment
from colonnade.experiments.run import RunSpec


@dataclass(frozen=True)
class Run:
    """A run by the numbers of its method and fault in the experiment: few bytes for a worker
    process."""

    method: int
    fault: int
    seed: int
    name: str  # of its files

    def spec(self, experiment: Experiment) -> RunSpec:
        method, fault = experiment.methods[self.method], experiment.faults[self.fault]
        return RunSpec(method, fault, self.seed, self.name)

    def key(self, experiment: Experiment) -> tuple[str, str, int]:
        spec = self.spec(experiment)
        return spec.settings.name, spec.fault.name, spec.seed

    def title(self, experiment: Experiment) -> str:
        method, fault, seed = self.key(experiment)
        return f"{method} · {fault} · seed {seed}"


Bundle = tuple[Run, ...]  # runs that train the same models


def grid(experiment: Experiment) -> list[Run]:
    """All runs, in the order of the file: methods, then faults, then seeds."""
    runs: list[Run] = []
    for m, method in enumerate(experiment.methods):
        for f, fault in enumerate(experiment.faults):
            name = f"{slug(method.name)}.{slug(fault.name)}"
            if any(
                run.name.startswith(f"{name}.") and (run.method, run.fault) != (m, f)
                for run in runs
            ):
                name = f"{name}.{m}-{f}"
            runs += [Run(m, f, seed, f"{name}.{seed}") for seed in experiment.seeds]
    return runs


def bundles(experiment: Experiment, runs: Sequence[Run]) -> list[Bundle]:
    """The runs, grouped by their training: runs that differ only in faults or settings of
    predictions share one training."""
    alike: list[tuple[Any, list[Run]]] = []
    for run in runs:
        training = run.spec(experiment).training
        known = next((group for key, group in alike if key == training), None)
        if known is None:
            alike.append((training, [run]))
        else:
            known.append(run)
    return [tuple(group) for _, group in alike]
