"""Decoupled training: what is sent, what is learnt, and what faults leave alone."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import colonnade
from colonnade.algorithms.dvfl import DVFL, DVFLSettings, Replay
from colonnade.algorithms.splitnn import SplitNNSettings
from colonnade.data import DataSpec, VerticalData, load
from colonnade.errors import InputError
from colonnade.experiments.run import build, drive
from colonnade.learning.algorithm import Algorithm
from colonnade.learning.checkpoint import Checkpoint
from colonnade.learning.training import Point
from colonnade.network import Network
from colonnade.network.faults import Aggregator, Client, Connection
from colonnade.testing import Trained, difference, projected, run_projected, stacked


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


@pytest.mark.parametrize("period", [1, 5, 10, 20])
def test_each_client_sends_what_the_papers_formula_says_to_the_byte(
    digits: VerticalData, period: int
) -> None:
    """Appendix F.1: aggregators × ⌊epochs / period⌋ × rows × width × 32 bits."""
    trained = stacked(dvfl(period=period, client_epochs=20, aggregator_epochs=1), digits)
    sent = dict.fromkeys(digits.clients, 0)
    for phase, sender, _, _, _, size in trained.net.ledger.rows():
        if phase == "training" and sender in sent:
            sent[sender] += size
    assert set(sent.values()) == {2 * (20 // period) * len(digits.train) * 16 * 4}


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
    algorithm, net = build(dvfl(), digits, seed=0)
    fresh = {p: {k: v.clone() for k, v in t.items()} for p, t in algorithm.tensors(net).items()}
    calm, trained = stacked(dvfl(), digits), stacked(dvfl(), digits, fault=gone)
    for party, tensors in trained.weights.items():
        if party != "owner":
            same = fresh if party.startswith("aggregator") else calm.weights
            assert all(torch.equal(value, same[party][key]) for key, value in tensors.items())


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


def test_aggregators_learn_in_every_round_between_aligned_batches_from_what_they_last_read() -> (
    None
):
    data = load(DataSpec(dataset="digits", labelled=64), seed=0)
    algorithm, net = build(dvfl(aggregator_epochs=4), data, seed=0)
    drive(algorithm.train(net))
    local = algorithm.local_batches  # pyright: ignore[reportAttributeAccessIssue]
    first = next(i for i in range(len(local)) if local[i].aligned)
    steps = algorithm.stacks["compressor"][1].optimizers[0].steps
    assert steps.tolist() == [len(local) - first] * 2


def test_a_replay_keeps_so_many_batches_and_drops_what_a_dead_aggregator_would_have_read() -> None:
    replay = Replay(most=2, rows=3, width=1)
    replay.members = 2
    for k in range(4):
        batch = torch.full((2, 3, 1), float(k))
        replay.append(batch, torch.tensor([True, k == 1]))
    assert replay.filled.tolist() == [True, True]
    assert [replay.read(t)[:, 0, 0].tolist() for t in range(3)] == [[2, 1], [3, 1], [2, 1]]
    assert replay.read(-1)[:, 0, 0].tolist() == [3, 1]  # the newest
    nothing = Replay(most=0, rows=3, width=1)
    nothing.members = 1
    nothing.append(torch.ones(1, 3, 1), torch.tensor([True]))
    assert not nothing.filled.any()


def test_few_labels_and_aggregators_that_fail_leave_whole_batches_in_the_replay() -> None:
    data = load(DataSpec(dataset="digits", rows=600, labelled=100), seed=2)
    fault = Aggregator(name="aggregators", down=0.3, up=0.5)
    algorithm, net = build(dvfl(), data, seed=2, fault=fault)
    drive(algorithm.encode(net))  # pyright: ignore[reportAttributeAccessIssue]
    kept = algorithm.replay.kept  # pyright: ignore[reportAttributeAccessIssue]
    assert {len(batch) for batches in kept for batch in batches} == {64}
    drive(algorithm.compress(net))  # pyright: ignore[reportAttributeAccessIssue]
    assert not any(kept)
    trained = stacked(dvfl(), data, seed=2, fault=fault)
    assert difference(trained, projected(dvfl(), data, seed=2, fault=fault)) < 1e-6


def test_a_centred_owner_takes_the_mean_of_what_an_aggregator_sent_when_it_is_away(
    digits: VerticalData,
) -> None:
    algorithm, net = build(dvfl(aggregators=2), digits, seed=0)
    drive(algorithm.train(net))
    train = algorithm.collection.train.value[0]  # pyright: ignore[reportAttributeAccessIssue]
    codes, came = train[:, :-2], train[:, -2:]
    assert codes.mean(0).abs().max() < 1e-5
    assert float(codes.square().mean()) == pytest.approx(1, abs=1e-4)
    assert (came == 1).all()
    gone = Aggregator(name="gone", down=1.0, up=0.0, when="inference")
    algorithm, net = build(dvfl(aggregators=2), digits, seed=0, fault=gone)
    drive(algorithm.train(net))
    x = drive(algorithm.collection.collect(net.within("inference"), algorithm.data.test))  # pyright: ignore[reportAttributeAccessIssue]
    assert (algorithm.supervised.centre.predict(x) == 0).all()  # pyright: ignore[reportAttributeAccessIssue]


def test_bytes_count_what_the_owner_collects(tmp_path: Path) -> None:
    table = {
        "name": "bytes",
        "data": {"dataset": "digits", "rows": 200},
        "methods": [{"algorithm": "dvfl", "aggregators": 0, "client_epochs": 1, "epochs": 1}],
    }
    result = colonnade.run(table, out=tmp_path).results[0]
    assert result.cost["bytes"] == 180 * 64 * 4 + 4 * 3 * 4  # and a decision to each client


def test_the_last_thing_that_aggregators_learn_from_is_the_newest_they_read(
    digits: VerticalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ending with encodings of untrained encoders spoils them: 20 steps undid 30,000."""
    read: list[int] = []
    newest = Replay.read
    monkeypatch.setattr(Replay, "read", lambda self, t: (read.append(t), newest(self, t))[1])
    stacked(dvfl(), digits)
    assert read[-1] == -1
    assert read == sorted(read)


