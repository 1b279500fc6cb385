"""Appendix F.3: SimCLR instead of autoencoders, without aggregators; and Barlow Twins, ours."""

from __future__ import annotations

from colonnade.experiments.reproduce.dvfl import table1
from colonnade.experiments.reproduce.dvfl.two_parts import two_parts
from colonnade.experiments.reproduce.study import Scale, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)
*LEARNERS, SPLITNN = TABLE.methods


def _study(scale: Scale) -> Study:
    table1_figures = table1.TABLE.figures()
    more = {LEARNERS[0]: table1_figures["DVFL"], SPLITNN: table1_figures[SPLITNN]}
    return two_parts(TABLE, scale, "Objectives", list(TABLE.methods), LEARNERS, more)


REPRODUCTION = TABLE.reproduction(_study)
