"""Colonnade: vertical federated learning that keeps standing when columns fall.

import colonnade as cn
outcome = cn.run("links.toml")
clf = cn.VFLClassifier(algorithm="splitnn", parties=4).fit(X, y)
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from colonnade.errors import ColonnadeError, Deadlock, InputError, PartyLost

if TYPE_CHECKING:
    from colonnade.api import run
    from colonnade.classifier import VFLClassifier
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
    "run",
]

# torch and scikit-learn take seconds to import: only who asks for them waits for them.
_PLACES = {
    "Experiment": "colonnade.experiments.config",
    "Outcome": "colonnade.experiments.runner",
    "VFLClassifier": "colonnade.classifier",
    "run": "colonnade.api",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'colonnade' has no attribute {name!r}")