def test_without_aggregators_the_owner_has_their_layers_and_is_sent_the_clients_encodings(
    digits: VerticalData,
) -> None:
    whole, split = (stacked(dvfl(aggregators=n, encoder=[30, 20]), digits) for n in (0, 1))
    layers = [value.shape for value in whole.weights["owner"].values() if value.dim() == 2]
    assert layers == [(50, 80), (40, 50), (40, 40), (40, 40), (10, 40)]
    compressor = [
        value.shape
        for name, value in split.weights["aggregator0"].items()
        if name.startswith("compressor") and value.dim() == 2
    ]
    assert compressor == layers[:2]
    assert {row[2] for row in whole.net.ledger.rows() if row[3] == "encoding"} == {"owner"}


def test_epochs_of_the_owner_go_by_either_name(digits: VerticalData) -> None:
    one, other = stacked(dvfl(), digits), stacked(dvfl(epochs=None, owner_epochs=2), digits)
    for name, value in one.weights["owner"].items():
        assert torch.equal(value, other.weights["owner"][name])


def test_own_encoders_and_decoders_are_used(digits: VerticalData) -> None:
    own = {
        "encoder": lambda width: nn.Sequential(nn.Linear(width, 7), nn.Tanh()),
        "decoder": lambda code, width: nn.Sequential(nn.Linear(code, 5), nn.Linear(5, width)),
    }
    trained = stacked(dvfl(**own), digits)
    shapes = {name: tuple(v.shape) for name, v in trained.weights["client0"].items()}
    assert shapes["encoder.0.weight"] == (7, 16)
    assert shapes["decoder.1.weight"] == (16, 5)


class Outage(Exception):
    """The owner's process ends here."""


def keeping(algorithm: Algorithm, net: Network, folder: Path) -> Checkpoint:
    """A checkpoint at the beginning of each round, as a real party writes them."""
    kept = Checkpoint(algorithm, folder)
    net.watch = lambda round: kept.keep(net, net.restart_round(round), {})
    return kept


@pytest.mark.parametrize("epochs_before", [1, 3, 6])
def test_an_owner_that_restarts_goes_on_with_what_it_has_and_asks_nobody_again(
    digits: VerticalData, tmp_path: Path, epochs_before: int
) -> None:
    whole = stacked(dvfl(epochs=6), digits)
    algorithm, net = build(dvfl(epochs=6), digits, seed=0)
    kept = keeping(algorithm, net, tmp_path)

    def fail(point: Point) -> None:
        if point.epoch > epochs_before:
            raise Outage

    algorithm.training.watch = fail
    with pytest.raises(Outage) if epochs_before < 6 else nullcontext():
        drive(algorithm.train(net))
        kept.keep(net, net.rounds_begun, {})
    again, net = build(dvfl(epochs=6), digits, seed=0)
    assert Checkpoint(again, tmp_path).resume(net) is not None
    points: list[Point] = []
    again.training.watch = points.append
    drive(again.train(net))
    assert [point.epoch for point in points] == list(range(epochs_before + 1, 7))
    assert {kind for kind, _, _ in net.ledger.kinds()} <= {"decision"}
    assert net.round == whole.net.round
    for party, tensors in again.tensors(net).items():
        assert all(torch.equal(v, whole.weights[party][key]) for key, v in tensors.items())


