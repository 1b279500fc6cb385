"""MAGS ("Robust Decentralized VFL over Dynamic Device Environment"): its tables and figures, and
one question it leaves open."""

from __future__ import annotations

from colonnade.experiments.reproduce.mags import metrics

REPRODUCTIONS = (metrics.TABLE3, metrics.TABLE8)
