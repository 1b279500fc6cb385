"""FedVS ("Straggler-Resilient and Privacy-Preserving Vertical Federated Learning"): its
figures."""

from __future__ import annotations

from colonnade.experiments.reproduce.fedvs import accuracy_time, architectures, partitions, privacy

REPRODUCTIONS = (
    accuracy_time.REPRODUCTION,
    partitions.REPRODUCTION,
    privacy.REPRODUCTION,
    architectures.REPRODUCTION,
)
