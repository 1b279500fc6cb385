"""FedVS opens the exact sum of all embeddings and nothing else, whoever is late."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from colonnade.algorithms.fedvs import FedVS, FedVSSettings
from colonnade.algorithms.fedvs_shares import Overflow
from colonnade.algorithms.splitnn import SplitNNSettings
from colonnade.coding import TooFewAnswers
from colonnade.data import DataSpec, VerticalData, load
from colonnade.errors import InputError
from colonnade.experiments.run import build, drive
from colonnade.learning.models import make_head
from colonnade.learning.segments import Segments
from colonnade.learning.settings import Polynomial
from colonnade.network import Delays
from colonnade.network.faults import Client
from colonnade.network.inbox import Inbox
from colonnade.testing.engines import stacked


def digits(rows: int | None = 300, parties: int = 8) -> VerticalData:
    return load(DataSpec(dataset="digits", rows=rows, parties=parties), seed=0)


def settings(**more: Any) -> FedVSSettings:
    facts: dict[str, Any] = {"epochs": 2, "batch": 64, "partitions": 2, **more}
    return FedVSSettings(name="fedvs", algorithm="fedvs", **facts)


def answers_to(algorithm: FedVS, net: Any, rows: Tensor) -> Inbox:
    """What all clients answer about coded training rows."""

    async def ask() -> Inbox:
        shares = await algorithm.share_data(net, algorithm.data.train)
        models = await algorithm.share_models(net, algorithm.rounded(0))
        coded = algorithm.field.answers(shares, rows, models)
        return await net.send(coded, algorithm.coded_embedding, len(rows) + 1)

    return drive(ask())


def in_the_clear(algorithm: FedVS, rows: Tensor) -> Tensor:
    """The mean embedding of these rows by plain float64, of the same quantised numbers."""
    field = algorithm.field
    x, w = (
        field.columns.real(field.columns.nearest(algorithm.x)),
        field.models.real(algorithm.rounded(0)),
    )
    return (x.index_select(1, rows) @ w.transpose(1, 2)).mean(0)


def test_every_sufficient_subset_opens_the_same_sum_to_the_last_bit() -> None:
    built, net = build(settings(), digits(), 0)
    assert isinstance(built, FedVS)
    coded = torch.arange(5)
    inbox = answers_to(built, net, coded)
    rows, places = Segments(built.data.train.rows, 2).spread(coded)
    expected = in_the_clear(built, rows).float()
    assert built.code.threshold == 5
    for who in combinations(range(8), 5):
        arrived = torch.zeros(1, 8, dtype=torch.bool)
        arrived[0, list(who)] = True
        mean, enough = built.opened(inbox.only(arrived), places, True)
        assert bool(enough)
        assert torch.equal(mean[0], expected)


def test_late_answers_change_no_weight() -> None:
    """Eight clients of which five are enough: three are a hundred times as slow as the others."""
    slow = {f"client{i}": 10.0 for i in (1, 4, 6)}
    quick = {f"client{i}": 0.1 for i in (0, 2, 3, 5, 7)}
    late = Delays(latency={**slow, **quick})
    prompt = stacked(settings(), digits())
    delayed = stacked(settings(), digits(), delays=late)
    assert delayed.metrics == prompt.metrics
    for party, tensors in prompt.weights.items():
        assert all(torch.equal(v, delayed.weights[party][k]) for k, v in tensors.items())


def in_plain_torch(algorithm: FedVS, epochs: int) -> list[Tensor]:
    """The same polynomials and head, written as a researcher would: from the same weights and with
    the same batches, but in the clear and unrounded. The clients' weights, then the head's."""
    data, clients = algorithm.data.train, len(algorithm.clients)
    models = [algorithm.models.member_state(n)["weight"].clone() for n in range(clients)]
    head = make_head(None, 64, 10)
    head.load_state_dict(algorithm.head.member_state(0))
    parameters = [*(w.requires_grad_() for w in models), *head.parameters()]
    sgd = torch.optim.SGD(parameters, lr=5e-2, momentum=0.9)
    batches = algorithm.batches(data.rows, 64, epochs)
    for round in range(len(batches)):
        rows = batches[round].rows
        x, one = data.x[:, rows], torch.ones(len(rows), 1)
        h = [torch.cat([a, one, a**2, one], 1) @ w.T for a, w in zip(x, models, strict=True)]
        loss = F.cross_entropy(head(torch.stack(h).mean(0)), data.y[rows])
        sgd.zero_grad()
        loss.backward()
        sgd.step()
    return [parameter.detach() for parameter in parameters]


def test_it_is_as_good_as_the_same_network_in_the_clear() -> None:
    """Rounding at random (2⁻¹³ of a weight) and to the nearest (2⁻⁷ of a column) is what differs;
    without validation the last weights are the trained ones."""
    spec = DataSpec(dataset="digits", parties=8, validation=0)
    coded = stacked(settings(epochs=12), load(spec, seed=0))
    built, _ = build(settings(), load(spec, seed=0), 0)
    assert isinstance(built, FedVS)
    *models, hidden, bias, last, last_bias = in_plain_torch(built, 12)
    for n, plain in enumerate(models):
        ours = coded.weights[f"client{n}"]["model.weight"]
        assert float((ours - plain).norm() / plain.norm()) < 0.02
    test = built.data.test
    powers = torch.cat([test.x, torch.ones_like(test.x[..., :1])], -1)
    h = torch.cat([powers, powers**2], -1) @ torch.stack(models).transpose(1, 2)
    logits = F.linear(F.leaky_relu(F.linear(h.mean(0), hidden, bias)), last, last_bias)
    clear = float((logits.argmax(1) == test.y).float().mean())
    assert coded.metrics["test_accuracy"] > 0.93
    assert abs(coded.metrics["test_accuracy"] - clear) < 0.01


def test_split_learning_with_polynomial_encoders_is_the_same_network_in_the_clear() -> None:
    data = digits(None)
    facts: Any = {"optimizer": "sgd", "lr": 5e-2, "momentum": 0.9, "epochs": 12, "batch": 64}
    method = SplitNNSettings(
        name="clear", algorithm="splitnn", combine="mean", encoder=Polynomial(), **facts
    )
    coded, clear = stacked(settings(epochs=12), data), stacked(method, data)
    first, plain = (t.weights["client0"] for t in (coded, clear))
    assert first["model.weight"].shape == plain["encoder.1.weight"].shape
    assert coded.metrics["test_accuracy"] > clear.metrics["test_accuracy"] - 0.01
    with pytest.raises(InputError, match=r"encoder\.degree = 0: expected 1 or more"):
        Polynomial(degree=0).check()


def test_the_server_hears_coded_sums_only_and_a_share_is_a_part_of_the_columns() -> None:
    trained = stacked(settings(), digits())
    rows = list(trained.net.ledger.rows())
    to_server = {kind for _, _, receiver, kind, _, _ in rows if receiver == "server"}
    assert to_server == {"coded-embedding", "held"}  # and whose shares a client has
    features, length = 2 * (8 + 1), trained.algorithm.data.train.rows // 2  # two segments
    (share,) = {
        bytes
        for phase, sender, receiver, kind, _, bytes in rows
        if (phase, sender, receiver, kind) == ("training", "client0", "client1", "data-share")
    }
    assert share == 4 * (length + 1) * features


def test_what_one_client_tells_the_server_is_uniform_whatever_the_columns() -> None:
    """Fifteen degrees of freedom: a chi-square beyond 50 comes once in 100,000 trials."""
    built, net = build(settings(), digits(), 0)
    assert isinstance(built, FedVS)
    for scale in (0.0, 1.0):
        built.data.train.x.mul_(scale)
        told = []
        for repeat in range(5):
            net.round = repeat  # other masks
            told.append(answers_to(built, net, torch.arange(64)).value[0, 3, :-1].flatten())
        numbers = torch.cat(told).long() + built.code.field.largest
        count = torch.bincount(numbers * 16 // built.code.field.prime, minlength=16).double()
        expected = len(numbers) / 16
        assert float((count - expected).square().sum() / expected) < 50


def test_answers_from_other_sharings_are_not_mixed() -> None:
    built, net = build(settings(missing="error"), digits(), 0)
    assert isinstance(built, FedVS)
    inbox = answers_to(built, net, torch.arange(4))
    inbox.raw[0, :4, -1, 0] += 1  # four clients have another model of somebody
    with pytest.raises(TooFewAnswers, match="K=2, T=1 need 5 of 8 clients, 4 answered"):
        built.opened(inbox, torch.arange(8), True)


def test_too_few_answers_are_an_error_or_a_step_that_is_left_out() -> None:
    gone = Client(name="client", down=0.6, up=0.2)
    with pytest.raises(TooFewAnswers, match=r"need 5 of 8 clients, [0-4] answered"):
        stacked(settings(missing="error"), digits(), fault=gone)
    assert stacked(settings(missing="zeros"), digits(), fault=gone).metrics


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("partitions", 4, r"need 9 answers, of 8 clients; possible is K \+ T ≤ 4"),
        ("colluders", -1, "colluders = -1: expected 0 or more"),
        ("prime", 2**31 - 3, "prime = 2147483645: is not a prime"),
        ("encoder", [64, 32], re.escape("encoder = [64, 32]: the clients' models are polynomials")),
        ("encoder", "cnn", "expected one width, that of the embeddings"),
        ("degree", 0, "degree = 0: expected 1 or more"),
        ("data_bits", 30, r"data_bits = 30: .* take fewer bits, or scale the columns"),
    ],
)
def test_settings_that_cannot_work_are_refused(key: str, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        stacked(settings(**{key: value}), digits())


def test_a_sum_that_could_leave_the_field_is_found_before_it_does() -> None:
    with pytest.raises(Overflow, match="take fewer bits, or a lower learning rate"):
        stacked(settings(model_bits=20), digits())
