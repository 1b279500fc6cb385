"""Beyond the paper: links that fail in training as well, and encoders that learn alone."""

from __future__ import annotations

from colonnade.experiments.reproduce.study import Scale, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)


def _study(scale: Scale) -> Study:
    size = TABLE.size(scale)
    part, sheet = TABLE.by_faults(size, "training", "Links that fail in training as well")
    return TABLE.study(scale, [part], [sheet])


REPRODUCTION = TABLE.reproduction(_study)
