"""What a party's output folder holds, by name."""

from __future__ import annotations

import shutil
from pathlib import Path

from colonnade.common.curves import CURVES
from colonnade.common.explanations import EXPLANATIONS
from colonnade.common.files import PARTIAL
from colonnade.common.results import CONFIG, RESULTS, TABLES
from colonnade.common.tracking import MLFLOW, TENSORBOARD
from colonnade.federation.agreement.alignment_file import ALIGNMENT

LOCK, STATUS, LOG, RELEASED = "lock", "status.json", "log.txt", "released.json"
MADE = (CURVES, EXPLANATIONS, TABLES, TENSORBOARD, MLFLOW)
KEPT = ("checkpoints", "history", "ledger", "models", *MADE)  # folders
TOKEN = "serve.token"  # of programs that ask over HTTP; `--fresh` leaves it
# How the party's table was prepared; what all parties found out about their files.
TABLE = ("preprocessing.json", "features.json", "features.f32", "query.parquet", "found.json")
WRITTEN = (
    CONFIG,
    RESULTS,
    STATUS,
    "report.html",
    "code.json",
    LOG,
    LOCK,
    RELEASED,
    *TABLE,
)  # files


def of_a_party(path: Path) -> bool:
    """Whether Colonnade wrote this entry of a party's folder."""
    return path.name.removesuffix(PARTIAL) in (*KEPT, *WRITTEN, TOKEN, ALIGNMENT)


def clear(folder: Path) -> None:
    """Remove checkpoints and results; never the party's data, keys or alignment."""
    for part in KEPT:
        shutil.rmtree(folder / part, ignore_errors=True)
    for part in WRITTEN:
        (folder / part).unlink(missing_ok=True)
