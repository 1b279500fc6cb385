"""Beyond the paper: aggregators that are away when a prediction is asked for."""

from __future__ import annotations

from colonnade.experiments.reproduce.study import Scale, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)


def _study(scale: Scale) -> Study:
    size = TABLE.size(scale)
    part, sheet = TABLE.by_faults(size, "prediction", "Faults at prediction")
    return TABLE.study(scale, [part], [sheet])


REPRODUCTION = TABLE.reproduction(_study)
