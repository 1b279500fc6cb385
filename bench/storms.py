"""A thousand trainings in virtual storms: is every part in use the part that was measured?

The deployment code, with real algorithms, small data and crashes drawn from a seed; see
`tests/federation/member/test_versions.py`, which runs some of them in the test suite.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from rich import box
from rich.table import Table

from bench.timing import Figure

STORMS = 1000


@dataclass
class Storms:
    seeds: int = 0
    failed: dict[int, str] = field(default_factory=dict)


def attempt(seed: int) -> tuple[int, str]:
    """What went wrong with one storm; "" if nothing did."""
    from tests.federation.member.test_versions import in_a_storm

    with tempfile.TemporaryDirectory() as folder:
        try:
            in_a_storm(seed, Path(folder))
        except Exception as error:
            return seed, repr(error)[:300]
    return seed, ""


def run() -> list[Figure]:
    found = Storms()
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that are started now
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        for seed, error in pool.imap_unordered(attempt, range(STORMS)):
            found.seeds += 1
            if error:
                found.failed[seed] = error
                print(f"storm {seed}: {error}", file=sys.stderr, flush=True)
    return [Figure("storms", "real algorithms", 0.0, detail=found)]


def table(figures: list[Figure]) -> Table:
    result = Table(box=box.SIMPLE_HEAD, caption="every part in use has the committed version")
    for header in ("storms", "in which it does not hold", "their seeds"):
        result.add_column(header, justify="right")
    for figure in figures:
        one: Storms = figure.detail
        result.add_row(f"{one.seeds:,}", str(len(one.failed)), " ".join(map(str, one.failed)))
    return result
