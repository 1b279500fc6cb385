"""Methods on a CUDA device that is pretended: no tensor of another device gets in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.algorithms.test_kit import BRIEF, VARIANTS

import colonnade as cn
from colonnade.algorithms import registry
from colonnade.common.devices import computing_on, to_device
from colonnade.data import DataSpec, VerticalData, load
from colonnade.errors import InputError
from colonnade.experiments.run import build, drive
from colonnade.learning.checkpoint import Checkpoint
from colonnade.learning.settings import Settings
from colonnade.network import Delays
from colonnade.network.faults import Communication, Device, Fault
from colonnade.privacy.spec import Hide, LabelPrivacy, Noise
from colonnade.testing.engines import live, stacked
from colonnade.testing.pretended import MixedDevices, pretended_cuda

LINKS = Communication(name="links", rate=0.3, when="always")
PARTIES = Device(name="parties", rate=0.3, when="always")
NOISE = {"noise": Noise(clip=1.0, sigma=1.0)}
CASES: list[tuple[str, dict[str, Any], Fault]] = [
    *((name, keys, LINKS) for name in registry() for keys in ({}, *VARIANTS.get(name, []))),
    *((name, {}, PARTIES) for name in registry()),
    ("splitnn", NOISE, LINKS),
    ("mags", NOISE, LINKS),
    ("splitnn", {"hide_labels": 1.0, "label_privacy": LabelPrivacy(epsilon=1.0)}, LINKS),
    ("vim", {"label_privacy": LabelPrivacy(epsilon=1.0, how="alibi")}, LINKS),
]
OTHER_GOALS = [DataSpec(dataset="diabetes"), DataSpec(dataset="wine", weights="balanced")]


def compare(method: Settings, data: VerticalData, fault: Fault) -> None:
    """The weights and the metrics with and without the device."""
    delays = Delays(latency=0.01)
    here = stacked(method, data, fault=fault, delays=delays)
    with pretended_cuda(), computing_on("cuda"):
        there = stacked(method, data, fault=fault, delays=delays)
    for party, tensors in here.weights.items():
        for key, value in tensors.items():
            assert torch.equal(value, there.weights[party][key]), (party, key)
    assert here.metrics == there.metrics


@pytest.mark.parametrize(("name", "keys", "fault"), CASES, ids=str)
def test_a_method_computes_on_one_device_and_as_on_the_cpu(
    name: str, keys: dict[str, Any], fault: Fault
) -> None:
    given = {**BRIEF.get(name, {}), "epochs": 1, "batch": 32, **keys}
    method = registry()[name].settings(name=name, algorithm=name, **given)
    compare(method, load(DataSpec(dataset="digits", rows=60), seed=0), fault)


def test_gradients_of_two_classes_are_hidden_on_one_device() -> None:
    hide = Hide(how="marvell", strength=1.0)
    method = registry()["splitnn"].settings(
        name="x", algorithm="splitnn", epochs=1, hide_labels=hide
    )
    compare(method, load(DataSpec(dataset="breast_cancer", rows=60), seed=0), LINKS)


@pytest.mark.parametrize("spec", OTHER_GOALS, ids=lambda spec: spec.dataset)
def test_numbers_and_weighted_classes_are_learnt_on_one_device(spec: DataSpec) -> None:
    method = registry()["splitnn"].settings(name="x", algorithm="splitnn", epochs=1)
    compare(method, load(spec, seed=0), LINKS)


@pytest.mark.parametrize("name", registry())
def test_real_parties_and_their_checkpoints_are_on_one_device(name: str, tmp_path: Path) -> None:
    """Messages leave from the device and arrive there; what a party kept returns there."""
    data = load(DataSpec(dataset="digits", rows=60), seed=0)
    given = {**BRIEF.get(name, {}), "epochs": 2, "batch": 32}
    method = registry()[name].settings(name=name, algorithm=name, **given)
    with pretended_cuda(), computing_on("cuda"):
        live(method, data)
        algorithm, net = build(method, data, 0)
        kept = Checkpoint(algorithm, tmp_path)
        net.watch = lambda round: kept.keep(net, round, {})
        drive(algorithm.train(net))
        algorithm.save(tmp_path, net)
        again, new = build(method, data, 0)
        assert Checkpoint(again, tmp_path).resume(new) is not None
        drive(again.train(new))
        again.load(tmp_path, new)
        assert drive(again.evaluate(new)) == drive(algorithm.evaluate(net))


def test_an_experiment_writes_the_same_files_from_the_device(tmp_path: Path) -> None:
    """From a raw table, with pictures of the test, what each party did with its columns, and
    trainings with fewer parties."""
    lines = [f"{i % 7},{'abc'[i % 3]},{'' if i % 11 == 0 else i % 5},{i % 2}" for i in range(60)]
    (tmp_path / "raw.csv").write_text("\n".join(["size,colour,age,y", *lines]) + "\n")
    data = {"path": str(tmp_path / "raw.csv"), "label": "y", "parties": 2}
    found = {}
    for device in ("cpu", "cuda"):
        method = {"algorithm": "splitnn", "epochs": 1, "device": device}
        table = {"name": "x", "data": data, "methods": [method], "summarise": [0.5]}
        with pretended_cuda():
            outcome = cn.run(table, out=tmp_path / device)
        assert not outcome.failures
        found[device] = {
            str(path.relative_to(tmp_path / device)): path.read_bytes()
            for part in ("curves", "history", "ledger", "models")
            for path in (tmp_path / device / part).rglob("*.*")
            if path.is_file()
        }
    assert "curves/splitnn.none.0.json" in found["cuda"]
    assert any(name.endswith(".preprocessing.json") for name in found["cuda"])
    assert found["cuda"] == found["cpu"]


def test_an_estimator_answers_from_the_device(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).random((60, 6)), np.arange(60) % 3
    facts: dict[str, Any] = {"parties": 2, "epochs": 2, "random_state": 0}
    here = cn.VFLClassifier(**facts).fit(x, y).predict_proba(x)
    with pretended_cuda():
        there = cn.VFLClassifier(**facts, options={"device": "cuda"}).fit(x, y)
        assert (there.predict_proba(x) == here).all()


def test_the_pretended_device_refuses_what_a_real_one_refuses() -> None:
    with pretended_cuda(), computing_on("cuda"):
        there, here = torch.zeros(3), torch.zeros(3, device="cpu")
        assert there.device.type == "cuda"
        assert (there + torch.tensor(1.0, device="cpu")).device.type == "cuda"
        assert (there + to_device(here)).device.type == "cuda"
        for mixed in (
            lambda: there + here,
            lambda: torch.where(here > 0, there, 0.0),
            lambda: here[to_device(torch.tensor([0]))],
            lambda: there.numpy(),
            lambda: torch.rand(3, generator=torch.Generator("cpu")),
        ):
            with pytest.raises(MixedDevices):
                mixed()
        there.copy_(here)
        assert there[torch.tensor([0], device="cpu")].device.type == "cuda"
        assert there.cpu().numpy().sum() == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_an_input_error() -> None:
    from colonnade.experiments.config import parse_experiment
    from colonnade.experiments.runner import check

    method = {"algorithm": "splitnn", "device": "cuda"}
    experiment = parse_experiment(
        {"name": "x", "data": {"dataset": "wine"}, "methods": [method]}, "x"
    )
    with pytest.raises(InputError, match=r'methods\[0\] .*device = "cuda": there is no CUDA'):
        check(experiment)
