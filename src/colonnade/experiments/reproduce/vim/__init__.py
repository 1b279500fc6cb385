"""VIM ("Improving Vertical Federated Learning by Efficient Communication with ADMM"): its tables
and figures on MNIST."""

from __future__ import annotations

from colonnade.experiments.reproduce.vim import (
    accuracy,
    communication,
    datasets,
    denoising,
    importance,
    many_clients,
    rho_tau,
    summarisation,
)

REPRODUCTIONS = (
    accuracy.REPRODUCTION,
    communication.REPRODUCTION,
    importance.REPRODUCTION,
    denoising.REPRODUCTION,
    rho_tau.REPRODUCTION,
    summarisation.REPRODUCTION,
    many_clients.REPRODUCTION,
    datasets.REPRODUCTION,
)
