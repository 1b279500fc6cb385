"""CVFL ("A Vertical Federated Learning Framework for Horizontally Partitioned Labels"): its table
and its figures."""

from __future__ import annotations

from colonnade.experiments.reproduce.cvfl import exponent, pace, table2

REPRODUCTIONS = (table2.REPRODUCTION, pace.REPRODUCTION, exponent.REPRODUCTION)
