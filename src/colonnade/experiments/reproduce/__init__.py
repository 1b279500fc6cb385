"""Reproductions: published tables and figures, ours beside the paper's.

A paper is a folder here: a TOML file per table with what the paper printed and claims, and a study
beside it that says which experiments fill the table. The files of this folder run the experiments,
judge the claims and show the results.
"""

from __future__ import annotations

from importlib import import_module

from colonnade.common.text import nearest
from colonnade.errors import InputError
from colonnade.experiments.reproduce.study import Reproduction

DOCUMENT = "reproduction.json"
ALL = "all"  # in place of a name: every one of them
PAPERS = ("dvfl", "mags", "fedvs", "cvfl", "vim")  # each a package here with its `REPRODUCTIONS`


def registry() -> dict[str, Reproduction]:
    """Every reproduction by name, in the order of the papers."""
    papers = [import_module(f"{__name__}.{paper}") for paper in PAPERS]
    return {entry.name: entry for paper in papers for entry in paper.REPRODUCTIONS}


def find(name: str) -> Reproduction:
    known = registry()
    if name not in known:
        raise InputError(
            f"{name!r} is not a reproduction{nearest(name, known)}; there are {', '.join(known)}"
        )
    return known[name]
