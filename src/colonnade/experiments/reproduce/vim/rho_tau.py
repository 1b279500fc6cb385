"""Figure 7: the penalty ρ, and the local steps τ."""

from __future__ import annotations

from colonnade.experiments.reproduce.size import Size
from colonnade.experiments.reproduce.study import Part, Place, Scale, Sheet, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)
KEYS = {"rho": float, "tau": int}
[METHOD] = TABLE.methods


def _study(scale: Scale) -> Study:
    size = TABLE.size(scale)
    both = [_by(size, key) for key in KEYS]
    return TABLE.study(scale, [part for part, _ in both], [sheet for _, sheet in both])


def _by(size: Size, key: str) -> tuple[Part, Sheet]:
    """One experiment, with a method for each value of a key, and the sheet of that key."""
    values = TABLE.shown(size.scale, key)
    methods = [
        {**TABLE.method(size, METHOD, **{key: KEYS[key](value)}), "name": f"{key} {value}"}
        for value in values
    ]
    part = size.part(key, f"{METHOD} by {key}", methods=methods)
    rows = {METHOD: [Place(key, method["name"]) for method in methods]}
    return part, TABLE.sheet(size, rows, key)


REPRODUCTION = TABLE.reproduction(_study)
