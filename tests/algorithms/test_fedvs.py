"""FedVS opens the exact sum of all embeddings and nothing else, whoever is late."""

from __future__ import annotations

import dataclasses
import re
from itertools import combinations
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from colonnade.algorithms.fedvs import FedVS
from colonnade.algorithms.fedvs_settings import FedVSSettings
from colonnade.algorithms.fedvs_shares import Overflow, Shares
from colonnade.algorithms.splitnn import SplitNNSettings
from colonnade.coding import LagrangeCode, TooFewAnswers, WrongAnswers
from colonnade.coding.lagrange import interpolation
from colonnade.data import DataSpec, VerticalData, load
from colonnade.errors import InputError
from colonnade.experiments.run import build, drive
from colonnade.learning.models import make_head
from colonnade.learning.segments import Segments
from colonnade.learning.settings import Polynomial
from colonnade.learning.task import Task
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
    field = algorithm.field

    async def ask() -> Inbox:
        shares = await algorithm.share_data(net, algorithm.x, algorithm.data.train.rows)
        models = await algorithm.share_models(net, algorithm.rounded(0))
        coded = field.answers(shares, rows, models)
        return await net.send(coded, algorithm.coded_embedding, len(rows) + field.mark_rows)

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
    rows, places = Segments(built.data.train.rows, 2).rows_behind(coded)
    expected = in_the_clear(built, rows).float()
    assert built.code.threshold == 5
    for who in combinations(range(8), 5):
        arrived = torch.zeros(1, 8, dtype=torch.bool)
        arrived[0, list(who)] = True
        mean, enough, _ = built.opened(net, inbox.only(arrived), places, True)
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
        ours = coded.weights[f"client{n}"]["encoder.weight"]
        assert float((ours - plain).norm() / plain.norm()) < 0.02
    test = built.data.test
    powers = torch.cat([test.x, torch.ones_like(test.x[..., :1])], -1)
    h = torch.cat([powers, powers**2], -1) @ torch.stack(models).transpose(1, 2)
    logits = F.linear(F.leaky_relu(F.linear(h.mean(0), hidden, bias)), last, last_bias)
    clear = float((logits.argmax(1) == test.y).float().mean())
    assert coded.metrics["test_accuracy"] > 0.93
    assert abs(coded.metrics["test_accuracy"] - clear) < 0.01


def test_split_learning_with_polynomial_encoders_is_the_same_network_in_the_clear() -> None:
    """With one partition it goes from equal initial weights over equal batches."""
    data = digits(None)
    facts: Any = {"optimizer": "sgd", "lr": 5e-2, "momentum": 0.9, "epochs": 12, "batch": 64}
    method = SplitNNSettings(
        name="clear", algorithm="splitnn", combine="mean", encoder=Polynomial(), **facts
    )
    coded, clear = stacked(settings(epochs=12, partitions=1), data), stacked(method, data)
    for party in data.clients:
        ours, plain = (
            coded.weights[party]["encoder.weight"],
            clear.weights[party]["encoder.1.weight"],
        )
        assert float((ours - plain).norm() / plain.norm()) < 0.02, "rounding"
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


