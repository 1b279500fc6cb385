"""DVFL (Amalanshu, Sirvi, Inouye, "Decoupled Vertical Federated Learning for Practical Training on
Vertically Partitioned Data"): its tables and figures, and one question it leaves open."""

from __future__ import annotations

from colonnade.experiments.reproduce.dvfl import (
    datasets,
    labels,
    period,
    prediction,
    redundancy,
    simclr,
    table1,
    widths,
)

STUDIES = (table1, redundancy, labels, datasets, period, widths, simclr, prediction)
REPRODUCTIONS = tuple(study.REPRODUCTION for study in STUDIES)
