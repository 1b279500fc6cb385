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

REPRODUCTIONS = (
    table1.REPRODUCTION,
    redundancy.REPRODUCTION,
    labels.REPRODUCTION,
    datasets.REPRODUCTION,
    period.REPRODUCTION,
    widths.REPRODUCTION,
    simclr.REPRODUCTION,
    prediction.REPRODUCTION,
)
