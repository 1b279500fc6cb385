"""Which party contributed what to the runs of an output folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from tests.command_line import colonnade

import colonnade as cn
from colonnade.algorithms import registry
from colonnade.algorithms.method_table import parse_method
from colonnade.common.explanations import read_explanations
from colonnade.common.results import read_results
from colonnade.data import DataSpec, Rows, VerticalData, load
from colonnade.errors import InputError
from colonnade.experiments.explain import Ask, explain_every_run
from colonnade.experiments.explanation_page import grid
from colonnade.experiments.report import write_report
from colonnade.experiments.run import build, drive
from colonnade.experiments.runner import NoObserver
from colonnade.experiments.trained_model import TrainedModel
from colonnade.learning.algorithm import Algorithm
from colonnade.learning.coalitions import shapley
from colonnade.network import Network
from colonnade.testing import run_projected

DIGITS = load(DataSpec(dataset="digits", parties=4, split="bands", rows=300), 0)
WITH_PARTIES = [name for name, kind in registry().items() if not kind.settings.pooled]
BRIEF = {"dvfl": {"aggregators": 2}, "fedvs": {"missing": "zeros"}}


def ready(name: str, **options: Any) -> TrainedModel:
    """A model, though not a trained one."""
    table = {"algorithm": name, **BRIEF.get(name, {}), **options}
    algorithm, net = build(parse_method(table, "method"), DIGITS, 0)
    return TrainedModel(algorithm, net, algorithm.data.test)


@pytest.mark.parametrize("name", WITH_PARTIES)
def test_every_method_can_be_asked_without_some_of_its_parties(name: str) -> None:
    model = ready(name)
    parties, goal = frozenset(DIGITS.clients), model.algorithm.task.goal
    metrics = drive(model.algorithm.evaluate(model.net))
    assert model.score(parties) == pytest.approx(metrics[f"test_{goal.deciding.key}"])
    found = shapley(DIGITS.clients, model.score)
    assert sum(found.values.values()) == pytest.approx(found.full - found.empty)
    with model.embedded_once():
        assert shapley(DIGITS.clients, model.score) == found


@pytest.mark.parametrize("name", WITH_PARTIES)
def test_a_prediction_without_a_party_is_the_same_on_both_engines(name: str) -> None:
    model = ready(name)
    left_out = frozenset({"client1", "client3"})
    kind, algorithm = registry()[name], model.algorithm

    async def program(net: Network) -> Any:
        one = kind(algorithm.set, algorithm.task)
        one.join(net, DIGITS)
        apart = net.within("inference")
        apart.without = left_out
        return await one.predict(apart, one.data.test)

    by_party = run_projected(algorithm.world(), program)
    apart = model.net.within("inference")
    apart.without = left_out
    together = drive(algorithm.predict(apart, algorithm.data.test))
    asked = algorithm.outside[0] if algorithm.outside else algorithm.labels.parties[0]
    assert torch.allclose(by_party[asked], together, atol=1e-5)
    heard = drive(algorithm.predict(model.net.within("inference"), algorithm.data.test))
    assert not torch.allclose(heard, together, atol=1e-5)


def disjoint_experts() -> tuple[VerticalData, dict[str, float]]:
    """Each row's class is told by one of three parties, and the others say nothing of the row. The
    data, and the share of the test rows that each party tells of."""
    expert = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)
    y = torch.arange(100) % 3 + 1
    told = torch.nn.functional.one_hot(y, 4)[:, 1:].float()
    x = tuple(told * (expert == party)[:, None] for party in range(3))
    rows = Rows(x, y)
    shapes = ((3,),) * 3
    data = VerticalData("experts", ("a", "b", "c"), 4, shapes, rows, rows, rows)
    return data, {"a": 0.6, "b": 0.3, "c": 0.1}


def test_the_values_of_an_additive_model_are_known_in_closed_form() -> None:
    """A row is right if its expert is heard, so that scores of coalitions are sums."""
    data, shares = disjoint_experts()
    table = {"algorithm": "splitnn", "combine": "sum", "encoder": [3], "head": []}
    algorithm, net = build(parse_method(table, "method"), data, 0)
    for i in range(3):
        state = algorithm.stacks["encoder"][1].member_state(i)
        for name, value in state.items():
            value.copy_(torch.eye(3) if name.endswith("weight") else torch.zeros(3))
    for name, value in algorithm.stacks["head"][1].member_state(0).items():
        by_class = torch.cat([torch.zeros(1, 3), torch.eye(3)])
        value.copy_(by_class if name.endswith("weight") else torch.tensor([0.5, 0, 0, 0]))
    model = TrainedModel(algorithm, net, algorithm.data.test)
    found = shapley(data.clients, model.score)
    assert (found.full, found.empty) == (1.0, 0.0)
    assert found.values == pytest.approx(shares)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits with a blank band above, and a copy of that file."""
    folder = tmp_path_factory.mktemp("images")
    digits: Any = load_digits()
    x = np.pad(digits.images, ((0, 0), (2, 0), (0, 0)))
    np.savez(folder / "digits.npz", x=x, y=digits.target)
    return folder


