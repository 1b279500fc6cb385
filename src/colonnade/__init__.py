"""Colonnade: vertical federated learning that keeps standing when columns fall.

import colonnade as cn
outcome = cn.run("links.toml")
clf = cn.VFLClassifier(algorithm="splitnn", parties=4).fit(X, y)
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from colonnade.common import lazy
from colonnade.errors import ColonnadeError, Deadlock, InputError, PartyLost

if TYPE_CHECKING:
    from colonnade.api import explain, run
    from colonnade.common.explanations import Explanation
    from colonnade.estimators.classifier import VFLClassifier
    from colonnade.estimators.regressor import VFLRegressor
    from colonnade.experiments.config import Experiment
    from colonnade.experiments.runner import Outcome

__version__ = version("colonnade")

__all__ = [
    "ColonnadeError",
    "Deadlock",
    "Experiment",
    "Explanation",
    "InputError",
    "Outcome",
    "PartyLost",
    "VFLClassifier",
    "VFLRegressor",
    "explain",
    "run",
]

__getattr__ = lazy.attributes(
    __name__,
    {
        "api": ("explain", "run"),
        "common.explanations": ("Explanation",),
        "estimators.classifier": ("VFLClassifier",),
        "estimators.regressor": ("VFLRegressor",),
        "experiments.config": ("Experiment",),
        "experiments.runner": ("Outcome",),
    },
)
