"""Noise on gradients that hides labels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.experiments.audit.test_audit import audited

from colonnade.common.randomness import SeededRandomness
from colonnade.common.seeds import numpy_stream
from colonnade.errors import InputError
from colonnade.experiments.config import parse_experiment
from colonnade.experiments.runner import check
from colonnade.learning.hidden_labels import shaped_noise
from colonnade.privacy.noise import gaussian

CANCER = {"dataset": "breast_cancer", "parties": 2}


def test_the_noise_varies_as_the_classes_do_and_nowhere_else() -> None:
    """Its covariance is that between the classes."""
    stream = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (40_000,), generator=stream)
    points = torch.randn(3, 5, generator=stream, dtype=torch.float64)
    gradient = points[labels] + 0.3 * torch.randn(40_000, 5, generator=stream, dtype=torch.float64)
    normal = gaussian(SeededRandomness(numpy_stream(0, "test")), 40_000, 3)
    noise = shaped_noise(gradient, labels, normal)
    share = torch.bincount(labels) / len(labels)
    means = torch.stack([gradient[labels == c].mean(0) for c in range(3)]) - gradient.mean(0)
    between = (share[:, None] * means).T @ means
    assert torch.allclose(torch.cov(noise.T), between, atol=0.05)


def test_a_binary_label_is_hidden_also_from_a_receiver_with_a_memory() -> None:
    def told(**more: Any) -> dict[str, float]:
        found = audited({"algorithm": "splitnn", "epochs": 8, **more}, CANCER)
        return {one.attack: one.success for one in found if one.about_labels}

    before, after = told(), told(hide_labels=30.0)
    for attack in ("direction", "direction, all epochs"):
        assert before[attack] > 0.97
        assert after[attack] < 0.72


@pytest.mark.parametrize(
    ("method", "data", "said"),
    [
        ({"algorithm": "fedonce"}, CANCER, "fedonce tells nobody gradients of single rows"),
        ({"algorithm": "vim"}, CANCER, "the dual variables of single rows"),
        ({"algorithm": "splitnn"}, {"dataset": "diabetes", "parties": 2}, "the label is a number"),
    ],
)
def test_it_is_refused_where_it_hides_nothing(
    method: dict[str, Any], data: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        audited({**method, "hide_labels": 4.0}, data)


@pytest.mark.parametrize("algorithm", ["splitnn", "fdml", "vafl", "vfb2", "cvfl", "fedvs"])
def test_every_method_that_tells_gradients_takes_it(algorithm: str) -> None:
    data = {"dataset": "digits", "parties": 3, "rows": 400}
    clear = audited({"algorithm": algorithm, "epochs": 1}, data)
    hidden = audited({"algorithm": algorithm, "epochs": 1, "hide_labels": 20.0}, data)
    clusters = [[f.success for f in found if f.attack == "clusters"] for found in (clear, hidden)]
    if clusters[0]:  # in cvfl all parties hold labels
        assert max(clusters[1]) < max(clusters[0]) - 0.2


@pytest.mark.parametrize(
    ("more", "data", "warned"),
    [
        ({}, CANCER, True),
        ({"hide_labels": 0}, CANCER, False),
        ({"hide_labels": 16.0}, CANCER, False),
        ({}, {"dataset": "digits", "parties": 2, "rows": 200}, False),
        ({"algorithm": "fedonce"}, CANCER, False),
    ],
)
def test_who_starts_a_training_with_two_classes_is_told_once_what_gradients_tell(
    more: dict[str, Any], data: dict[str, Any], warned: bool
) -> None:
    method = {"algorithm": "splitnn", "epochs": 1, **more}
    experiment = parse_experiment({"name": "x", "data": data, "methods": [method]}, "x")
    told = [text for text in check(experiment) if "hide_labels = 16" in text]
    assert len(told) == warned
