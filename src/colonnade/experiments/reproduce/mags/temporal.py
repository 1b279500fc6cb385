"""Figure 19: links that fail for a while and return, also within one prediction."""

from __future__ import annotations

from colonnade.experiments.reproduce.mags.rates import faults_at
from colonnade.experiments.reproduce.study import Scale, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)


def _study(scale: Scale) -> Study:
    size, faults = TABLE.size(scale), faults_at("links", TABLE.shown(scale))
    part, sheet = TABLE.by_faults(
        size, "markov", "Links that fail and return", faults, things="links"
    )
    return TABLE.study(scale, [part], [sheet])


REPRODUCTION = TABLE.reproduction(_study)
