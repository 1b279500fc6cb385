"""Training with labels that have differential privacy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.experiments.audit.test_audit import audited

import colonnade as cn
from colonnade.algorithms import registry
from colonnade.common.randomness import SystemRandomness
from colonnade.data import DataSpec, VerticalData, load
from colonnade.errors import InputError
from colonnade.experiments.privacy_grid import privacy_grid, spent
from colonnade.experiments.run import build, drive
from colonnade.learning.checkpoint import Checkpoint
from colonnade.learning.settings import Settings
from colonnade.models.layers import cross_entropy, evidence_loss
from colonnade.network import Network
from colonnade.network.faults import Client
from colonnade.privacy.spec import Hide, LabelPrivacy
from colonnade.testing import difference, projected, stacked
from colonnade.testing.kit import Outage, same_result

WANTED = LabelPrivacy(epsilon=1.0, how="alibi")
BRIEF: dict[str, dict[str, Any]] = {
    "splitnn": {},
    "vfb2": {},
    "vafl": {},
    "cvfl": {"active": 2},
    "fdml": {},
    "vim": {"batch": 64, "tau": 2},
    "fedvs": {},
    "dvfl": {"client_epochs": 1, "aggregator_epochs": 1, "aggregators": 2},
    "fedonce": {"client_epochs": 1},
    "mags": {"aggregators": 1},
}


def cancer(rows: int = 120) -> VerticalData:
    return load(DataSpec(dataset="breast_cancer", rows=rows, parties=3), seed=0)


def settings(name: str, **keys: Any) -> Settings:
    given = {"epochs": 2, **BRIEF.get(name, {}), **keys}
    return registry()[name].settings(name=name, algorithm=name, **given)


@pytest.mark.parametrize("name", BRIEF)
def test_every_method_with_a_label_holder_takes_it_and_both_engines_train_the_same(
    name: str,
) -> None:
    fault = Client(name="client", down=0.3, up=0.5)
    method = settings(name, label_privacy=WANTED)
    one = stacked(method, cancer(), fault=fault)
    each = projected(method, cancer(), fault=fault)
    assert difference(one, each) < 1e-5
    same_result(one, each, within=1e-5)
    plain = stacked(settings(name), cancer(), fault=fault)
    assert any(
        not torch.equal(value, plain.weights[party][key])
        for party, tensors in one.weights.items()
        for key, value in tensors.items()
    )


@pytest.mark.parametrize("how", ["response", "alibi"])
def test_true_labels_are_not_used_for_learning(how: Any) -> None:
    """Once the noise is drawn, other labels of the training rows give the same weights."""
    method = settings("splitnn", label_privacy=LabelPrivacy(epsilon=1.0, how=how))
    found = []
    for flipped in (False, True):
        algorithm, net = build(method, cancer(), 0)
        if flipped:
            algorithm.data.train.y.copy_(1 - algorithm.data.train.y)
        drive(algorithm.train(net))
        found.append(algorithm.tensors(net))
    for party, tensors in found[0].items():
        assert all(torch.equal(value, found[1][party][key]) for key, value in tensors.items())


NOISY: list[dict[str, Any]] = [
    {"label_privacy": WANTED},
    {"hide_labels": Hide(how="marvell", strength=4.0)},
]


@pytest.mark.parametrize("keys", NOISY, ids=str)
def test_a_label_holder_that_starts_again_has_the_noise_of_before(
    keys: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it draws from the operating system, as real parties do."""
    method = settings("splitnn", **keys)
    whole = stacked(method, cancer())
    algorithm, net = build(method, cancer(), 0)
    kept = Checkpoint(algorithm, tmp_path)

    def watch(round: int) -> None:
        kept.keep(net, round, {})
        if round == 3:
            raise Outage

    net.watch = watch
    with pytest.raises(Outage):
        drive(algorithm.train(net))
    monkeypatch.setattr(Network, "secrets", lambda *_: SystemRandomness())
    again, new = build(method, cancer(), 0)
    assert Checkpoint(again, tmp_path).resume(new) is not None
    drive(again.train(new))
    for party, tensors in again.tensors(new).items():
        for key, value in tensors.items():
            assert torch.equal(value, whole.weights[party][key]), f"{party}: {key}"


