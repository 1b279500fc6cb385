"""Table 3: few labelled rows that all clients share, many rows that each has for itself."""

from __future__ import annotations

from colonnade.experiments.reproduce.study import Place, Scale, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)


def _study(scale: Scale) -> Study:
    size = TABLE.size(scale)
    labelled = {f"labelled-{column}": int(column) for column in TABLE.shown(scale)}
    parts = [
        size.part(
            part, f"{rows:,} labelled rows", methods=TABLE.runs(size), data={"labelled": rows}
        )
        for part, rows in labelled.items()
    ]
    rows = {name: [Place(part, name) for part in labelled] for name in TABLE.methods}
    return TABLE.study(scale, parts, [TABLE.sheet(size, rows)])


REPRODUCTION = TABLE.reproduction(_study)
