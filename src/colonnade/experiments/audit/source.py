"""What an audit is given: an output folder, or an experiment file. Nothing here imports torch, so
that an error in it is told at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from colonnade.common.file_kinds import FEDERATION, PARTY
from colonnade.common.results import CONFIG
from colonnade.common.toml import read_toml
from colonnade.errors import InputError
from colonnade.experiments.config import Experiment, read_experiment, read_folder

REAL = (
    "belongs to a real federation. An audit plays every receiver, and needs the columns of all "
    "parties and the labels in one place, which no party of a federation has. Audit a simulation: "
    "`colonnade audit FILE.toml` takes an experiment file, with the same method and with data that "
    "may be shown, such as made-up rows of the same kind"
)


def read_run(run: Path) -> Experiment:
    """The experiment of an output folder; errors say what an audit needs."""
    several = run.is_dir() and not (run / CONFIG).is_file() and any(run.glob(f"*/{CONFIG}"))
    if several or ((run / CONFIG).is_file() and "method" in read_toml(run / CONFIG)):
        raise InputError(f"{run}: {REAL}")
    return read_folder(run)


def read_file(path: Path, overrides: Sequence[str]) -> Experiment:
    """The same of an experiment file."""
    if path.is_file() and (PARTY.own() | FEDERATION.own()) & read_toml(path).keys():
        raise InputError(f"{path}: {REAL}")
    return read_experiment(path, overrides)
