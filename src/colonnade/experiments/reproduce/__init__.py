"""Reproductions: published tables and figures, ours beside the paper's.

One file per paper declares its reproductions; the other files here run, judge and show them.
"""

from __future__ import annotations

from colonnade.common.text import nearest
from colonnade.errors import InputError
from colonnade.experiments.reproduce.study import Reproduction

DOCUMENT = "reproduction.json"


def registry() -> dict[str, Reproduction]:
    """Every reproduction by name, in the order of the papers."""
    from colonnade.experiments.reproduce import dvfl, mags

    papers = (dvfl, mags)
    return {entry.name: entry for paper in papers for entry in paper.REPRODUCTIONS}


def find(name: str) -> Reproduction:
    known = registry()
    if name not in known:
        raise InputError(
            f"{name!r} is not a reproduction{nearest(name, known)}; there are {', '.join(known)}"
        )
    return known[name]