def counted_in_boxes(numbers: Tensor, prime: int) -> float:
    """How far elements are from uniform: chi-square over 16 boxes, or 16² of pairs [2, count]."""
    boxes = (numbers.long() + (prime - 1) // 2) * 16 // prime
    place = boxes[0] * 16 + boxes[1] if numbers.dim() == 2 else boxes
    cells = 16**2 if numbers.dim() == 2 else 16
    count = torch.bincount(place, minlength=cells).double()
    expected = len(place) / cells
    return float((count - expected).square().sum() / expected)


@pytest.mark.parametrize("what", ["columns", "model"])
def test_as_many_clients_as_may_collude_are_sent_uniform_numbers_and_one_more_knows_it_all(
    what: str,
) -> None:
    """T = 2: whatever the secret, pairs of shares are uniform over 256 boxes (a chi-square beyond
    400 comes once in 100 million trials). Three shares tell the secret."""
    built, net = build(settings(partitions=1, colluders=2), digits(), 0)
    assert isinstance(built, FedVS)
    prime, code = built.code.field.prime, built.code
    for scale in (0.0, 1.0):
        built.data.train.x.mul_(scale)
        sent = []
        for repeat in range(6):
            net.round = repeat  # other masks
            if what == "columns":
                segments = Segments(built.data.train.rows, 1)
                own = built.shared_columns(net, built.x, segments, None)
            else:
                own = built.shared_models(net, built.rounded(repeat) * int(scale))
            sent.append(own[0, :, :-1].flatten(1))  # [receivers, numbers]
        shares = torch.cat(sent, 1)
        for pair in ((0, 1), (2, 7), (5, 3)):
            assert counted_in_boxes(shares[list(pair)], prime) < 400
        onto = interpolation(code.field, code.alphas[:3], code.betas[:1])
        assert counted_in_boxes(code.field.matmul(onto, shares[:3])[0], prime) > 1e4


def test_the_mark_of_a_sharing_tells_nothing_of_what_is_shared() -> None:
    """A digest of the shares would: whoever holds T of them could check a guess of the rest."""
    marks = []
    for scale in (0.0, 1.0):
        built, net = build(settings(), digits(), 0)
        assert isinstance(built, FedVS)
        built.data.train.x.mul_(scale)
        segments = Segments(built.data.train.rows, 2)
        own = built.shared_columns(net, built.x, segments, None)
        marks.append(own[:, :, -1, 0])
        assert (marks[-1] == marks[-1][:, :1]).all()
        assert len(set(marks[-1][:, 0].tolist())) == 8
    assert torch.equal(*marks)


def test_who_is_sent_what() -> None:
    """The server: coded sums, and which shares a client has. A client: shares, the gradient of the
    mean, and which shares count."""
    rows = list(stacked(settings(), digits()).net.ledger.rows())
    for receiver, kinds in {
        "server": {"coded-embedding", "held"},
        "client3": {"data-share", "model-share", "gradient", "counted", "decision"},
    }.items():
        assert {kind for _, _, to, kind, _, _ in rows if to == receiver} == kinds


def falsified(inbox: Inbox, *clients: int) -> Inbox:
    raw = inbox.raw.clone()
    for n in clients:
        raw[0, n, 1, 2 + n] += 1 + n
    return dataclasses.replace(inbox, raw=raw)


def test_a_wrong_answer_is_named_and_the_sum_is_opened_without_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    built, net = build(settings(), digits(), 0)
    assert isinstance(built, FedVS)
    inbox, places = answers_to(built, net, torch.arange(5)), torch.arange(10)
    right, _, _ = built.opened(net, inbox, places)
    assert not built.remarks()
    for liar in range(8):
        mean, enough, _ = built.opened(net, falsified(inbox, liar), places)
        assert bool(enough)
        assert torch.equal(mean, right)
        assert f"client{liar}: its answer is wrong and is not used" in caplog.text
    assert built.remarks()[3].startswith("client3 gave wrong answers in 1 of 9 rounds")


@pytest.mark.parametrize("arrived", [6, 8])
def test_wrong_answers_that_cannot_be_traced_are_not_opened(arrived: int) -> None:
    """With one spare answer a wrong one is noticed, with three of them two wrong ones are."""
    built, net = build(settings(missing="error"), digits(), 0)
    assert isinstance(built, FedVS)
    liars = (2,) if arrived == 6 else (2, 5)
    inbox = falsified(answers_to(built, net, torch.arange(5)), *liars)
    inbox = inbox.only(torch.arange(8)[None] < arrived)
    with pytest.raises(WrongAnswers, match=r"at least one of the clients client0, .* to tell"):
        built.opened(net, inbox, torch.arange(10))


def test_without_spare_answers_a_wrong_one_is_not_noticed() -> None:
    """As the threat model says."""
    built, net = build(settings(), digits(), 0)
    assert isinstance(built, FedVS)
    inbox = answers_to(built, net, torch.arange(5)).only(torch.arange(8)[None] < 5)
    right, _, _ = built.opened(net, inbox, torch.arange(10))
    wrong, enough, _ = built.opened(net, falsified(inbox, 2), torch.arange(10))
    assert bool(enough)
    assert not torch.equal(wrong, right)


def test_spare_answers_are_waited_for() -> None:
    """Five of eight are needed; three clients are slow."""
    slow = {f"client{i}": 10.0 if i in (1, 4, 6) else 0.1 for i in range(8)}
    quick = stacked(settings(), digits(), delays=Delays(latency=slow))
    careful = stacked(settings(spare=1), digits(), delays=Delays(latency=slow))
    assert careful.seconds > quick.seconds
    for party, tensors in quick.weights.items():
        assert all(torch.equal(v, careful.weights[party][k]) for k, v in tensors.items())


def test_without_colluders_it_is_said_that_nothing_is_protected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    trained = stacked(settings(colluders=0, epochs=1), digits())
    assert "colluders = 0: shares have no masks and protect nothing" in caplog.text
    assert trained.algorithm.remarks()[0].startswith("colluders = 0: shares have no masks")
    assert "the masks of its shares come from the seed" in caplog.text
    caplog.clear()
    assert not stacked(settings(epochs=1), digits()).algorithm.remarks()
    assert "protect nothing: a client" not in caplog.text


def test_the_sharing_says_how_many_bytes_it_takes_and_how_far_it_is(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr("colonnade.algorithms.fedvs.CHUNK", 32)
    built, net = build(settings(epochs=1), digits(), 0)
    shown: list[str] = []
    net.watch = lambda round: shown.append(built.activity)
    drive(built.train(net))
    sent = sum(
        b for _, s, _, kind, _, b in net.ledger.rows() if (s, kind) == ("client0", "data-share")
    )
    assert f"client0: shares its columns: {sent / 1e6:.1f} MB to 7 others" in caplog.text
    bars = [text for text in shown if text]
    assert bars[0].startswith("sharing columns ──")
    assert len(bars) == built.total_rounds - built.training.usual_rounds > 3
    assert len(set(bars)) == len(bars)
    assert not built.activity


def test_answers_from_other_sharings_are_not_mixed() -> None:
    built, net = build(settings(missing="error"), digits(), 0)
    assert isinstance(built, FedVS)
    inbox = answers_to(built, net, torch.arange(4))
    inbox.raw[0, :4, -1, 0] += 1  # four clients have another model of somebody
    with pytest.raises(TooFewAnswers, match="K=2, T=1 need 5 of 8 clients, 4 answered"):
        built.opened(net, inbox, torch.arange(8), True)


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
        (
            "data_bits",
            30,
            r"data_bits = 30: the columns of client\d have .* take fewer bits, or clip the columns",
        ),
        ("clip", 0, "clip = 0: expected a number above 0"),
        ("prime", 257, r"data_bits = 7: .* take fewer bits, a larger prime, or clip the columns"),
        ("prime", 7, "prime = 7: too small for 8 clients; expected at least 11"),
        ("spare", 4, "spare = 4: of 8 clients 5 must answer, so that at most 3 answers are spare"),
    ],
)
def test_settings_that_cannot_work_are_refused(key: str, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        stacked(settings(**{key: value}), digits())


def test_more_partitions_than_rows_are_refused() -> None:
    with pytest.raises(InputError, match="partitions = 4: there are only 3 training rows"):
        settings(partitions=4, colluders=0).check(
            dataclasses.replace(Task.of(digits(), 0), rows={"train": 3})
        )


def test_a_sum_that_could_leave_the_field_is_found_before_it_does() -> None:
    words = r"an embedding of client\d may reach .* take fewer bits, clip .* lower learning rate"
    with pytest.raises(Overflow, match=words):
        stacked(settings(model_bits=20), digits())


def with_a_far_value(data: VerticalData, value: float = 300.0) -> VerticalData:
    """One test row of client2 has a value far beyond those of the training."""
    x = [columns.clone() for columns in data.test.x]
    x[2][5, 3] = value
    return dataclasses.replace(data, test=dataclasses.replace(data.test, x=tuple(x)))


def test_a_new_row_that_does_not_fit_is_clipped_to_what_was_trained_with_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = digits()
    plain, far = (stacked(settings(), d) for d in (data, with_a_far_value(data)))
    assert isinstance(far.algorithm, FedVS)
    assert not plain.algorithm.remarks()
    rows = len(data.test)
    (remark,) = far.algorithm.remarks()
    assert remark.startswith(f"client2: 1 of {rows} rows that were predicted last")
    assert "client2: rows hold values beyond what fits into the field" in caplog.text
    # As if the row held the largest value that the client trained with.
    largest = max(float(part.x[2][:, 3].abs().max()) for part in (data.train, data.validation))
    assert far.metrics == stacked(settings(), with_a_far_value(data, largest)).metrics


def test_no_sum_leaves_the_field_by_rounding() -> None:
    """Just below the limit, rounding must not carry an embedding over it."""
    built, _ = build(settings(data_bits=1, model_bits=1), digits(), 0)
    assert isinstance(built, FedVS)
    field = built.field
    part = field.sums.limit / field.code.clients
    largest = torch.full((8, field.widest), 3.0)
    weights = torch.full((8, 64, field.widest), part / (3.0 * field.widest) * (1 - 1e-6))
    with pytest.raises(Overflow):
        field.check_models(weights, largest, built.names)


def test_an_answer_from_other_sharings_is_told_once_per_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    built, net = build(settings(), digits(), 0)
    assert isinstance(built, FedVS)
    inbox = answers_to(built, net, torch.arange(4))
    inbox.raw[0, 3, -1, 0] += 1
    for _ in range(3):
        built.opened(net, inbox, torch.arange(8))
    told = [r.message for r in caplog.records if "from other sharings" in r.message]
    assert told == [
        "client3: its answer is from other sharings than those of most clients and is not used: it "
        "was away when columns or models were shared, or it marks its answers wrongly"
    ]


@given(st.data(), st.integers(3, 9))
def test_whatever_shares_got_lost_a_sum_over_too_few_clients_is_not_opened(
    data: st.DataObject, clients: int
) -> None:
    """T = 1: a client and the server together would know the embedding of the other one in a sum
    over two."""
    method = settings(partitions=1)
    shares = Shares(method, LagrangeCode(clients, 1, 1), [2] * clients)
    row = st.lists(st.integers(0, 1), min_size=clients, max_size=clients)
    held = torch.tensor(data.draw(st.lists(row, min_size=clients, max_size=clients))).int()
    told = shares.before_prediction(held, torch.zeros(clients))
    inbox = Inbox(told[None], torch.ones(1, clients, dtype=torch.bool), everything=True)
    among = shares.counted(inbox)[0, 0]
    assert int(among.sum()) == 0 or int(among.sum()) >= 3
    able = shares.able(held, among.expand(clients, -1))
    assert int(able.sum()) >= 3 or not among.any()
    # Nor do clients answer a server that runs other software.
    one = torch.zeros(clients, clients, dtype=torch.int32)
    one[:, 0] = 1
    assert not shares.able(torch.ones_like(one), one).any()
