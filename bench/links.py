"""MAGS from 16 to 1,024 devices on a grid: what one link costs, relative to the smallest grid.

Each device holds one pixel of three colours and is an aggregator; it hears itself and its
neighbours above, below, left and right, and 30 % of the messages are left out. At the border heads
have fewer neighbours; their places are padding, which never arrives.
"""

from __future__ import annotations

from bench.mags import BATCH, Ours, noise
from bench.timing import Figure, Target, Variant, compare, milliseconds, take_turns
from colonnade.network import Topology

SIDES = (4, 8, 16, 32)
PIXEL = (3, 1, 1)
STEPS_OF_ALL = 8192  # device steps in a turn, so that turns are equally long
REPEATS = 9
TARGET = Target(2.0, at_least=False)


def run() -> list[Figure]:
    steps = {f"{side * side:,} devices": STEPS_OF_ALL // side**2 for side in SIDES}
    grids = {name: _grid(side, steps[name]) for side, name in zip(SIDES, steps, strict=True)}
    variants = {name: Variant(grid.run, steps[name]) for name, grid in grids.items()}
    smallest = next(iter(grids))
    take_turns(variants, repeats=1)  # the first steps allocate
    turns = take_turns(variants, REPEATS)

    def figure(name: str) -> Figure:
        links = grids[name].links / grids[smallest].links
        relative = compare(turns, name, smallest, lambda own, least: own / links / least)
        first = name == smallest
        return Figure(
            "links",
            name,
            milliseconds(turns, name),
            "" if first else "cost per link",
            None if first else relative,
            None if first else TARGET,
        )

    return [figure(name) for name in grids]


def _grid(side: int, steps: int) -> Ours:
    data = noise(side**2, PIXEL, rows=BATCH * steps * (REPEATS + 2))  # so many that no epoch ends
    grid = Topology("grid")
    return Ours(data, topology=grid, method="CD-MVFL", encoder=[16, 4], head=[64])
