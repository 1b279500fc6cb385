"""Noise as algorithms meet it: what leaves, how often, and until when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from examples.own_algorithm.average import Average

from colonnade import algorithms
from colonnade.algorithms import built_in, registered
from colonnade.common.processes import one_thread
from colonnade.data import from_arrays
from colonnade.errors import InputError
from colonnade.experiments.run import build, drive
from colonnade.learning.algorithm import Algorithm
from colonnade.learning.checkpoint import Checkpoint
from colonnade.learning.settings import Settings
from colonnade.learning.task import Batch, Task
from colonnade.network import StackedNetwork
from colonnade.network.channel import Channel
from colonnade.network.faults import Client
from colonnade.privacy.spec import Noise
from colonnade.testing import difference, projected, stacked
from colonnade.testing.kit import Outage, digits, same_result

BRIEF: dict[str, dict[str, Any]] = {
    "splitnn": {"missing": "wait"},
    "mags": {"depth": 1, "gossip": 1, "dropout": 0.2},
    "dvfl": {"client_epochs": 4, "aggregator_epochs": 4, "period": 2, "aggregators": 2},
    "fedonce": {"client_epochs": 2},
    "vfb2": {},
    "vim": {"batch": 64, "tau": 2},
    "fdml": {},
    "average": {"width": 8},
}
SENDERS = [*BRIEF]


@pytest.fixture(autouse=True)
def _own_algorithm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Other tests may have made an algorithm of this name known, from another folder."""
    for known in ("_registered", "_plugins"):
        monkeypatch.setattr(algorithms, known, {})
    with registered(Average), one_thread():
        yield


def settings(name: str, noise: Noise | None, epochs: int = 2, **more: Any) -> Settings:
    kind = {**built_in(), "average": Average}[name]
    keys = {**BRIEF.get(name, {}), "epochs": epochs, **more}
    return kind.settings(name=name, algorithm=name, noise=noise, **keys)


def facts(algorithm: Algorithm) -> dict[str, Any]:
    assert algorithm.releases is not None
    return algorithm.releases.facts()


def test_every_algorithm_that_sends_encodings_takes_noise_and_no_other_does() -> None:
    task = Task.of(digits(300), 0)
    for name, kind in built_in().items():
        chosen = settings(name, Noise(clip=1.0, sigma=1.0))
        if name in BRIEF:
            assert kind(chosen, task).releases is not None
        else:
            why = f"not supported with {name}" if kind.side_by_side else f"{name} sends none"
            with pytest.raises(InputError, match=f"noise: .*{why}.* leave it out"):
                kind(chosen, task)


@pytest.mark.parametrize("name", SENDERS)
def test_noise_is_the_same_on_both_engines(name: str) -> None:
    fault = Client(name="client", down=0.3, up=0.5, when="always")
    method = settings(name, Noise(clip=1.0, epsilon=500.0))
    one, each = (
        stacked(method, digits(300), fault=fault),
        projected(method, digits(300), fault=fault),
    )
    assert difference(one, each) < 1e-6
    same_result(one, each)
    assert all(facts(t.algorithm) == facts(one.algorithm) for t in each.values())


@pytest.mark.parametrize("name", SENDERS)
def test_rows_leave_as_often_as_planned(name: str) -> None:
    """So noise for a given epsilon can be computed beforehand."""
    trained = stacked(settings(name, Noise(clip=1.0, epsilon=5.0), 3, patience=9), digits(300))
    releases = trained.algorithm.releases
    assert releases is not None
    planned = trained.algorithm.planned_releases(3)
    assert {part: releases.left.times(part) for part in planned} == planned
    assert releases.facts()["epsilon"] == pytest.approx(5.0, rel=1e-6)


