"""Split learning: policies, combinations, faults in both directions."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from colonnade.algorithms.splitnn import SplitNNSettings
from colonnade.data import DataSpec, VerticalData, load
from colonnade.errors import InputError, PartyLost
from colonnade.experiments.run import build, drive
from colonnade.learning.models import make_encoder, make_head
from colonnade.network import Delays, Fault, Inbox, Register
from colonnade.network.faults import (
    Aggregator,
    Catastrophe,
    Client,
    Communication,
    Connection,
    Device,
)
from colonnade.testing import difference, projected, stacked
from colonnade.testing.engines import Trained

POLICIES = ["wait", "skip", "zeros", "buffer", "stale"]
SHAKY = Client(name="clients", down=0.3, up=0.3)


@pytest.fixture(scope="module")
def digits() -> VerticalData:
    return load(DataSpec(dataset="digits", rows=600), seed=0)


def splitnn(**more: Any) -> SplitNNSettings:
    return SplitNNSettings(**{"name": "s", "algorithm": "splitnn", "epochs": 2, **more})


@pytest.mark.parametrize("missing", POLICIES)
@pytest.mark.parametrize(
    "fault", [SHAKY, Connection(name="links", down=0.3, up=0.1)], ids=["client", "link"]
)
def test_two_hundred_rounds_give_the_same_weights_on_both_engines(
    digits: VerticalData, missing: str, fault: Fault
) -> None:
    settings = splitnn(
        missing=missing, epochs=24, batch=64, optimizer="sgd", lr=0.05, momentum=0.5, patience=100
    )
    one, each = stacked(settings, digits, fault=fault), projected(settings, digits, fault=fault)
    assert one.net.round + 1 >= 200
    assert difference(one, each) < 1e-6


def test_a_server_with_a_deadline_goes_on_without_late_embeddings(digits: VerticalData) -> None:
    """Client 3 is always late: its encoder never learns, and a round takes the deadline."""
    method, delays = splitnn(deadline=0.5, combine="mean"), Delays(lag={"client3": 2.0})
    one, each = (engine(method, digits, delays=delays) for engine in (stacked, projected))
    assert isinstance(one, Trained)
    assert isinstance(each, dict)
    assert difference(one, each) < 1e-6
    assert one.seconds == pytest.approx(0.5 * (one.net.round + 1))
    untrained, net = build(method, digits, 0)
    for client, learns in (("client0", True), ("client3", False)):
        start, end = untrained.tensors(net)[client], one.weights[client]
        assert any(not torch.equal(start[key], end[key]) for key in start) == learns


def test_a_deadline_and_waiting_for_everybody_exclude_each_other(digits: VerticalData) -> None:
    with pytest.raises(InputError, match=r'deadline = 0\.5: missing = "wait" waits for every'):
        build(splitnn(deadline=0.5, missing="wait"), digits, 0)


@pytest.mark.parametrize("combine", ["concat", "mean", "sum", "max"])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_every_way_to_combine_is_the_same_on_both_engines(
    digits: VerticalData, combine: str, dropout: float
) -> None:
    settings = splitnn(combine=combine, dropout=dropout)
    one, each = stacked(settings, digits, fault=SHAKY), projected(settings, digits, fault=SHAKY)
    assert difference(one, each) < 1e-6


@pytest.mark.parametrize("combine", ["concat", "mean", "sum", "max"])
def test_without_faults_it_is_ordinary_back_propagation_through_the_whole(combine: str) -> None:
    """Against one autograd graph over clients and server, as a textbook would write it."""
    data = load(DataSpec(dataset="digits", rows=200), seed=0)
    settings = splitnn(combine=combine, epochs=1, optimizer="sgd", lr=0.1, momentum=0.0)
    algorithm, net = build(settings, data, seed=0)
    encoders = [make_encoder(None, w, s) for w, s in zip(data.widths, data.shapes, strict=True)]
    width = 16 if combine != "concat" else 16 * 4
    head = make_head(None, width, data.classes)
    for i, (name, module) in enumerate([*(("encoder", e) for e in encoders), ("head", head)]):
        stack = algorithm.stacks[name][1]
        module.load_state_dict(copy.deepcopy(stack.member_state(i if name == "encoder" else 0)))
    whole = nn.ModuleList([*encoders, head])
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
    join = {
        "concat": lambda parts: torch.cat(parts, 1),
        "mean": lambda parts: torch.stack(parts).mean(0),
        "sum": lambda parts: torch.stack(parts).sum(0),
        "max": lambda parts: torch.stack(parts).max(0)[0],
    }[combine]
    for round in range(len(algorithm.training.batches)):
        rows = algorithm.training.batches[round].rows
        joined = join([e(x[rows]) for e, x in zip(encoders, data.train.x, strict=True)])
        optimizer.zero_grad()
        F.cross_entropy(head(joined), data.train.y[rows]).backward()
        optimizer.step()
    drive(algorithm.train(net))
    for i, encoder in enumerate(encoders):
        for key, value in encoder.state_dict().items():
            assert torch.allclose(
                algorithm.stacks["encoder"][1].member_state(i)[key], value, atol=1e-5
            )
    for key, value in head.state_dict().items():
        assert torch.allclose(algorithm.stacks["head"][1].member_state(0)[key], value, atol=1e-5)


def test_without_faults_all_policies_are_one(digits: VerticalData) -> None:
    weights = [stacked(splitnn(missing=missing), digits).weights for missing in POLICIES]
    for other in weights[1:]:
        for party, tensors in weights[0].items():
            assert all(torch.equal(value, other[party][key]) for key, value in tensors.items())


@pytest.mark.parametrize(
    "fault",
    [
        SHAKY,
        Aggregator(name="server", down=0.3, up=1.0),
        Device(name="device", rate=0.1),
        Communication(name="links", rate=0.1),
        Catastrophe(name="catastrophe", at=2, rate=1.0, recovery=2),
    ],
    ids=lambda fault: fault.name,
)
def test_waiting_is_training_without_faults_only_later(digits: VerticalData, fault: Fault) -> None:
    calm = stacked(splitnn(missing="wait"), digits)
    waited = stacked(splitnn(missing="wait"), digits, fault=fault)
    each = projected(splitnn(missing="wait"), digits, fault=fault)
    assert waited.metrics == calm.metrics
    assert waited.seconds > calm.seconds == 0
    assert max(t.seconds for t in each.values()) == pytest.approx(waited.seconds)


def test_waiting_for_a_party_that_never_returns_names_it(digits: VerticalData) -> None:
    with pytest.raises(PartyLost, match=r"client\d is out of reach.*zeros"):
        stacked(splitnn(missing="wait"), digits, fault=Client(name="gone", down=0.2, up=0.0))
    with pytest.raises(PartyLost, match="server is out of reach"):
        stacked(splitnn(missing="wait"), digits, fault=Aggregator(name="gone", down=0.2, up=0.0))


@pytest.mark.parametrize("missing", POLICIES)
def test_who_is_dropped_on_purpose_is_not_missing(digits: VerticalData, missing: str) -> None:
    """Party-wise dropout puts zeros; it makes no batch unusable and is not filled from memory."""
    trained = stacked(splitnn(missing=missing, dropout=0.4), digits)
    other = stacked(splitnn(missing="zeros", dropout=0.4), digits)
    for party, tensors in trained.weights.items():
        assert all(torch.equal(v, other.weights[party][key]) for key, v in tensors.items())


def test_when_all_clients_are_away_for_good_nobody_learns_from_them(digits: VerticalData) -> None:
    """`skip` never sees a whole batch: nothing changes. No client ever steps, under any policy."""
    gone = Client(name="gone", down=1.0, up=0.0)
    start, _ = build(splitnn(), digits, seed=0)
    for missing in ("skip", "zeros", "buffer", "stale"):
        trained = stacked(splitnn(missing=missing), digits, fault=gone)
        for i in range(4):
            fresh = start.stacks["encoder"][1].member_state(i)
            after = trained.algorithm.stacks["encoder"][1].member_state(i)
            assert all(torch.equal(fresh[key], after[key]) for key in fresh)
        head = start.stacks["head"][1].member_state(0)
        same = [
            torch.equal(head[key], value)
            for key, value in trained.algorithm.stacks["head"][1].member_state(0).items()
        ]
        assert all(same) == (missing == "skip")


def test_a_dead_server_computes_no_gradient_though_the_clients_were_called(
    digits: VerticalData,
) -> None:
    dead = Aggregator(name="dead", down=1.0, up=0.0)
    start, _ = build(splitnn(), digits, seed=0)
    trained = stacked(splitnn(), digits, fault=dead)
    for name in ("encoder", "head"):
        for i in range(start.stacks[name][1].members):
            before = start.stacks[name][1].member_state(i)
            after = trained.algorithm.stacks[name][1].member_state(i)
            assert all(torch.equal(before[key], after[key]) for key in before)
    rows = list(trained.net.ledger.rows())
    assert sum(r[4] for r in rows if r[0] == "training" and r[3] == "embedding") == 4 * (
        trained.net.round + 1
    )
    assert not [r for r in rows if r[3] == "gradient"]


def test_gradients_go_only_to_clients_whose_embedding_was_used(digits: VerticalData) -> None:
    trained = stacked(splitnn(missing="zeros"), digits, fault=SHAKY)
    sent = {(r[1], r[2], r[3]): r[4] for r in trained.net.ledger.rows() if r[0] == "training"}
    for client in digits.clients:
        assert sent["server", client, "gradient"] <= sent[client, "server", "embedding"]


def test_buffer_repeats_the_newest_message_and_stale_the_newest_of_the_same_rows() -> None:
    def inbox(values: list[float], arrived: list[bool], rows: int = 2) -> Inbox:
        raw = torch.tensor(values).view(1, 2, 1, 1).expand(1, 2, rows, 1)
        return Inbox(raw, torch.tensor([arrived]), all(arrived))

    buffer, stale = Register(), Register(rows=4)
    first, second = torch.tensor([0, 1]), torch.tensor([2, 3])
    assert inbox([1, 2], [True, False]).latest(buffer).value[0, :, 0, 0].tolist() == [1, 0]
    assert inbox([3, 4], [False, True]).latest(buffer).value[0, :, 0, 0].tolist() == [1, 4]
    assert inbox([5, 6], [False, False], rows=1).latest(buffer).value[0, :, 0, 0].tolist() == [1, 4]
    inbox([1, 2], [True, True]).latest(stale, first)
    got = inbox([7, 8], [True, False]).latest(stale, second)
    assert got.value[0, :, 0, 0].tolist() == [7, 0]
    assert got.arrived.tolist() == [[True, False]]
    again = inbox([9, 9], [False, False]).latest(stale, first)
    assert again.value[0, :, 0, 0].tolist() == [1, 2]


def test_six_views_of_unequal_width_train_without_any_padding_by_the_user() -> None:
    generator = torch.Generator().manual_seed(0)
    from colonnade.data import from_arrays

    x = torch.randn(240, 12, generator=generator).numpy()
    y = (x[:, 0] + x[:, 5] + x[:, 11] > 0).astype(int)
    data = from_arrays(x, y, columns=[[0], [1, 2], [3, 4, 5], [6, 7, 8, 9], [10], [11]])
    settings = splitnn(epochs=60, encoder=None)
    one = stacked(settings, data, fault=SHAKY)
    each = projected(settings, data, fault=SHAKY)
    assert difference(one, each) < 1e-6
    logits = drive(
        one.algorithm.predict(one.net.within("validation"), one.algorithm.data.validation)
    )
    assert (logits.argmax(1) == one.algorithm.data.validation.y).float().mean() > 0.75


def test_own_modules_are_passed_as_factories(digits: VerticalData) -> None:
    settings = splitnn(
        encoder=lambda width: nn.Sequential(nn.Linear(width, 12), nn.LayerNorm(12), nn.ReLU()),
        head=lambda width, classes: nn.Sequential(nn.Linear(width, classes)),
    )
    trained = stacked(settings, digits)
    assert trained.algorithm.stacks["head"][1].member_state(0)["0.weight"].shape == (10, 48)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"dropout": 1.0}, "dropout"),
        ({"epochs": 0}, "epochs"),
        ({"lr": 0.0}, "lr"),
        ({"lr": {"clients": 0.1}}, "a rate for each of clients, server"),
        ({"encoder": []}, "encoder"),
        ({"head": [0]}, "head"),
        ({"patience": 0}, "patience"),
        ({"momentum": -1.0}, "momentum"),
        ({"lr": float("nan")}, "lr"),
        ({"lr": {"clients": 0.1, "server": 0.1, "servr": 0.1}}, "a rate for each of"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(
    digits: VerticalData, bad: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        build(splitnn(**bad), digits, seed=0)


def test_mean_over_unequal_embeddings_is_refused_with_what_to_do() -> None:
    data = load(DataSpec(dataset="breast_cancer", parties=7), seed=0)
    with pytest.raises(InputError, match="embeddings of one width"):
        build(splitnn(combine="mean", encoder=lambda w: nn.Linear(w, w)), data, seed=0)


def test_early_stopping_keeps_the_best_epoch_at_every_party(digits: VerticalData) -> None:
    points = []
    algorithm, net = build(splitnn(epochs=200, patience=3, lr=0.02), digits, seed=0)
    algorithm.training.watch = points.append
    drive(algorithm.train(net))
    assert points[-1].epoch < 200
    best = max(point.metrics["validation_accuracy"] for point in points)
    logits = drive(algorithm.predict(net.within("validation"), algorithm.data.validation))
    accuracy = (logits.argmax(1) == algorithm.data.validation.y).double().mean().item()
    assert accuracy == pytest.approx(best)
