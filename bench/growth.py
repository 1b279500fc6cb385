"""From 16 to 1,024 devices on a grid: what one link costs, relative to the smallest grid.

Each device hears itself and its neighbours above, below, left and right. A head has room for
five embeddings; at the border the missing ones are padding, which never arrives.
"""

from __future__ import annotations

from bench.federation import BATCH, Federation, Problem
from bench.timing import Figure, Target, Variant, compare, milliseconds, take_turns
from colonnade.network import Topology

SIDES = (4, 8, 16, 32)
NEIGHBOURS = 5
STEPS_OF_ALL = 8192  # device steps in a turn, so that turns are equally long
TARGET = Target(2.0, at_least=False)


def run() -> list[Figure]:
    grids = {f"{side * side:,} devices": _grid(side) for side in SIDES}
    variants = {
        name: Variant(grid.run, STEPS_OF_ALL // len(grid.devices)) for name, grid in grids.items()
    }
    smallest = next(iter(grids))
    take_turns(variants, repeats=1)  # the first steps allocate
    turns = take_turns(variants, repeats=9)

    def figure(name: str) -> Figure:
        links = grids[name].links / grids[smallest].links
        relative = compare(turns, name, smallest, lambda own, least: own / links / least)
        first = name == smallest
        return Figure(
            "growth",
            name,
            milliseconds(turns, name),
            "" if first else "cost per link",
            None if first else relative,
            None if first else TARGET,
        )

    return [figure(name) for name in grids]


def _grid(side: int) -> Federation:
    problem = Problem.of(side * side, neighbours=NEIGHBOURS, rows=4 * BATCH)
    return Federation(problem, Topology("grid"))
