"""When checkpoints are written: often, but never for more than three percent of the time."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from colonnade.federation.member.keeping import Keeping
from colonnade.network.clock import SECOND, Clock

PAUSE, COST, SHARE = 0.1, 0.03, 0.005  # as docs/explanation/real-federations.md promises


@pytest.mark.parametrize("cost", [0.0001, 0.002, 0.02, 0.3])
@pytest.mark.parametrize("round_takes", [0.001, 0.05, 0.7])
def test_checkpoints_are_as_often_as_their_cost_allows(cost: float, round_takes: float) -> None:
    """Seconds of virtual time. The cost is known after two checkpoints; then they take three
    percent of the time at most, and a party loses no more rounds than that asks for."""
    clock, spent, moments = Clock(), [0.0], list[float]()

    def write(*_: object) -> None:
        spent[0] += cost
        moments.append(clock.now / SECOND)

    keeping = Keeping(MagicMock(), Path("nowhere"), MagicMock(), clock, MagicMock())
    keeping.net, keeping.checkpoint = MagicMock(), MagicMock(keep=write)
    keeping.stopwatch = lambda: spent[0]
    keeping.begin(keeping.net)

    async def train() -> None:
        while clock.now < 60 * SECOND:
            before = spent[0]
            keeping.keep_if_due(0)
            await clock.sleep_until(clock.now + int((round_takes + spent[0] - before) * SECOND))

    clock.run(("train", train()))
    known = moments[2:]
    least = max(PAUSE, cost / COST)
    assert all(later - one >= least - 1e-6 for one, later in pairwise(known))
    for one, later in pairwise(known):
        assert later - one <= max(least, SHARE * later) + round_takes + cost + 1e-6
    assert keeping.share == pytest.approx(len(moments) * cost / (clock.now / SECOND))
    assert keeping.share <= COST + 3 * cost / 60