def test_every_party_of_a_federation_may_restart_while_the_owner_learns(
    digits: VerticalData, tmp_path: Path
) -> None:
    whole = stacked(dvfl(epochs=4), digits)
    world = whole.algorithm.world()

    def begin(net: Network) -> Algorithm:
        algorithm = DVFL(dvfl(epochs=4), whole.algorithm.task)
        algorithm.join(net, digits)
        return algorithm

    def until_the_second_epoch(net: Network) -> Coroutine[Any, Any, None]:
        algorithm = begin(net)
        keeping(algorithm, net, tmp_path)
        algorithm.training.batches = replace(algorithm.training.batches, epochs=2)
        return algorithm.train(net)

    async def to_the_end(net: Network) -> Trained:
        algorithm = begin(net)
        assert Checkpoint(algorithm, tmp_path).resume(net) is not None
        await algorithm.train(net)
        return Trained(algorithm, net, await algorithm.evaluate(net), net.now)

    run_projected(world, until_the_second_epoch)
    each = run_projected(world, to_the_end)
    assert difference(whole, each) < 1e-6
    assert each["owner"].metrics == pytest.approx(whole.metrics, abs=1e-6)


def test_the_state_of_another_training_or_a_damaged_one_is_refused(
    digits: VerticalData, tmp_path: Path
) -> None:
    algorithm, net = build(dvfl(epochs=1), digits, seed=0)
    kept = keeping(algorithm, net, tmp_path)
    drive(algorithm.train(net))
    other, other_net = build(dvfl(epochs=1), digits, seed=1)
    with pytest.raises(InputError, match="another training"):
        Checkpoint(other, tmp_path).resume(other_net)
    journal = next(tmp_path.glob("owner.collected.*.journal"))
    journal.write_bytes(journal.read_bytes()[:100])
    with pytest.raises(InputError, match="is shorter than its checkpoint says"):
        kept.resume(net)
    file = next(tmp_path.glob("owner.checkpoint*"))
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match="not a checkpoint"):
        kept.resume(net)


def test_without_a_checkpoint_there_is_nothing_to_resume(
    digits: VerticalData, tmp_path: Path
) -> None:
    algorithm, net = build(dvfl(), digits, seed=0)
    assert Checkpoint(algorithm, tmp_path).resume(net) is None


def test_an_owner_that_practised_without_some_encodings_misses_them_less() -> None:
    data = load(DataSpec(dataset="digits"), seed=0)
    long = {"client_epochs": 20, "aggregator_epochs": 30, "epochs": 80, "aggregators": 3}
    half = Aggregator(name="half", down=0.5, up=0.5, when="inference")
    accuracy = {
        key: stacked(dvfl(**long, **more, optimizer="adam", lr=3e-3), data, fault=half).metrics
        for key, more in {
            "plain": {},
            "practised": {"dropout": 0.4},
            "learnt": {"dropout": 0.4, "imputation": "learnt"},
        }.items()
    }
    plain = accuracy["plain"]["test_accuracy"]
    assert accuracy["practised"]["test_accuracy"] > plain + 0.03
    assert accuracy["learnt"]["test_accuracy"] > plain + 0.03


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"aggregators": -1}, "aggregators"),
        ({"aggregator_width": 0}, "aggregator_width"),
        ({"owner_epochs": 3}, "but epochs = 2"),
        ({"owner_epochs": 0, "epochs": None}, "owner_epochs"),
        ({"decoder": [0]}, "decoder"),
        ({"encoder": [float("inf")]}, "encoder"),
        ({"dropout": 1.0}, "dropout"),
        ({"imputation": "learnt"}, "needs dropout"),
        ({"encoder": [1.5]}, "encoder"),
        ({"period": 5}, "send nothing"),
        ({"replay": -1}, "replay"),
        ({"lr": {"clients": 0.1}}, "a rate for each of clients, aggregators, owner"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(
    digits: VerticalData, bad: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        build(dvfl(**bad), digits, seed=0)


def test_under_crashes_decoupled_training_stays_and_skipping_falls_behind() -> None:
    """The direction of the paper's table 1, on digits: clients up a quarter of the time."""
    data = load(DataSpec(dataset="digits"), seed=0)
    clients = Client(name="clients", down=0.3, up=0.1)
    long = {"client_epochs": 40, "aggregator_epochs": 60, "epochs": 60, "optimizer": "adam"}
    rates = {"clients": 3e-3, "aggregators": 3e-3, "owner": 1e-3}
    decoupled = stacked(dvfl(**long, lr=rates), data, fault=clients).metrics["test_accuracy"]
    skip = SplitNNSettings(name="s", algorithm="splitnn", missing="skip", epochs=60)
    skipping = stacked(skip, data, fault=clients).metrics["test_accuracy"]
    assert decoupled > 0.9
    assert decoupled > skipping + 0.3


def test_with_few_labels_the_rows_that_only_one_client_has_help() -> None:
    """Why DVFL does well in the paper's table 3: the same labelled rows with and without others."""
    data = load(DataSpec(dataset="digits", labelled=64), seed=0)
    rates = {"clients": 3e-3, "aggregators": 3e-3, "owner": 1e-3}
    long = {"client_epochs": 40, "aggregator_epochs": 60, "epochs": 160, "patience": 160}
    chosen = dvfl(**long, optimizer="adam", lr=rates)
    with_others = stacked(chosen, data).metrics["test_accuracy"]
    alone = stacked(chosen, replace(data, extra=())).metrics["test_accuracy"]
    assert with_others > alone + 0.02
