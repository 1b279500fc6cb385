"""Table 3: models trained with the most, and with the least important clients only."""

from __future__ import annotations

from colonnade.experiments.reproduce.study import Place, Scale, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)


def _study(scale: Scale) -> Study:
    size, shares = TABLE.size(scale), TABLE.extra["shares"]
    methods = [TABLE.method(size, name, epochs=TABLE.extra["epochs"]) for name in TABLE.methods]
    part = size.part("clients", "Some of the clients", methods=methods, summarise=shares)
    columns = TABLE.shown(scale)  # metrics of the same runs
    rows = {name: [Place(part.name, name) for _ in columns] for name in TABLE.methods}
    return TABLE.study(scale, [part], [TABLE.sheet(size, rows)])


REPRODUCTION = TABLE.reproduction(_study)
