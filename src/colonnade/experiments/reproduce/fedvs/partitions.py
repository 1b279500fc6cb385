"""Figure 3: the number of partitions, where delays dominate and where computing does."""

from __future__ import annotations

from colonnade.experiments.reproduce.fedvs.stragglers import numbered, stragglers
from colonnade.experiments.reproduce.study import Place, Scale, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)
DOMINANT = {
    "delays": (1.0, 1e-3),
    "computing": (0.1, 0.5),
}  # share of the delays, seconds of a step


def _study(scale: Scale) -> Study:
    size, methods = TABLE.size(scale), TABLE.runs(TABLE.size(scale))
    batch, clients = TABLE.settings["all"]["batch"], numbered(TABLE.data["parties"])
    parts = [
        size.part(
            name,
            f"Partitions, {name} dominate",
            methods=methods,
            network={"delays": stragglers(clients, batch, share=share, compute=compute)},
        )
        for name, (share, compute) in DOMINANT.items()
    ]
    rows = {name: [Place(part.name, name) for part in parts] for name in TABLE.methods}
    return TABLE.study(scale, parts, [TABLE.sheet(size, rows, sheet) for sheet in TABLE.sheets])


REPRODUCTION = TABLE.reproduction(_study)
