"""Decoupled training: what is sent, what is learnt, and what faults leave alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from colonnade.algorithms.dvfl import DVFLSettings, Replay
from colonnade.data import DataSpec, VerticalData, load
from colonnade.errors import InputError
from colonnade.experiments.run import build, drive
from colonnade.network.faults import Aggregator, Client, Connection
from colonnade.testing import difference, projected, stacked


@pytest.fixture(scope="module")
def digits() -> VerticalData:
    return load(DataSpec(dataset="digits", rows=400), seed=0)


def dvfl(**more: Any) -> DVFLSettings:
    brief = {"client_epochs": 4, "aggregator_epochs": 6, "epochs": 2, "aggregators": 2}
    return DVFLSettings(**{"name": "d", "algorithm": "dvfl", **brief, **more})


def test_no_gradient_ever_crosses_a_link(digits: VerticalData) -> None:
    fault = Connection(name="links", down=0.3, up=0.5, when="always")
    kinds = {kind for kind, _, _ in stacked(dvfl(), digits, fault=fault).net.ledger.kinds()}
    assert kinds == {"encoding", "decision"}


@pytest.mark.parametrize("period", [1, 2, 4])
def test_each_client_sends_what_the_papers_formula_says_to_the_byte(
    digits: VerticalData, period: int
) -> None:
    """Appendix F.1: aggregators × ⌊epochs / period⌋ × rows × width × 32 bits."""
    trained = stacked(dvfl(period=period), digits)
    sent = dict.fromkeys(digits.clients, 0)
    for phase, sender, _, _, _, size in trained.net.ledger.rows():
        if phase == "training" and sender in sent:
            sent[sender] += size
    assert set(sent.values()) == {2 * (4 // period) * len(digits.train) * 16 * 4}


def test_a_client_that_is_away_neither_learns_nor_writes(digits: VerticalData) -> None:
    gone = Client(name="gone", down=1.0, up=0.0)
    fresh, _ = build(dvfl(), digits, seed=0)
    trained = stacked(dvfl(), digits, fault=gone)
    for name in ("encoder", "decoder"):
        for i in range(4):
            before = fresh.stacks[name][1].member_state(i)
            after = trained.algorithm.stacks[name][1].member_state(i)
            assert all(torch.equal(before[key], after[key]) for key in before)
    senders = {row[1] for row in trained.net.ledger.rows() if row[0] == "training"}
    assert not senders & set(digits.clients)


def test_an_aggregator_that_is_away_does_not_learn_but_the_clients_do(digits: VerticalData) -> None:
    gone = Aggregator(name="gone", down=1.0, up=0.0)
    calm, trained = stacked(dvfl(), digits), stacked(dvfl(), digits, fault=gone)
    for party, tensors in trained.weights.items():
        for key, value in tensors.items():
            same = torch.equal(value, calm.weights[party][key])
            assert same == party.startswith("client") or party == "owner"


def test_a_lost_message_leaves_the_register_as_it_was_and_training_goes_on() -> None:
    data = load(DataSpec(dataset="digits"), seed=0)
    long = {"client_epochs": 30, "aggregator_epochs": 60, "epochs": 60, "lr": 3e-3}
    lost = Client(name="clients", down=0.3, up=0.1)
    calm = stacked(dvfl(optimizer="adam", **long), data)
    trained = stacked(dvfl(optimizer="adam", **long), data, fault=lost)
    assert calm.metrics["test_accuracy"] > 0.9
    assert trained.metrics["test_accuracy"] > calm.metrics["test_accuracy"] - 0.05


def test_rows_that_only_one_client_has_teach_its_encoder_and_are_never_sent() -> None:
    data = load(DataSpec(dataset="digits", labelled=100), seed=0)
    trained = stacked(dvfl(), data)
    own = min(len(x) for x in data.extra)
    local = trained.algorithm.local_batches  # pyright: ignore[reportAttributeAccessIssue]
    for epoch in range(4):
        batches = [local[epoch * local.per_epoch + i] for i in range(local.per_epoch)]
        for aligned, count in ((True, 100), (False, own)):
            rows = torch.cat([b.rows for b in batches if b.aligned == aligned])
            assert torch.equal(rows.sort()[0], torch.arange(count))
    sent = sum(
        row[5] for row in trained.net.ledger.rows() if row[0] == "training" and row[1] == "client0"
    )
    assert sent == 2 * 4 * 100 * 16 * 4
    assert difference(trained, projected(dvfl(), data)) < 1e-6


def test_a_replay_keeps_so_many_batches_and_drops_what_a_dead_aggregator_would_have_read() -> None:
    replay = Replay(2, keep=2, width=1)
    for k in range(4):
        batch = torch.full((2, 3, 1), float(k))
        replay.append(batch, torch.tensor([True, k == 1]))
    assert replay.filled.tolist() == [True, True]
    assert [replay.read(t)[:, 0, 0].tolist() for t in range(3)] == [[2, 1], [3, 1], [2, 1]]
    nothing = Replay(1, keep=0, width=1)
    nothing.append(torch.ones(1, 3, 1), torch.tensor([True]))
    assert not nothing.filled.any()


def test_with_an_aggregator_down_the_owner_still_predicts(digits: VerticalData) -> None:
    down = Aggregator(name="down", down=0.5, up=0.5, when="inference")
    algorithm, net = build(dvfl(aggregators=3), digits, seed=0, fault=down)
    drive(algorithm.train(net))
    logits = drive(algorithm.predict(net.within("inference"), algorithm.data.test))
    assert logits.shape == (len(digits.test), 10)
    assert logits.isfinite().all()


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"aggregators": 0}, "aggregators"),
        ({"period": 5}, "send nothing"),
        ({"replay": -1}, "replay"),
        ({"encoder": "cnn"}, "encoder"),
        ({"lr": {"clients": 0.1}}, "a rate for each of clients, aggregators, owner"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(
    digits: VerticalData, bad: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        build(dvfl(**bad), digits, seed=0)
