"""Studies of two experiments, one without faults and one under faults."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.experiments.reproduce.study import Figures, Place, Scale, Study
from colonnade.experiments.reproduce.table_file import TableFile


def two_parts(
    table: TableFile,
    scale: Scale,
    title: str,
    calm: Sequence[str],
    disturbed: Sequence[str],
    more: Figures | None = None,
) -> Study:
    """The methods `calm` run without faults, and `disturbed` under those of the table's columns. A
    method that does not run without faults is one and the same program there as the one whose
    settings it has: the run of that one is shown."""
    size = table.size(scale)
    _, *faults = table.shown(scale)
    methods, named = table.runs(size, disturbed), table.fault_list(faults)
    parts = (
        size.part("no-faults", f"{title} without faults", methods=table.runs(size, calm)),
        size.part("faults", f"{title} under faults", methods=methods, faults=named),
    )
    rows = {
        name: [
            Place("no-faults", name if name in calm else table.methods[name]["like"]),
            *(Place("faults", name, fault) if name in disturbed else None for fault in faults),
        ]
        for name in table.methods
    }
    return table.study(scale, parts, [table.sheet(size, rows, more=more)])
