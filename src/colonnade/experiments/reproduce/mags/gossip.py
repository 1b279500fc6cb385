"""Figure 12: rounds of gossip, and how far devices are from each other after them (proposition
3)."""

from __future__ import annotations

from colonnade.experiments.reproduce.mags.rates import faults_at
from colonnade.experiments.reproduce.study import Place, Scale, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)
METHODS = ("MVFL", "CD-MVFL")
FAILING = {"complete": ("links", "devices"), "grid": ("links",)}  # by graph


def _study(scale: Scale) -> Study:
    size, rounds = TABLE.size(scale), TABLE.shown(scale)
    rates = ["50%"] if scale == "smoke" else ["30%", "50%"]
    methods = TABLE.runs(size, [f"{method}-G{n}" for method in METHODS for n in rounds])
    parts = []
    for graph, failing in FAILING.items():
        faults = TABLE.fault_list(f for things in failing for f in faults_at(things, rates))
        network, title = {"topology": graph}, f"Rounds of gossip, {graph}"
        parts.append(size.part(graph, title, network=network, methods=methods, faults=faults))
    sheets = [
        TABLE.sheet(size, _rows(rate, rounds), sheet, words={"rate": rate})
        for sheet in TABLE.sheets
        for rate in rates
    ]
    return TABLE.study(scale, parts, sheets)


def _rows(rate: str, rounds: list[str]) -> dict[str, list[Place]]:
    return {
        f"{method}, {graph}, {things}": [
            Place(graph, f"{method}-G{n}", *faults_at(things, [rate])) for n in rounds
        ]
        for method in METHODS
        for graph, failing in FAILING.items()
        for things in failing
    }


REPRODUCTION = TABLE.reproduction(_study)
