"""Figure 4: the more clients may collude, the fewer may be late."""

from __future__ import annotations

from colonnade.experiments.reproduce.fedvs.stragglers import numbered, stragglers
from colonnade.experiments.reproduce.study import Place, Scale, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)


def _study(scale: Scale) -> Study:
    size = TABLE.size(scale)
    methods = TABLE.runs(size)
    clients, batch = numbered(TABLE.data["parties"]), TABLE.settings["all"]["batch"]
    network = {"delays": stragglers(clients, batch)}
    part = size.part("privacy", "Colluding clients", methods=methods, network=network)
    rows = {name: [Place("privacy", name)] for name in TABLE.methods}
    return TABLE.study(scale, [part], [TABLE.sheet(size, rows, sheet) for sheet in TABLE.sheets])


REPRODUCTION = TABLE.reproduction(_study)
