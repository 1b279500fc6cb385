"""Table 5: 100 clients with overlapping columns."""

from __future__ import annotations

from colonnade.experiments.reproduce.study import Place, Scale, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)


def _study(scale: Scale) -> Study:
    size = TABLE.size(scale, **TABLE.extra.get(scale, {}))
    part = size.part("clients", "100 clients", methods=TABLE.runs(size))
    rows = {name: [Place(part.name, name)] for name in TABLE.methods}
    return TABLE.study(scale, [part], [TABLE.sheet(size, rows)])


REPRODUCTION = TABLE.reproduction(_study)
