"""The deployment code in virtual storms, with crashes and delays drawn from a seed.

*Real algorithms*: a thousand trainings on small data. Is every part in use the part that was
measured? See `tests/federation/member/test_versions.py`. *Two leaders*: two programs side by side,
each with a leader of its own. Do both end, with every message used at most once, in its own program
and generation? See `tests/network/test_leaders.py`. The test suite runs some of both.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from rich import box
from rich.table import Table

from bench.timing import Figure

STORMS, LED_TWICE = 1000, 250


@dataclass
class Storms:
    seeds: int = 0
    failed: dict[int, str] = field(default_factory=dict)


def attempt(seed: int) -> tuple[int, str]:
    """What went wrong with one storm of real algorithms; "" if nothing did."""
    from tests.federation.member.test_versions import in_a_storm

    with tempfile.TemporaryDirectory() as folder:
        return seed, _error(lambda: in_a_storm(seed, Path(folder)))


def attempt_with_two_leaders(seed: int) -> tuple[int, str]:
    from tests.network.test_leaders import explain

    return seed, _error(lambda: explain(seed))


def _error(storm: Callable[[], object]) -> str:
    try:
        storm()
    except Exception as error:
        return repr(error)[:300]
    return ""


def run() -> list[Figure]:
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that are started now
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        trainings = _storms(pool.imap_unordered(attempt, range(STORMS)))
        leaders = _storms(pool.imap_unordered(attempt_with_two_leaders, range(LED_TWICE)))
    return [
        Figure("storms", "real algorithms: every part in use is committed", 0.0, detail=trainings),
        Figure("storms", "two leaders: both programs end, nothing is mixed", 0.0, detail=leaders),
    ]


def _storms(attempts: Iterable[tuple[int, str]]) -> Storms:
    found = Storms()
    for seed, error in attempts:
        found.seeds += 1
        if error:
            found.failed[seed] = error
            print(f"storm {seed}: {error}", file=sys.stderr, flush=True)
    return found


def table(figures: list[Figure]) -> Table:
    result = Table(box=box.SIMPLE_HEAD)
    result.add_column("what must hold")
    for header in ("storms", "in which it does not hold", "their seeds"):
        result.add_column(header, justify="right")
    for figure in figures:
        one: Storms = figure.detail
        failed = " ".join(map(str, one.failed))
        result.add_row(figure.variant, f"{one.seeds:,}", str(len(one.failed)), failed)
    return result
