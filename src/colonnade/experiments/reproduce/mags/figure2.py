"""Figure 2: accuracy by fault rate, for failing devices and links, on the complete graph and the
grid."""

from __future__ import annotations

from colonnade.experiments.reproduce.mags import table3
from colonnade.experiments.reproduce.mags.rates import faults_at
from colonnade.experiments.reproduce.size import Size
from colonnade.experiments.reproduce.study import Figures, Scale, Sheet, Study, across
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)
GRAPHS = {"complete": "complete graph", "grid": "grid"}
# What fails → the method with dropout of the same, and the one with dropout of the other thing.
DROPOUT = {"links": ("CD-MVFL-G4", "PD-MVFL-G4"), "devices": ("PD-MVFL-G4", "CD-MVFL-G4")}


def _study(scale: Scale) -> Study:
    size, columns = TABLE.size(scale), TABLE.shown(scale)
    kinds = ["links"] if scale == "smoke" else ["links", "devices"]
    faults = dict.fromkeys(fault for things in kinds for fault in faults_at(things, columns))
    parts = [
        size.part(
            graph,
            f"Accuracy by fault rate, {words}",
            network={"topology": graph},
            methods=TABLE.runs(size),
            faults=TABLE.fault_list(faults),
        )
        for graph, words in GRAPHS.items()
    ]
    sheets = [_sheet(size, graph, things) for things in kinds for graph in GRAPHS]
    return TABLE.study(scale, parts, sheets)


def _sheet(size: Size, graph: str, things: str) -> Sheet:
    own, other = DROPOUT[things]
    faults = faults_at(things, TABLE.shown(size.scale))
    words = {"things": things, "Things": things.capitalize(), "graph": GRAPHS[graph]}
    words |= {"own": own, "other": other}
    more = _published() if (graph, things) == ("complete", "links") else None
    return TABLE.sheet(size, across(graph, TABLE.methods, faults), graph, words=words, more=more)


def _published() -> Figures:
    """From the tables 3 and 8."""
    tabled = {"50%": table3.TABLE3, "30%": table3.TABLE8}
    figures = {rate: table.figures("starcraft_mnist") for rate, table in tabled.items()}
    return {
        method: {rate: known[method]["active rand"] for rate, known in figures.items()}
        for method in TABLE.methods
        if method in figures["50%"]
    }


REPRODUCTION = TABLE.reproduction(_study)