@pytest.fixture(scope="module")
def folder(images: Path) -> Path:
    """A finished experiment on them: client0 holds the blank band."""
    methods = [
        {"name": "SplitNN", "algorithm": "splitnn", "epochs": 15, "lr": 5e-3},
        {"name": "MAGS", "algorithm": "mags", "epochs": 3, "lr": 5e-3},
        {"name": "yardstick", "algorithm": "centralised", "epochs": 1},
    ]
    data = {"path": str(images / "digits.npz"), "parties": 5, "split": "bands"}
    cn.run({"name": "blank", "data": data, "methods": methods}, out=images / "out")
    return images / "out"


def test_a_blank_border_is_ranked_last_and_named(folder: Path) -> None:
    found = cn.explain(folder, summarise=0.4)
    assert [one.method for one in found] == ["SplitNN", "MAGS"]  # the yardstick has no parties
    stored = {result.method: result.metrics for result in read_results(folder)}
    for one in found:
        assert one.full == pytest.approx(stored[one.method]["test_accuracy"])
        parties = {p.party: p for p in one.parties}
        blank = parties.pop("client0")
        assert one.ranking[-1] == blank
        assert blank.verdict == "the same for every row"
        assert blank.noised == pytest.approx(0, abs=1e-6)
        assert abs(blank.shapley) < 0.03
        assert all(p.verdict == "" and p.shapley > 0.05 for p in parties.values())
        assert all(len(p.points) == len(one.labels) for p in one.parties)
        assert one.fewer is not None
        assert one.fewer.ranked_by == "Shapley values on validation rows"
        assert len(one.fewer.best) == 2
        assert "client0" in one.fewer.worst
        assert one.full > one.fewer.best_score > one.fewer.worst_score
    page = write_report(folder).read_text()
    for text in ("Which party contributed what", "Tells the same of every row: client0."):
        assert text in page


def test_the_command_prints_a_table_or_json_and_keeps_the_explanation(folder: Path) -> None:
    done = colonnade("explain", str(folder), "--method", "SplitNN", "--map", "none", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "Shapley value" in done.stdout
    done = colonnade("explain", str(folder), "--method", "SplitNN", "--json", folder=folder)
    (one,) = json.loads(done.stdout)["explanations"]
    assert {p["party"] for p in one["parties"]} == {f"client{i}" for i in range(5)}
    kept = json.loads((folder / "explanations" / f"{one['run']}.json").read_text())
    assert kept == one


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--method", "SplitNM"], "method: no finished run of 'SplitNM'; the nearest is 'SplitNN'"),
        (["--seed", "7"], "seed: no finished run of 7"),
        (["--method", "yardstick"], "yardstick: one party holds all columns"),
        (["--sigma", "0"], "sigma = 0: expected a number above 0"),
        (["--summarise", "1"], "summarise = 1: expected a share of the parties above 0, below 1"),
    ],
)
def test_what_cannot_be_explained_is_an_error_that_says_why(
    options: list[str], told: str, folder: Path
) -> None:
    done = colonnade("explain", str(folder), *options, folder=folder)
    assert done.returncode == 2
    assert told in done.stderr


