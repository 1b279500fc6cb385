"""MAGS: names of methods, what is sent, what faults and delays do to answers, and its theory."""

from __future__ import annotations

import copy
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from colonnade.algorithms.answers import Answers, metrics
from colonnade.algorithms.mags import MAGS, MAGSSettings
from colonnade.algorithms.mags_models import drawn, narrowed
from colonnade.data import DataSpec, VerticalData, from_arrays, load
from colonnade.errors import InputError
from colonnade.experiments.run import build, drive, per_prediction
from colonnade.learning.goal import goal_of
from colonnade.learning.task import Task
from colonnade.network import Delays, Fault, StackedNetwork, Topology
from colonnade.network.faults import Catastrophe, Client, Communication, Device
from colonnade.testing import Trained, stacked

FULL, GRID, RING = Topology("complete"), Topology("grid"), Topology("ring")


def mags(**more: Any) -> MAGSSettings:
    return MAGSSettings(**{"name": "m", "algorithm": "mags", "epochs": 2, "lr": 3e-3, **more})


@pytest.fixture(scope="module")
def digits() -> VerticalData:
    return load(DataSpec(dataset="digits", parties=16, split="patches"), seed=0)


@pytest.fixture(scope="module")
def few(digits: VerticalData) -> VerticalData:
    return load(DataSpec(dataset="digits", parties=16, split="patches", rows=200), seed=0)


@pytest.fixture(scope="module")
def trained(digits: VerticalData) -> Trained:
    return stacked(mags(method="MVFL", epochs=30), digits)


def made(settings: MAGSSettings, data: VerticalData, **facts: Any) -> tuple[MAGS, StackedNetwork]:
    algorithm, net = build(settings, data, seed=0, **facts)
    return cast(MAGS, algorithm), net


def other(trained: Trained, **facts: Any) -> tuple[MAGS, StackedNetwork]:
    """The same models with other settings or another world."""
    old = cast(MAGS, trained.algorithm)
    keys = {key: facts.pop(key) for key in list(facts) if hasattr(old.set, key)}
    algorithm = copy.copy(old)
    algorithm.set = msgspec.structs.replace(old.set, **keys)
    return algorithm, StackedNetwork(old.world(**facts))


def answers(trained: Trained, **facts: Any) -> list[Answers]:
    """To questions about the test rows, batch by batch."""
    algorithm, net = other(trained, **facts)
    return drive(algorithm.ask(net.within("inference"), algorithm.data.test))


def measured(trained: Trained, **facts: Any) -> dict[str, float]:
    algorithm = cast(MAGS, trained.algorithm)
    goal, y = algorithm.task.goal, algorithm.data.test.y
    return metrics(answers(trained, **facts), y, algorithm.prior, goal)[0]


# -- names and sizes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "aggregators", "gossip", "dropout", "kind"),
    [
        ("VFL", 1, 0, 0.0, "communication"),
        ("PD-VFL", 1, 0, 0.3, "party"),
        ("MVFL", "all", 0, 0.0, "communication"),
        ("4-MVFL-G2", 4, 2, 0.0, "communication"),
        ("CD-4-MVFL-G2", 4, 2, 0.3, "communication"),
        ("CD-MVFL-G4", "all", 4, 0.3, "communication"),
        ("PD-MVFL-G4", "all", 4, 0.3, "party"),
        ("MVFL-G10", "all", 10, 0.0, "communication"),
    ],
)
def test_the_papers_names_say_what_a_method_does(
    few: VerticalData, method: str, aggregators: int | str, gossip: int, dropout: float, kind: str
) -> None:
    algorithm, _ = made(mags(method=method), few)
    s = algorithm.set
    assert (s.aggregators, s.gossip, s.dropout, s.dropout_kind) == (
        aggregators,
        gossip,
        dropout,
        kind,
    )
    assert len(algorithm.aggregators) == (16 if aggregators == "all" else aggregators)
    assert s.resolved() == s


