"""The file of a comparison: an experiment file that may leave out methods, faults and seeds.
Nothing here imports torch, so that an error in a file is told at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from colonnade.common.file_kinds import EXPERIMENT, read_kind
from colonnade.common.toml import Table
from colonnade.errors import InputError
from colonnade.experiments.config import Experiment, apply_override, parse_experiment

SHARES = (0.3, 0.5)  # of parties, or of links, that are gone
SEEDS = [0, 1, 2]


def usual_faults() -> list[Table]:
    """0, 30 and 50 % of the parties, or of the links, gone in training or at prediction."""
    found: list[Table] = [{"name": "none"}]
    for when, moment in (("training", "training"), ("inference", "prediction")):
        for kind, what in (("device", "parties"), ("communication", "links")):
            for share in SHARES:
                name = f"{100 * share:.0f} % of {what}, {moment}"
                found.append({"name": name, "kind": kind, "rate": share, "when": when})
    return found


def read_source(file: Path, overrides: Sequence[str] = ()) -> Table:
    """The file as a table, with what it leaves out."""
    source = read_kind(file, EXPERIMENT)
    try:
        for override in overrides:
            apply_override(source, override)
        EXPERIMENT.check({"methods": [], **source})
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    whole = {"seeds": SEEDS, "faults": usual_faults(), **source}
    if source.get("methods"):
        experiment_of(whole, file, str(whole["name"]), source["methods"])
    return whole


def experiment_of(source: Table, file: Path, name: str, methods: Sequence[Table]) -> Experiment:
    table = {**source, "name": name, "methods": list(methods)}
    return parse_experiment(table, str(file), file.parent)
