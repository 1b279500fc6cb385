"""MAGS ("Robust Decentralized VFL over Dynamic Device Environment"): its tables and figures, and
one question it leaves open."""

from __future__ import annotations

from colonnade.experiments.reproduce.mags import (
    devices,
    figure2,
    gossip,
    table2,
    table3,
    temporal,
    training,
)

REPRODUCTIONS = (
    figure2.REPRODUCTION,
    table2.REPRODUCTION,
    table3.REPRODUCTION,
    table3.REPRODUCTION8,
    temporal.REPRODUCTION,
    gossip.REPRODUCTION,
    devices.REPRODUCTION,
    training.REPRODUCTION,
)
