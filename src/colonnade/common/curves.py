"""What the pictures of a test are drawn from: `curves/<run>.json` of an output folder.

The file holds sums over test rows, never a row: counts of classes, points of one ROC curve, sums by
bin. Its size has a bound that does not depend on the number of rows (about 10 kB).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from colonnade.common.files import replacing
from colonnade.errors import InputError

CURVES = "curves"  # the folder
BINS = 15  # of probabilities, equally wide
MOST_CLASSES = 30  # with more classes there is no confusion matrix and no ROC curve
CELLS = 24  # of true and of predicted numbers, equally wide
# At which the ROC curve is kept: closer to each other near 0.
FALSE_POSITIVE_RATES = tuple((i / 100) ** 2 for i in range(101))


class Bin(msgspec.Struct, frozen=True):
    """The test rows whose probability is in one bin: how many, the sum of their probabilities, and
    how many of them are as predicted."""

    rows: int
    probability: float
    hits: int


class Cloud(msgspec.Struct, frozen=True):
    """Predicted beside true numbers, as counts. Numbers outside the edges count in the outer
    cells."""

    edges: list[float]  # of true and predicted numbers
    counts: list[list[int]]  # [true][predicted]
    error_edges: list[float]  # of predicted minus true
    errors: list[int]


class Curves(msgspec.Struct, frozen=True):
    """Sums over the test rows of one run."""

    rows: int
    classes: int  # 0: the label is a number
    names: list[str] = []  # of the classes, where they are known
    confusion: list[list[int]] = []  # [true][predicted]
    # True positive rates at `FALSE_POSITIVE_RATES`: of class 1 if there are two classes, else the
    # mean over classes, each against all others.
    roc: list[float] = []
    # By the probability of class 1 if there are two classes, else of the predicted class.
    calibration: list[Bin] = []
    cloud: Cloud | None = None


def write_curves(folder: Path, run: str, curves: Curves) -> None:
    """Write the file, whole or not at all."""
    with replacing(_path(folder, run)) as partial:
        partial.write_bytes(msgspec.json.encode(curves))


def read_curves(folder: Path, run: str) -> Curves | None:
    """The curves of a run; None for a run that has none, such as one of an earlier version."""
    path = _path(folder, run)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Curves)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: damaged ({error}); remove it, or run with --fresh") from error


def _path(folder: Path, run: str) -> Path:
    return folder / CURVES / f"{run}.json"