def test_every_run_of_a_folder_may_be_explained_and_none_of_them_twice(tmp_path: Path) -> None:
    methods = [
        {"name": "VIM", "algorithm": "vim", "epochs": 1},
        {"name": "yardstick", "algorithm": "centralised", "epochs": 1},
    ]
    data = {"dataset": "digits", "rows": 200, "parties": 2}
    cn.run({"name": "n", "seeds": [0, 1], "data": data, "methods": methods}, out=tmp_path / "out")
    counted: list[tuple[int, int]] = []

    class Count(NoObserver):
        def begin(self, total: int, done: int) -> None:
            counted.append((total, done))

    for _ in range(2):
        explain_every_run(tmp_path / "out", Ask(map="none"), Count())
    assert counted == [(2, 0), (2, 2)]
    found = read_explanations(tmp_path / "out")
    assert {(one.method, one.seed) for one in found} == {("VIM", 0), ("VIM", 1)}


def test_a_run_is_not_explained_by_other_data(folder: Path, images: Path) -> None:
    path = images / "digits.npz"
    before = path.read_bytes()
    with np.load(path) as file:
        x, y = file["x"], file["y"]
    x[0, 5, 3] += 1
    np.savez(path, x=x, y=y)
    try:
        with pytest.raises(InputError, match="the data has changed since this run"):
            cn.explain(folder)
    finally:
        path.write_bytes(before)


def test_a_party_of_pure_noise_is_named() -> None:
    noise = torch.Generator().manual_seed(0)

    def noisy(rows: Rows) -> Rows:
        x = list(rows.x)
        x[2] = torch.randn(x[2].shape, generator=noise)
        return replace(rows, x=tuple(x))

    data = load(DataSpec(dataset="digits", parties=4, split="bands"), 0)
    parts = {name: noisy(getattr(data, name)) for name in ("train", "validation", "test")}
    settings = parse_method({"algorithm": "splitnn", "epochs": 5, "lr": 5e-3}, "method")
    algorithm, net = build(settings, replace(data, **parts), 0)
    drive(algorithm.train(net))
    told = TrainedModel(algorithm, net, algorithm.data.test).tells()
    assert told is not None
    assert [verdict for _, verdict in told.values()] == ["", "", "looks like noise", ""]


def test_an_algorithm_may_say_by_itself_what_it_makes_of_its_parties(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = {f"client{i}": i / 10 for i in range(5)}
    monkeypatch.setattr(Algorithm, "importance", lambda self, net: weights)
    (one,) = cn.explain(folder, method="SplitNN", map="none")
    assert {p.party: p.importance for p in one.parties} == weights


def test_where_lower_is_better_a_party_that_helps_still_has_a_positive_share(
    tmp_path: Path,
) -> None:
    method = {"algorithm": "splitnn", "epochs": 10, "lr": 1e-2}
    data = {"dataset": "diabetes", "parties": 3}
    outcome = cn.run({"name": "n", "data": data, "methods": [method]}, out=tmp_path / "out")
    (one,) = cn.explain(outcome)
    rmse = outcome.results[0].metrics["test_rmse"]
    assert rmse is not None
    assert -one.full == pytest.approx(rmse)
    assert -one.empty > rmse
    assert sum(p.shapley for p in one.parties) == pytest.approx(one.full - one.empty)
    assert one.ranking[0].shapley > 0
    assert f"test RMSE {rmse:.4f} with all parties" in grid(one).caption


def test_options_of_simulations_are_not_for_real_federations(tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text("name = 'x'")
    done = colonnade("explain", str(tmp_path), "--summarise", "0.5", folder=tmp_path)
    assert done.returncode == 2
    assert "--summarise: is for output folders of `colonnade run`" in done.stderr


def test_an_experiment_tells_for_each_seed_what_some_of_the_parties_are_worth(
    tmp_path: Path,
) -> None:
    methods = [
        {"name": "SplitNN", "algorithm": "splitnn", "epochs": 8, "lr": 5e-3},
        {"name": "VIM", "algorithm": "vim", "epochs": 2, "batch": 64},  # ranked by its heads
    ]
    data = {"dataset": "digits", "parties": 4, "split": "bands"}
    table = {"name": "some", "seeds": [0, 1], "data": data, "methods": methods}
    outcome = cn.run({**table, "summarise": [0.5]}, out=tmp_path / "out")
    for result in outcome.results:
        metrics = {name: value or 0.0 for name, value in result.metrics.items()}
        assert metrics["test_accuracy"] > metrics["best_0.5_accuracy"]
        assert metrics["best_0.5_accuracy"] > metrics["worst_0.5_accuracy"] + 0.02
    with pytest.raises(InputError, match="summarise: 1 is not a share above 0, below 1"):
        cn.run({**table, "summarise": [1.0]})
