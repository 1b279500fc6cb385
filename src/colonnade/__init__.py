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
    from colonnade.api import run
    from colonnade.estimators.classifier import VFLClassifier
    from colonnade.estimators.regressor import VFLRegressor
    from colonnade.experiments.config import Experiment
    from colonnade.experiments.runner import Outcome

__version__ = version("colonnade")

__all__ = [
    "ColonnadeError",
    "Deadlock",
    "Experiment",
    "InputError",
    "Outcome",
    "PartyLost",
    "VFLClassifier",
    "VFLRegressor",
    "run",
]

__getattr__ = lazy.attributes(
    __name__,
    {
        "api": ("run",),
        "estimators.classifier": ("VFLClassifier",),
        "estimators.regressor": ("VFLRegressor",),
        "experiments.config": ("Experiment",),
        "experiments.runner": ("Outcome",),
    },
)
