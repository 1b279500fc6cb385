"""The algorithms, one file per family. A new file here is found by itself."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from colonnade.algorithms.algorithm import Algorithm


@cache
def registry() -> dict[str, type[Algorithm]]:
    """Every algorithm by name, in alphabetical order."""
    from colonnade.algorithms.algorithm import Algorithm

    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    found = sorted(_descendants(Algorithm), key=lambda kind: kind.name)
    return {kind.name: kind for kind in found}


def _descendants(kind: type[Algorithm]) -> list[type[Algorithm]]:
    children = kind.__subclasses__()
    named = [child for child in children if "name" in vars(child)]
    return named + [found for child in children for found in _descendants(child)]
