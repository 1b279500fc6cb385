"""Table 1: MNIST while links, clients and aggregators fail."""

from __future__ import annotations

from colonnade.experiments.reproduce.dvfl.two_parts import two_parts
from colonnade.experiments.reproduce.study import Scale, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)
CALM = ("DVFL", "DVFL, centred", "SplitNN", "SplitNN, Adam", "FedOnce", "VAFL", "VFB²")
DISTURBED = [name for name in TABLE.methods if name != "SplitNN"]


def _study(scale: Scale) -> Study:
    return two_parts(TABLE, scale, "Table 1", CALM, DISTURBED)


REPRODUCTION = TABLE.reproduction(_study)
