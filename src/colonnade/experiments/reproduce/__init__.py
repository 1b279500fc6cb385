"""Reproductions: published tables and figures, ours beside the paper's.

One file per paper declares its reproductions; the other files here run, judge and show them.
"""

from __future__ import annotations

from colonnade.experiments.reproduce.study import Reproduction


def registry() -> dict[str, Reproduction]:
    """Every reproduction by name, in the order of the papers."""
    from colonnade.experiments.reproduce import dvfl, mags

    papers = (dvfl, mags)
    return {entry.name: entry for paper in papers for entry in paper.REPRODUCTIONS}
