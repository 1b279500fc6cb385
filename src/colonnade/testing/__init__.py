"""Tools to test choreographies: the same program on all engines.

one = stacked(settings, data, fault=fault)
each = projected(settings, data, fault=fault)  # in virtual time, under the same faults
real = live(settings, data)                    # as parties do it for real, in virtual time
wire = over_zenoh(settings, data, keys)        # the same, over the loopback interface
assert difference(one, each) == difference(one, real) == difference(one, wire) == 0

class TestMine(AlgorithmKit):                  # what every algorithm must do, for pytest
    algorithm = Mine

`colonnade.testing.storm` runs the deployment code under seeded schedules of crashes and delays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from colonnade.testing.engines import (
    Trained,
    difference,
    live,
    over_zenoh,
    projected,
    run_live,
    run_projected,
    run_stacked,
    stacked,
)

if TYPE_CHECKING:
    from colonnade.testing.kit import AlgorithmKit

__all__ = [
    "AlgorithmKit",
    "Trained",
    "difference",
    "live",
    "over_zenoh",
    "projected",
    "run_live",
    "run_projected",
    "run_stacked",
    "stacked",
]


def __getattr__(name: str) -> Any:
    if name != "AlgorithmKit":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pytest  # only who runs tests has it

    pytest.register_assert_rewrite("colonnade.testing.kit")
    from colonnade.testing.kit import AlgorithmKit

    return AlgorithmKit
