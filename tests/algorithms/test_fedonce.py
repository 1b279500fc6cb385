"""One round of communication: what is sent, and what faults do to it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.algorithms.fedonce import FedOnce, FedOnceSettings
from colonnade.data import DataSpec, VerticalData, load
from colonnade.errors import InputError, PartyLost
from colonnade.experiments.run import build, drive
from colonnade.network.faults import Aggregator, Client, Connection
from colonnade.testing import stacked


@pytest.fixture(scope="module")
def digits() -> VerticalData:
    return load(DataSpec(dataset="digits", rows=400), seed=0)


def fedonce(**more: Any) -> FedOnceSettings:
    return FedOnceSettings(**{"name": "f", "algorithm": "fedonce", "client_epochs": 3, **more})


def test_every_row_is_sent_once_and_no_gradient_ever(digits: VerticalData) -> None:
    trained = stacked(fedonce(epochs=2), digits)
    rows = [row for row in trained.net.ledger.rows() if row[0] == "training"]
    assert {row[3] for row in rows} == {"encoding", "decision"}
    sent = {row[1]: row[5] for row in rows if row[3] == "encoding"}
    assert set(sent.values()) == {len(digits.train) * 16 * 4}


def collected(settings: FedOnceSettings, data: VerticalData, **facts: Any) -> Tensor:
    """What the server was sent."""
    algorithm = stacked(settings, data, **facts).algorithm
    assert isinstance(algorithm, FedOnce)
    return algorithm.collection.train.value


def test_encodings_that_were_lost_count_as_zeros_and_are_fetched_again_by_retry(
    digits: VerticalData,
) -> None:
    lost = Connection(name="links", down=0.5, up=0.5)
    zeros, retry = (
        collected(fedonce(missing=m, epochs=1), digits, fault=lost) for m in ("zeros", "retry")
    )
    calm = collected(fedonce(epochs=1), digits)
    assert torch.equal(retry, calm)
    slots = zeros.unflatten(2, (4, 16))
    gone = (slots == 0).all(3)
    assert 0.2 < float(gone.float().mean()) < 0.8
    assert torch.equal(slots[~gone], calm.unflatten(2, (4, 16))[~gone])


def test_retry_says_who_never_answers(digits: VerticalData) -> None:
    gone = Client(name="gone", down=1.0, up=0.0)
    with pytest.raises(PartyLost, match="client0"):
        stacked(fedonce(missing="retry", epochs=1), digits, fault=gone)


def test_a_client_that_is_away_does_not_learn(digits: VerticalData) -> None:
    gone = Client(name="gone", down=1.0, up=0.0)
    fresh, net = build(fedonce(epochs=1), digits, seed=0)
    trained = stacked(fedonce(epochs=1), digits, fault=gone)
    before, after = fresh.tensors(net), trained.weights
    for party in digits.clients:
        assert all(torch.equal(v, after[party][key]) for key, v in before[party].items())


def test_a_server_that_is_away_does_not_learn(digits: VerticalData) -> None:
    gone = Aggregator(name="gone", down=1.0, up=0.0)
    algorithm, net = build(fedonce(epochs=2), digits, seed=0, fault=gone)
    before = {key: v.clone() for key, v in algorithm.tensors(net)["server"].items()}
    drive(algorithm.train(net))
    assert all(torch.equal(v, algorithm.tensors(net)["server"][k]) for k, v in before.items())


def test_noise_as_targets_learns_encodings_that_a_head_can_use() -> None:
    data = load(DataSpec(dataset="digits"), seed=0)
    chosen = fedonce(objective="noise", client_epochs=20, epochs=60, optimizer="adam", lr=3e-3)
    assert stacked(chosen, data).metrics["test_accuracy"] > 0.85


def test_bad_settings_are_refused_by_name(digits: VerticalData) -> None:
    with pytest.raises(InputError, match="client_epochs"):
        build(fedonce(client_epochs=0), digits, seed=0)