def test_a_name_leaves_free_what_it_does_not_say() -> None:
    resolved = mags(method="PD-MVFL", dropout=0.5, depth=1, imputation="mean").resolved()
    assert (resolved.dropout, resolved.depth, resolved.imputation) == (0.5, 1, "mean")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"method": "mvfl"}, r"method = 'mvfl': expected a name such as VFL"),
        ({"method": "4-VFL"}, "method = '4-VFL'"),
        ({"method": "MVFL-G"}, "method = 'MVFL-G'"),
        ({"method": "MVFL-4"}, "method = 'MVFL-4'"),
        ({"method": "PD-CD-MVFL"}, "method = 'PD-CD-MVFL'"),
        ({"method": "CD-"}, "method = 'CD-'"),
        ({"method": ""}, "method = ''"),
        ({"method": "0-MVFL"}, "method = '0-MVFL'"),
        ({"depth": 1, "head": [32]}, "depth = 1"),
        ({"deadline": float("inf")}, "deadline = inf"),
        ({"method": "17-MVFL"}, "17.*1 to 16"),
        ({"method": "MVFL-G4", "gossip": 2}, "gossip = 2: but method = 'MVFL-G4' means 4"),
        ({"method": "MVFL", "gossip": 2}, "gossip = 2: but method = 'MVFL' means 0"),
        ({"method": "VFL", "aggregators": 4}, "aggregators = 4: but method = 'VFL' means 1"),
        ({"method": "MVFL", "aggregators": 4}, "aggregators = 4: but method = 'MVFL' means 'all'"),
        ({"method": "MVFL", "dropout": 0.3}, "dropout = 0.3: but method = 'MVFL' means 0"),
        ({"method": "CD-MVFL", "dropout_kind": "party"}, "dropout_kind = 'party'"),
        ({"aggregators": 0}, "aggregators = 0: expected 1 to 16"),
        ({"aggregators": 17}, "aggregators = 17: expected 1 to 16"),
        ({"gossip": -1}, "gossip = -1"),
        ({"depth": -1}, "depth = -1"),
        ({"dropout": 2.0}, "dropout = 2"),
        ({"dropout": float("nan")}, "dropout = nan"),
        ({"deadline": 0.0}, "deadline = 0"),
        ({"deadline": float("nan")}, "deadline = nan"),
        ({"encoder_epochs": 0, "objective": "simclr"}, "encoder_epochs = 0"),
        ({"depth": 1, "objective": "autoencoder"}, "depth = 1: but objective"),
        ({"depth": 1, "head": lambda width, classes: torch.nn.Linear(width, classes)}, "depth"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_contradictions_and_nonsense_are_refused_by_name(
    few: VerticalData, bad: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        build(mags(**bad), few, seed=0)


@pytest.mark.parametrize(
    ("devices", "encoder", "head"),
    [
        (4, (196, 64, 16), (64, 64, 10)),
        (16, (49, 16, 4), (64, 64, 10)),
        (49, (16, 4, 2), (98, 98, 10)),
    ],
)
def test_layers_are_as_wide_as_the_papers_on_images_of_28_pixels(
    devices: int, encoder: tuple[int, ...], head: tuple[int, ...]
) -> None:
    """Appendix F.3."""
    x, y = np.random.default_rng(0).random((20, 784)), np.arange(20) % 10
    algorithm, _ = made(mags(), from_arrays(x, y, parties=devices))
    for name, widths in (("encoder", encoder), ("head", head)):
        stack = algorithm.stacks[name][1]
        assert stack.members == devices
        for i in range(devices):
            weights = [v for k, v in stack.member_state(i).items() if k.endswith("weight")]
            assert [tuple(w.shape[::-1]) for w in weights] == list(pairwise(widths))


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_deep_mvfl_has_as_many_parameters_as_mvfl(few: VerticalData, depth: int) -> None:
    """Appendix D."""

    def count(**more: Any) -> dict[str, int]:
        algorithm, net = made(mags(**more), few)
        tensors = algorithm.tensors(net)
        return {party: sum(v.numel() for v in mine.values()) for party, mine in tensors.items()}

    assert count(depth=depth) == count()


def test_which_devices_aggregate_depends_on_the_seed_and_on_nothing_else(few: VerticalData) -> None:
    def chosen(seed: int, **more: Any) -> tuple[int, ...]:
        return MAGS(mags(aggregators=4, **more), Task.of(few, seed)).chosen

    drawn = [chosen(seed) for seed in range(8)]
    assert drawn == [chosen(seed, gossip=2, dropout=0.3) for seed in range(8)]
    assert len(set(drawn)) > 6
    assert all(len(set(one)) == 4 and list(one) == sorted(one) for one in drawn)
    assert len({device for one in drawn for device in one}) > 12


# -- messages -------------------------------------------------------------------------------------

COUNTS = [  # table 2, 30 % of the links down; its figures are samples of these expectations
    ("VFL", FULL, 10.5),
    ("4-MVFL", FULL, 42),
    ("MVFL", FULL, 168),
    ("MVFL-G4", FULL, 840),
    ("MVFL", Topology("geometric", 2.5), 114.8),
    ("MVFL", Topology("geometric", 2.0), 81.2),
    ("MVFL", Topology("geometric", 1.5), 58.8),
    ("MVFL", GRID, 33.6),
    ("MVFL", RING, 22.4),
    ("MVFL-G4", RING, 112),
]


@pytest.mark.parametrize(("method", "topology", "paper"), COUNTS)
def test_a_prediction_costs_as_many_messages_as_in_the_paper(
    few: VerticalData, method: str, topology: Topology, paper: float
) -> None:
    """Exactly without faults; with them, within four standard errors."""
    algorithm, net = made(mags(method=method, batch=4), few, topology=topology)
    drive(algorithm.evaluate(net))
    all_links = per_prediction(algorithm, net)
    assert all_links == pytest.approx(paper / 0.7)
    faulty = net.facing(Communication(name="links", rate=0.3, when="inference"))
    faulty.ledger = type(faulty.ledger)()
    drive(algorithm.evaluate(faulty))
    batches = -(-len(few.test) // 4)
    rounds = 1 + algorithm.set.gossip  # all over the same links
    error = rounds * (0.21 * all_links / rounds / batches) ** 0.5
    assert per_prediction(algorithm, faulty) == pytest.approx(paper, abs=4 * error)


def dropped(data: VerticalData, topology: Topology, **more: Any) -> tuple[Tensor, Tensor]:
    """What is kept over 300 rounds, and which links lead a device to itself. [rounds, devices,
    links]"""
    algorithm, net = made(mags(**more), data, topology=topology)
    links = net.links(algorithm.aggregators, algorithm.devices)
    kept = []
    for net.round in range(300):
        mask = algorithm.kept(net)
        assert mask is not None
        assert torch.equal(mask, cast(Tensor, algorithm.kept(net)))  # one mask for a batch
        kept.append(mask)
    return torch.stack(kept), torch.from_numpy(links.own)


@pytest.mark.parametrize("topology", [FULL, GRID], ids=lambda topology: topology.kind)
@pytest.mark.parametrize("rate", [0.3, 0.6])
def test_communication_dropout_drops_every_link_on_its_own(
    few: VerticalData, topology: Topology, rate: float
) -> None:
    kept, own = dropped(few, topology, method="CD-MVFL", dropout=rate)
    assert kept[:, own].all(), "a device always hears itself"
    others = kept[:, ~own].double()  # [rounds, links]
    assert others.mean() == pytest.approx(1 - rate, abs=4 * (0.25 / others.numel()) ** 0.5)
    together = torch.corrcoef(others.t()) - torch.eye(others.shape[1])
    assert together.abs().max() < 0.4  # 300 rounds: six standard errors
    assert others.std(0).min() > 0.3, "no link is always up or always down"


def test_party_dropout_drops_a_device_for_everybody_but_itself(few: VerticalData) -> None:
    kept, own = dropped(few, FULL, method="PD-MVFL")
    assert kept[:, own].all()
    others = kept[:, ~own].view(300, 16, 15)
    assert torch.equal(others.all(2), others.any(2))
    share = others[..., 0].double()
    assert share.mean() == pytest.approx(0.7, abs=4 * (0.21 / share.numel()) ** 0.5)
    assert (torch.corrcoef(share.t()) - torch.eye(16)).abs().max() < 0.35


def test_nothing_is_dropped_when_predicting(trained: Trained) -> None:
    (calm,) = answers(trained)
    (dropping,) = answers(trained, dropout=0.9)
    assert torch.equal(calm.opinions, dropping.opinions)


# -- faults when predicting -----------------------------------------------------------------------


def test_the_way_to_who_asks_fails_as_well(trained: Trained) -> None:
    fault = Communication(name="links", rate=0.4, when="inference")
    active = torch.stack([one.active for one in answers(trained, fault=fault, batch=4)]).double()
    assert active.mean() == pytest.approx(0.6, abs=4 * (0.24 / active.numel()) ** 0.5)


def test_saved_once_and_asked_under_other_faults(trained: Trained, tmp_path: Path) -> None:
    """As loaded from files: the same answers under the same faults, and no model changes."""
    trained.algorithm.save(tmp_path, trained.net)
    before = {k: v.clone() for k, v in trained.weights["client3"].items()}
    fresh, net = build(mags(), load(DataSpec(dataset="digits", parties=16, split="patches"), 0), 0)
    fresh.load(tmp_path, net)
    accuracy = {}
    for rate in (0.0, 0.3, 0.6):
        fault = Communication(name="links", rate=rate, when="inference")
        found = drive(fresh.evaluate(net.facing(fault)))
        assert found == measured(trained, fault=fault)
        accuracy[rate] = found["active_rand"]
        assert found["active_worst"] <= found["active_rand"] <= found["active_best"]
    assert accuracy[0.0] == trained.metrics["active_rand"] > 0.95
    assert accuracy[0.0] > accuracy[0.3] + 0.05 > accuracy[0.6] + 0.1
    assert all(torch.equal(v, before[k]) for k, v in trained.weights["client3"].items())


def test_gossip_brings_devices_together(trained: Trained) -> None:
    fault = Communication(name="links", rate=0.3, when="inference")
    alone, talking = (measured(trained, fault=fault, gossip=g) for g in (0, 4))
    assert talking["spread"] < alone["spread"] / 5
    assert talking["active_rand"] > alone["active_rand"]


def test_a_catastrophe_and_what_comes_after(trained: Trained) -> None:
    """Twelve of twenty batches: calm, then most devices are lost, then one after the other is
    back."""
    fault = Catastrophe(name="flood", at=5, rate=0.7, recovery=10, when="inference")
    found = answers(trained, fault=fault, batch=16, gossip=2)
    y, prior = trained.algorithm.data.test.y, cast(MAGS, trained.algorithm).prior
    batches = list(zip(found, y.split(16), strict=True))
    there = [int(one.active.sum()) for one in found]
    assert there[:5] == [16] * 5
    assert there[5] < 9
    assert there[5:16] == sorted(there[5:16])
    assert there[15:] == [16] * (len(there) - 15)

    def accuracy(some: list[tuple[Answers, Tensor]]) -> float:
        rows = torch.cat([y for _, y in some])
        return metrics([one for one, _ in some], rows, prior, goal_of(len(prior)))[0]["any_rand"]

    before, dip, rising, after = (
        accuracy(batches[a:b]) for a, b in ((0, 5), (5, 8), (10, 14), (16, len(batches)))
    )
    assert before > 0.95
    assert dip < 0.6
    assert dip + 0.1 < rising < after
    assert after > 0.95


def test_a_deadline_that_nobody_misses_changes_nothing(trained: Trained) -> None:
    slow, calm = Delays(latency={"exponential": 0.1}), pytest.approx(trained.metrics)
    assert measured(trained, delays=slow) == calm
    assert measured(trained, delays=slow, deadline=60.0) == calm


def test_messages_that_miss_the_deadline_are_missing(trained: Trained) -> None:
    """Messages between devices take a tenth of a second on average, some much longer."""
    algorithm, net = other(trained, delays=Delays(latency={"exponential": 0.1}))
    x, y = algorithm.data.test.x, algorithm.data.test.y
    accuracy = []
    for limit in (0.02, 0.1, 0.4, 60.0):
        algorithm.set = msgspec.structs.replace(algorithm.set, deadline=limit)
        z = drive(algorithm.opine(net.within("inference"), x, len(y)))
        accuracy.append(float((z.argmax(2) == y).double().mean()))
    assert accuracy[0] < 0.6
    assert accuracy[0] + 0.1 < accuracy[1] < accuracy[2] - 0.05 < accuracy[3]
    assert accuracy[3] == pytest.approx(trained.metrics["active_rand"])


def test_who_asks_hears_from_devices_that_went_on_without_what_was_late(trained: Trained) -> None:
    slow = Delays(latency={"exponential": 0.1})
    limits = (0.02, 0.1, 0.4)
    found = [measured(trained, delays=slow, deadline=d, gossip=1)["active_rand"] for d in limits]
    assert 0.15 < found[0] < found[1] < found[2] <= trained.metrics["active_best"]


def test_a_device_that_was_away_for_one_round_of_gossip_keeps_what_it_had(
    few: VerticalData,
) -> None:
    algorithm, net = made(mags(gossip=1), few, fault=Device(name="all", rate=1.0, when="inference"))
    z = torch.randn(16, 3, 10).log_softmax(2)
    assert torch.allclose(drive(algorithm.gossip(net.within("inference"), z, 3)), z, atol=1e-6)


# -- faults in training ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        Communication(name="links", rate=0.3),
        Communication(name="moving links", rate=0.3, stay=0.9),
        Device(name="devices", rate=0.3),
        Catastrophe(name="flood", at=40, rate=0.5, recovery=80),
    ],
    ids=lambda fault: fault.name,
)
def test_training_goes_on_under_faults(digits: VerticalData, fault: Fault) -> None:
    """And learns to do without: losing messages on the way is dropout."""
    settings = mags(epochs=8, lr=0.01)
    found = stacked(settings, digits, fault=fault)
    assert found.metrics["test_accuracy"] > 0.85
    assert any(row[0] == "training" and row[3] == "gradient" for row in found.net.ledger.rows())


def test_it_trains_without_validation() -> None:
    spec = DataSpec(dataset="digits", parties=16, split="patches", rows=200, validation=0.0)
    points = []
    algorithm, net = made(mags(), load(spec, seed=0))
    algorithm.training.watch = points.append
    drive(algorithm.train(net))
    assert len(points) == 2
    assert points[1].metrics["train_loss"] < points[0].metrics["train_loss"]


def test_who_is_away_when_the_encodings_come_does_not_learn_from_zeros(few: VerticalData) -> None:
    """All are up before the first exchange, and gone for good with it."""
    gone = Client(name="gone", down=1.0, up=0.0)
    start, _ = made(mags(), few)
    trained = stacked(mags(), few, fault=gone)
    for i in range(16):
        before = start.stacks["head"][1].member_state(i)
        after = trained.algorithm.stacks["head"][1].member_state(i)
        assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize("imputation", ["mean", "learnt"])
def test_what_stands_in_for_a_missing_encoding_is_learnt_by_who_misses_it(
    digits: VerticalData, imputation: str
) -> None:
    """On a grid, where corners miss what the middle has: each for its own neighbours."""
    settings = mags(method="CD-MVFL", epochs=6, lr=0.01, imputation=imputation)
    fault = Communication(name="links", rate=0.3, when="inference")
    trained = stacked(settings, digits, topology=GRID, fault=fault)
    assert trained.metrics["active_rand"] > 0.4
    corner, middle = (trained.weights[f"client{i}"]["head.0.value"] for i in (0, 5))
    assert (corner.shape, middle.shape) == ((3, 4), (5, 4))
    for value, own in ((corner, 0), (middle, 2)):  # of 0, 1 and 4; of 1, 4, 5, 6 and 9
        heard = [bool(one.any()) for one in value]
        never_missed = imputation == "mean"  # nobody misses itself, so nothing is learnt for it
        assert heard == [never_missed if j == own else True for j in range(len(value))]


# -- theory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("aggregators", [1, 3])
def test_proposition_1_nobody_left_to_answer_bounds_the_risk_from_below(
    digits: VerticalData, aggregators: int
) -> None:
    """Risk with faults ≥ (1 - r^K) · risk without + r^K · risk of a random answer, if those who
    answer do no better than without faults: so they do here. (The proof ends in "="; it is "≥".)
    By 0-1 loss, with the share of batches that nobody answered in place of its expectation r^K."""
    trained = stacked(mags(aggregators=aggregators, epochs=15, lr=0.01), digits)
    fault = Device(name="devices", rate=0.5, when="inference")
    found = answers(trained, fault=fault, batch=2)
    algorithm = cast(MAGS, trained.algorithm)
    y, prior = algorithm.data.test.y, algorithm.prior
    risk = 1 - metrics(found, y, prior, goal_of(len(prior)))[0]["active_rand"]
    clean, random = 1 - trained.metrics["active_rand"], 1 - float(prior[y].mean())
    nobody = np.mean([not one.active.any() for one in found])
    expected = 0.5**aggregators
    assert nobody == pytest.approx(
        expected, abs=4 * (expected * (1 - expected) / len(found)) ** 0.5
    )
    some = [(one, y) for one, y in zip(found, y.split(2), strict=True) if one.active.any()]
    truths = torch.cat([y for _, y in some])
    answered, _ = metrics([a for a, _ in some], truths, prior, goal_of(len(prior)))
    heard = 1 - answered["active_rand"]
    assert heard >= clean, "the assumption"
    assert risk >= (1 - nobody) * clean + nobody * random


def test_proposition_2_an_ensemble_gains_its_diversity(trained: Trained) -> None:
    """Cross-entropy of the normalised mean of log-probabilities = mean cross-entropy - mean of
    KL(ensemble | member): exactly. (The paper writes a sum in place of the mean: it is a mean that
    gossip takes, and only for a mean does this hold.)"""
    y = trained.algorithm.data.test.y
    (members,), (ensemble,) = answers(trained), answers(trained, gossip=1)
    p, q = members.opinions.double(), ensemble.opinions[0].double()
    assert torch.allclose(
        ensemble.opinions, ensemble.opinions[:1].expand_as(ensemble.opinions), atol=1e-5
    )
    rows = torch.arange(len(y))
    risk = -p[:, rows, y].mean()
    diversity = (q.exp() * (q - p)).sum(2).mean()
    assert diversity > 0.002
    assert -q[rows, y].mean() == pytest.approx(float(risk - diversity), abs=1e-6)


def gossiped(y: Tensor, topology: Topology, rounds: int, data: VerticalData) -> Tensor:
    """What gossip makes of log-probabilities, up to a constant for each row. [devices, 1,
    classes]"""
    algorithm, net = made(mags(gossip=rounds), data, topology=topology)
    z = drive(algorithm.gossip(net.within("inference"), y, 1))
    return z - z.mean(2, keepdim=True)


def consensus(topology: Topology) -> tuple[Tensor, float]:
    """Degrees, each device its own neighbour, and the spectral radius of V - 11ᵀ/C."""
    neighbours = topology.neighbours(16) or [list(range(16))] * 16
    v = torch.zeros(16, 16, dtype=torch.float64)
    for i, some in enumerate(neighbours):
        v[i, some] = 1 / len(some)
    radius = torch.linalg.eigvals(v - 1 / 16).abs().max()
    return torch.tensor([float(len(some)) for some in neighbours]), float(radius)


@pytest.mark.parametrize("topology", [FULL, RING, GRID], ids=lambda topology: topology.kind)
@pytest.mark.parametrize("rounds", [1, 2, 4, 16])
def test_proposition_3_devices_agree_exponentially_fast(
    few: VerticalData, topology: Topology, rounds: int
) -> None:
    """‖ȳ - y_i‖ ≤ λ^G · √(Σ_j d_j / d_i) · max ‖y_j - y_j'‖, with d the degrees and ȳ the mean
    weighted by them. Where all degrees are equal (complete, ring) this is the paper's bound, with
    √C and the plain mean; elsewhere the paper's does not hold, see below. Why: V = D⁻¹A is
    D^-½ S D^½ with S symmetric, of the same eigenvalues, and leads to the weighted mean."""
    generator = torch.Generator().manual_seed(rounds)
    y = torch.randn(16, 1, 10, generator=generator).log_softmax(2)
    degrees, radius = consensus(topology)
    centred = y - y.mean(2, keepdim=True)
    mean = (degrees[:, None, None] * centred).sum(0) / degrees.sum()
    apart = (centred[:, None] - centred[None]).norm(dim=3).max()
    gap = (gossiped(y, topology, rounds, few) - mean).norm(dim=2)[:, 0]
    bound = radius**rounds * (degrees.sum() / degrees).sqrt() * apart
    assert (gap <= bound + 1e-5).all()
    if topology.kind == "complete":
        assert radius < 1e-6, "one round is enough"
        assert gap.max() < 1e-5


def test_proposition_3_on_a_grid_devices_agree_on_a_weighted_mean(few: VerticalData) -> None:
    """Corners have three in their neighbourhood, the middle five: who is heard by more counts for
    more, however long they gossip, and the paper's bound, to the plain mean, fails."""
    y = torch.zeros(16, 1, 2)
    y[0, 0] = torch.tensor([-1.0, 1.0])  # one corner thinks otherwise
    after = gossiped(y, GRID, 200, few)[:, 0, 1]
    degrees, radius = consensus(GRID)
    assert torch.allclose(after, (degrees[0] / degrees.sum()).expand(16), atol=1e-4)  # 3 of 64
    gap = 2**0.5 * (after - 1 / 16).abs().min()
    assert gap > 0.02 > radius**200 * 4 * 8**0.5


def test_a_head_of_a_large_grid_is_drawn_for_its_neighbours_with_the_same_spread() -> None:
    """What 4,096 devices cost would otherwise grow with their square."""
    group, width, senders = 1000, 4, [3, 7, 500]
    assert drawn(senders, group) == len(senders)
    torch.manual_seed(0)
    layer = narrowed(nn.Linear(len(senders) * width, 64), senders, width, group)
    bound = (group * width) ** -0.5  # of a layer for all members, by torch's usual draw
    assert layer.weight.shape == (64, len(senders) * width)
    for parameter in layer.parameters():
        assert 0.95 * bound < float(parameter.detach().abs().max()) <= bound
    assert drawn(senders, 16) == 16  # a small one is drawn whole, and cut to the same numbers
    whole = nn.Linear(16 * width, 64)
    cut = narrowed(whole, [3, 7], width, 16)
    assert torch.equal(cut.weight, whole.weight[:, [*range(12, 16), *range(28, 32)]])
