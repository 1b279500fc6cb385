"""`explanations/<run>.json` in an output folder: which party contributed what to one run.

Scores are of the deciding metric, and higher is better: of a metric that is better when it is
lower, a score is minus its value.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from colonnade.common.files import replacing
from colonnade.common.private_files import as_private_as
from colonnade.errors import InputError

EXPLANATIONS = "explanations"  # the folder

Verdict = Literal["", "looks like noise", "the same for every row"]


class PartyExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one column holder."""

    party: str
    shapley: float
    shapley_error: float | None = None  # standard error; None: exact
    absent: float  # the score lost without its columns
    noised: float | None = None  # the score lost when its columns are noise
    noised_error: float | None = None  # standard error over draws of the noise
    importance: float | None = None  # what the model itself makes of the party
    tells: float | None = None  # see learning/readout.py
    verdict: Verdict | None = None  # None: not known, because nobody sees its embeddings
    points: list[tuple[float, float]] = []  # its embeddings of some rows, as places on a map


class Fewer(msgspec.Struct, frozen=True, kw_only=True):
    """The method trained anew with some of the parties."""

    share: float  # of the parties that are kept
    ranked_by: str  # how the parties were ranked, in words
    best: list[str]
    worst: list[str]  # as many
    all_score: float  # of the test rows, like the following
    best_score: float
    worst_score: float


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Of one run: a method under a kind of faults with a seed."""

    method: str
    faults: str
    seed: int
    run: str
    metric: str  # by its name in results, such as test_accuracy
    rows: int  # on which the score is measured
    full: float  # the score with all parties
    empty: float  # the score with none
    error: float | None = None  # standard error of the full score, from the choice of rows
    sigma: float | None = None  # of the noise, in units of each column's own
    parties: list[PartyExplanation]
    evaluations: int  # of the model on all these rows
    seconds: float
    labels: list[float] = []  # of the points
    map: str = ""  # how the points were found
    fewer: Fewer | None = None
    notes: list[str] = []

    @property
    def ranking(self) -> list[PartyExplanation]:
        """Who contributed most comes first."""
        return sorted(self.parties, key=lambda one: -one.shapley)

    def write(self, folder: Path) -> Path:
        """Into an output folder, whole or not at all."""
        path = folder / EXPLANATIONS / f"{self.run}.json"
        with as_private_as(folder), replacing(path) as partial:
            partial.write_bytes(msgspec.json.encode(self))
        return path


def read_explanations(folder: Path) -> list[Explanation]:
    """All of an output folder, in the order of their names."""
    found = []
    for path in sorted((folder / EXPLANATIONS).glob("*.json")):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=Explanation))
        except msgspec.DecodeError as error:
            raise InputError(
                f"{path}: damaged ({error}); delete it, and explain the run again"
            ) from error
    return found
