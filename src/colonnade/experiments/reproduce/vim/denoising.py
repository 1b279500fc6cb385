"""Table 4: one client whose columns are noisy, in training and at test."""

from __future__ import annotations

from colonnade.experiments.reproduce.study import Scale, Study
from colonnade.experiments.reproduce.table_file import read_table
from colonnade.experiments.reproduce.vim.epochs import by_epochs

TABLE = read_table(__file__)


def _study(scale: Scale) -> Study:
    part, sheet = by_epochs(TABLE, TABLE.size(scale), "noisy", "One noisy client")
    return TABLE.study(scale, [part], [sheet])


REPRODUCTION = TABLE.reproduction(_study)
