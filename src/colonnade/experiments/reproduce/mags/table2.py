"""Table 2: accuracy and messages on six graphs, while 30 % of the links fail."""

from __future__ import annotations

from colonnade.experiments.reproduce.study import Place, Scale, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)
FAULTS = "links .3"


def _study(scale: Scale) -> Study:
    size = TABLE.size(scale)
    graphs = {graph: graph.lower().replace(" r=", "-") for graph in TABLE.shown(scale)}
    parts = [
        size.part(
            part,
            f"{graph}, 30% of the links fail",
            network=TABLE.extra["graphs"][graph],
            methods=TABLE.runs(size),
            faults=TABLE.fault_list([FAULTS]),
        )
        for graph, part in graphs.items()
    ]
    rows = {m: [Place(part, m, FAULTS) for part in graphs.values()] for m in TABLE.methods}
    sheets = [TABLE.sheet(size, rows, sheet) for sheet in TABLE.sheets]
    return TABLE.study(scale, parts, sheets)


REPRODUCTION = TABLE.reproduction(_study)
