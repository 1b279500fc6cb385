"""Table 1: polynomial networks at the clients beside perceptrons and convolutions."""

from __future__ import annotations

from colonnade.experiments.reproduce.study import Place, Scale, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)
PART = "architectures"
NETWORKS = ("MLP", "CNN", "PN", "PN, in the clear")


def _study(scale: Scale) -> Study:
    size, layers = TABLE.size(scale), TABLE.shown(scale)
    part = size.part(PART, "Networks of the clients", methods=TABLE.runs(size))
    rows = {name: [Place(PART, f"{name}, {count}") for count in layers] for name in NETWORKS}
    return TABLE.study(scale, [part], [TABLE.sheet(size, rows)])


REPRODUCTION = TABLE.reproduction(_study)