@pytest.mark.parametrize("keys", NOISY, ids=str)
def test_the_noise_is_on_the_disk_before_anything_leaves(keys: dict[str, Any]) -> None:
    """A label holder that falls before its first checkpoint must not draw the noise again."""
    algorithm, net = build(settings("splitnn", **keys), cancer(), 0)
    sent: list[int] = []

    async def secure() -> None:
        sent.append(net.ledger.total("training")[0])

    algorithm.training.secure_checkpoint = secure
    drive(algorithm.train(net))
    assert sent == [0]


def test_evidence_of_one_class_is_the_cross_entropy() -> None:
    logits, labels = torch.randn(2, 5, 3), torch.tensor([0, 1, 2, 1, 0])
    certain = torch.full((5, 3), -1e9)
    certain[torch.arange(5), labels] = 0.0
    assert torch.allclose(evidence_loss(logits, certain), cross_entropy(logits, labels))


def test_what_a_client_infers_is_bounded_by_epsilon() -> None:
    """With a response that is true for 62 of 100 rows, an attacker that reads it from a gradient
    has an AUC of 0.62."""
    data = {"dataset": "breast_cancer", "parties": 2}
    wanted = {"epsilon": 0.5, "how": "response"}
    found = audited({"algorithm": "splitnn", "epochs": 6, "label_privacy": wanted}, data)
    told = {one.attack: one.success for one in found if one.about_labels}
    assert told["direction"] < 0.7
    assert told["direction, all epochs"] < 0.7


def test_results_tell_epsilon() -> None:
    method = {"algorithm": "splitnn", "epochs": 1, "label_privacy": {"epsilon": 3.0}}
    both = {**method, "name": "both", "noise": {"clip": 1.0, "sigma": 1.0}}
    data = {"dataset": "breast_cancer", "parties": 2, "rows": 60}
    outcome = cn.run({"name": "x", "data": data, "methods": [method, both]}, out=None)
    [one, two] = outcome.results
    assert one.privacy == {"label_epsilon": 3.0}
    assert {"label_epsilon", "epsilon"} <= set(two.privacy)
    grid = privacy_grid([one])
    assert grid is not None
    assert (grid.header, grid.rows) == (("method", "label ε"), (("splitnn", "3"),))
    assert spent([one.privacy]) == "3 of labels"
    whole = privacy_grid(outcome.results)
    assert whole is not None
    assert [row[-1] for row in whole.rows] == ["3", "3"]
    assert [row[1] == "–" for row in whole.rows] == [True, False]


@pytest.mark.parametrize(
    ("name", "keys", "data", "said"),
    [
        ("centralised", {}, {}, "has one party, which holds the labels"),
        ("mags", {"aggregators": "all"}, {}, "all devices hold the labels"),
        ("mags", {"aggregators": 2}, {}, "2 aggregators hold the labels"),
        ("splitnn", {}, {"dataset": "diabetes"}, "the label is a number"),
        ("splitnn", {}, {"weights": "balanced"}, "counts the true labels"),
        ("splitnn", {"label_privacy": LabelPrivacy(epsilon=0.0)}, {}, "epsilon = 0: expected"),
    ],
)
def test_it_is_refused_where_it_cannot_be(
    name: str, keys: dict[str, Any], data: dict[str, Any], said: str
) -> None:
    spec = DataSpec(**{"dataset": "breast_cancer", "parties": 3, **data})
    method = settings(name, **{"label_privacy": WANTED, **keys})
    with pytest.raises(InputError, match=said):
        build(method, load(spec, seed=0), 0)


def test_the_epsilon_of_a_label_that_two_parties_hold_is_twice_as_large() -> None:
    """Each active party of a real federation draws noise of its own."""
    wanted = {"label_privacy": LabelPrivacy(epsilon=3.0), "active": 2}
    algorithm, _ = build(settings("cvfl", **wanted), cancer(), 0)
    assert algorithm.privacy() == {"label_epsilon": 3.0}
    first, second = (algorithm.labelled_by(party) for party in algorithm.labels.parties)
    algorithm.hear_of_labels(algorithm.labels.parties[1], torch.cat([second, first[:1]]))
    assert algorithm.privacy() == {"label_epsilon": 6.0}