def test_releases_are_counted_as_the_papers_send() -> None:
    task = Task.of(digits(300), 0)
    plans = {
        name: built_in()[name](settings(name, None), task).planned_releases(7)
        for name in ("splitnn", "mags", "dvfl", "fedonce")
    }
    every_epoch = {"train": 7, "validation": 7, "test": 1}
    assert plans["splitnn"] == plans["mags"] == every_epoch
    # DVFL: two of four client epochs to the aggregators, then once to the owner.
    assert plans["dvfl"] == {"train": 3, "validation": 1, "test": 1}
    assert plans["fedonce"] == {"train": 1, "validation": 1, "test": 1}


@pytest.mark.parametrize("name", SENDERS)
def test_nothing_leaves_a_column_holder_but_clipped_and_noised(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without noise what leaves is short; with it, it is not what is left without."""
    sent: list[torch.Tensor] = []
    exchange = StackedNetwork._exchange

    def watched(self: Any, parcel: Any, passage: Any) -> Any:
        if parcel.channel.gate is not None:
            sent.append(parcel.value.detach().clone())
        return exchange(self, parcel, passage)

    monkeypatch.setattr(StackedNetwork, "_exchange", watched)
    stacked(settings(name, Noise(clip=0.25, sigma=0.0), 1), digits(200))
    assert sent
    assert max(float(value.norm(dim=-1).max()) for value in sent) <= 0.25
    short = sent[0]
    sent.clear()
    stacked(settings(name, Noise(clip=0.25, sigma=3.0), 1), digits(200))
    noise = (sent[0] - short).flatten()  # the first message, before anything was learnt from it
    assert float(noise.std()) == pytest.approx(3.0, rel=0.1)


def test_parties_of_unequal_widths_are_noised_alike_on_both_engines() -> None:
    x = torch.randn(120, 170, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] + x[:, 40] + x[:, 169] > 0).long()
    columns = [list(range(30)), list(range(30, 150)), list(range(150, 170))]
    data = from_arrays(x.numpy(), y.numpy(), columns=columns)
    method = settings("splitnn", Noise(clip=1.0, sigma=0.3))
    assert difference(stacked(method, data), projected(method, data)) < 1e-6


def test_a_clients_gradient_passes_through_the_clipping() -> None:
    """Without noise, one step of split learning is one step on the joined, clipped network."""
    method = settings(
        "splitnn", Noise(clip=0.2, sigma=0.0), 1, batch=10_000, optimizer="sgd", lr=0.1
    )
    algorithm, net = build(method, digits(200), 0)
    before = {k: v.clone() for k, v in algorithm.tensors(net)["client1"].items()}
    inputs = algorithm.data.train
    models = [dict(algorithm.tensors(net)[f"client{i}"]) for i in range(4)]
    client = {k: v.clone().requires_grad_() for k, v in models[1].items()}
    parts = []
    for i, model in enumerate(models):
        w = client if i == 1 else model
        h = torch.relu(
            torch.nn.functional.leaky_relu(
                inputs.x[i] @ w["encoder.0.0.weight"].T + w["encoder.0.0.bias"]
            )
            @ w["encoder.0.2.weight"].T
            + w["encoder.0.2.bias"]
        )
        parts.append(h * (0.2 / h.norm(dim=-1, keepdim=True)).clamp(max=1.0))
    head = algorithm.tensors(net)["server"]
    hidden = torch.nn.functional.leaky_relu(
        torch.cat(parts, 1) @ head["head.0.weight"].T + head["head.0.bias"]
    )
    logits = hidden @ head["head.2.weight"].T + head["head.2.bias"]
    loss = torch.nn.functional.cross_entropy(logits, inputs.y)
    wanted = dict(zip(client, torch.autograd.grad(loss, list(client.values())), strict=True))
    drive(algorithm.train(net))
    for name, value in algorithm.tensors(net)["client1"].items():
        assert torch.allclose(before[name] - value, 0.1 * wanted[name], atol=1e-6), name


@pytest.mark.parametrize("name", ["splitnn", "mags", "average"])
def test_a_budget_that_is_used_up_ends_the_training_with_the_best_model(name: str) -> None:
    noise = Noise(clip=1.0, epsilon=2000.0, releases=3)
    ended = stacked(settings(name, noise, epochs=9, patience=9), digits(300))
    releases = ended.algorithm.releases
    assert releases is not None
    assert releases.facts()["releases"] == 3
    assert releases.facts()["epsilon"] == pytest.approx(2000.0)
    (note,) = releases.notes()
    assert "the privacy budget of the training rows is used up" in note
    assert "the best model so far" in note
    planned = stacked(settings(name, Noise(clip=1.0, epsilon=2000.0), 3, patience=9), digits(300))
    for party, tensors in ended.weights.items():  # as if three epochs had been asked for
        assert all(torch.equal(v, planned.weights[party][key]) for key, v in tensors.items())


def test_training_that_is_done_again_cannot_exceed_the_budget() -> None:
    """Rows that have left as often as their budget allows do not leave any more."""
    algorithm, net = build(settings("splitnn", Noise(clip=1.0, epsilon=9.0), 3), digits(300), 0)
    drive(algorithm.train(net))
    messages = net.ledger.total("training")[0]
    assert algorithm.releases is not None
    assert algorithm.releases.left.times("train") == 3
    before = algorithm.releases.left.counts["train"].clone()
    again = net.within("training")
    embedding: Channel = algorithm.embedding  # pyright: ignore[reportAttributeAccessIssue]
    inbox = drive(again.send(torch.zeros(4, 64, embedding.widest), embedding, 64))
    assert not inbox.any.any()
    assert net.ledger.total("training")[0] == messages
    assert torch.equal(algorithm.releases.left.counts["train"], before)


def test_a_budget_too_small_for_what_is_sent_in_any_case_is_refused() -> None:
    with pytest.raises(InputError, match=r"noise\.releases = 2: but dvfl sends .* 3 times"):
        build(settings("dvfl", Noise(clip=1.0, epsilon=1.0, releases=2)), digits(300), 0)


@pytest.mark.parametrize("name", ["splitnn", "dvfl"])
def test_parties_that_start_again_draw_the_same_noise_and_keep_their_count(
    name: str, tmp_path: Path
) -> None:
    method = settings(name, Noise(clip=1.0, sigma=0.3), 3)
    whole = stacked(method, digits(300))
    algorithm, net = build(method, digits(300), 0)
    kept, last = Checkpoint(algorithm, tmp_path), whole.net.rounds_begun // 2

    def watch(round: int) -> None:
        if (restart := net.restart_round(round)) == round:
            kept.keep(net, restart, {})
            if round >= last:
                raise Outage

    net.watch = watch
    with pytest.raises(Outage):
        drive(algorithm.train(net))
    again, new = build(method, digits(300), 0)
    assert Checkpoint(again, tmp_path).resume(new) is not None
    drive(again.train(new))
    drive(again.evaluate(new))
    for party, tensors in again.tensors(new).items():
        assert all(torch.equal(v, whole.weights[party][key]) for key, v in tensors.items())
    assert facts(again) == facts(whole.algorithm)


def test_a_row_is_counted_by_itself_however_few_others_left() -> None:
    """A party that was away, or does rounds again, sends parts of epochs."""
    algorithm, net = build(settings("splitnn", Noise(clip=1.0, sigma=1.0)), digits(300), 0)
    embedding: Channel = algorithm.embedding  # pyright: ignore[reportAttributeAccessIssue]
    for rows in ([0, 1], [1, 2], [1, 3]):
        net.item = Batch(torch.tensor(rows))
        drive(net.send(torch.zeros(4, 2, embedding.widest), embedding, 2))
    assert algorithm.releases is not None
    assert algorithm.releases.left.counts["train"][:5].tolist() == [1, 3, 1, 1, 0]
    assert facts(algorithm)["releases"] == 3
