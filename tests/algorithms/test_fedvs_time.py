"""FedVS in virtual time: what a round costs, and which number of partitions is fastest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from colonnade.algorithms.fedvs import FedVS
from colonnade.algorithms.fedvs_settings import FedVSSettings
from colonnade.algorithms.fedvs_time import Steps
from colonnade.coding import LagrangeCode
from colonnade.data import DataSpec, VerticalData, load
from colonnade.experiments.config import read_experiment
from colonnade.experiments.run import build
from colonnade.learning.task import Task
from colonnade.network import Delays, Group
from colonnade.testing.engines import projected, stacked

CLIENTS = tuple(f"client{i}" for i in range(9))


def digits() -> VerticalData:
    spec = DataSpec(dataset="digits", rows=96, parties=9, split="columns", validation=0)
    return load(spec, seed=0)


def settings(**more: Any) -> FedVSSettings:
    facts: dict[str, Any] = {"epochs": 1, "batch": 16, "encoder": [4], **more}
    return FedVSSettings(name="fedvs", algorithm="fedvs", **facts)


def steps(partitions: int, clients: int = 9) -> Steps:
    code = LagrangeCode(clients, partitions, 1)
    return Steps(code, rows=1000, batch=100, width=8, features=(10,) * clients)


def seconds(partitions: int, delays: Delays) -> float:
    """Of a round."""
    one = steps(partitions)
    clients, server = Group("clients", CLIENTS, "client"), Group("server", ("server",), "owner")
    return one.seconds(delays, clients, server) / one.rounds


def test_a_round_of_equal_clients_takes_what_order_statistics_say() -> None:
    """Of n exponential times the r-th is (1/n + 1/(n−1) + … + 1/(n−r+1)) times their mean."""
    for partitions in (1, 2, 4):
        needed = 2 * partitions + 1
        expected = 0.5 * sum(1 / (9 - i) for i in range(needed))
        lag = {"clients": {"exponential": 0.5}}
        delays = Delays(lag=lag, lag_factors={"model-share": 0})
        assert seconds(partitions, delays) == pytest.approx(expected, rel=0.1)


def test_a_round_of_constant_times_is_added_up_by_hand() -> None:
    """Sharing models 9·2/100 plain steps, an answer 9/K, the server 1; each message 0.1 s."""
    for partitions in (1, 2, 4):
        delays = Delays(compute=2.0, latency=0.1)
        expected = 2.0 * (9 * 2 / 100 + 9 / partitions + 1) + 3 * 0.1
        assert seconds(partitions, delays) == pytest.approx(expected)


# Delays that reward few partitions, many, and some.
DELAYS = {
    "stragglers": Delays(
        compute=1e-4,
        lag={"clients": {"exponential": 0.1}, **{c: {"exponential": 3.0} for c in CLIENTS[4:]}},
        lag_factors={"model-share": 0.05, "data-share": 0},
    ),
    "computing": Delays(
        compute=1.0, lag={"clients": {"exponential": 0.1}}, lag_factors={"data-share": 0}
    ),
    "slow clients": Delays(
        compute={"clients": {"exponential": 0.1}}, speed=dict.fromkeys(CLIENTS[7:], 0.2)
    ),
    "both": Delays(
        compute={"clients": 0.1},
        lag={"clients": 0.1, **{c: {"exponential": 2.0} for c in CLIENTS[5:]}},
        lag_factors={"model-share": 0.02, "data-share": 0},
    ),
}


@pytest.mark.parametrize("name", DELAYS)
def test_the_chosen_partitions_are_the_fastest_of_all_that_were_tried(name: str) -> None:
    """Brute force: a training with each K. Two K that are about as fast may change places."""
    delays, data = DELAYS[name], digits()
    auto, _ = build(settings(partitions="auto"), data, 0, delays=delays)
    assert isinstance(auto, FedVS)
    took = {}
    for partitions in (1, 2, 3, 4):
        method = settings(partitions=partitions, epochs=15)
        took[partitions] = stacked(method, data, seed=1, delays=delays).seconds
    assert took[auto.code.partitions] < 1.05 * min(took.values()), took
    assert max(took.values()) > 1.2 * min(took.values()), "so that it makes a difference"


def test_delays_want_few_partitions_and_computing_wants_many() -> None:
    chosen = {}
    for name in ("stragglers", "computing"):
        auto, _ = build(settings(partitions="auto"), digits(), 0, delays=DELAYS[name])
        assert isinstance(auto, FedVS)
        chosen[name] = auto.code.partitions
        assert auto.told.choice.startswith(f"fedvs: partitions = {chosen[name]} (the fastest")
    assert chosen == {"stragglers": 1, "computing": 4}


def test_without_delays_the_choice_is_one_partition_and_says_so() -> None:
    auto = FedVS(settings(partitions="auto"), Task.of(digits(), 0))
    assert auto.code.partitions == 1
    assert auto.told.choice == "fedvs: partitions = 1 (no delays are configured)"


def test_waiting_for_stragglers_takes_five_times_as_long_and_fedvs_loses_nothing_by_them() -> None:
    """The delays of the paper, as in the example; three of six clients are late."""
    example = read_experiment(Path(__file__).parents[2] / "examples" / "stragglers.toml")
    data = load(DataSpec(dataset="digits", rows=300, parties=6, split="columns"), seed=0)
    methods = {m.name: msgspec.structs.replace(m, epochs=8) for m in example.methods}
    took = {n: stacked(m, data, delays=example.network.delays) for n, m in methods.items()}
    assert took["FedVS"].net.round - 1 == took["Wait"].net.round, "one more: it shares its columns"
    assert took["FedVS"].seconds < took["Wait"].seconds / 5
    prompt = stacked(methods["FedVS"], data)
    for party, tensors in prompt.weights.items():
        for key, value in tensors.items():
            assert torch.equal(value, took["FedVS"].weights[party][key])


def test_every_party_on_its_own_chooses_the_same_partitions_and_takes_the_same_time() -> None:
    delays, method = DELAYS["both"], settings(partitions="auto")
    one = stacked(method, digits(), delays=delays)
    each = projected(method, digits(), delays=delays)
    assert isinstance(one.algorithm, FedVS)
    for trained in each.values():
        assert isinstance(trained.algorithm, FedVS)
        assert trained.algorithm.code == one.algorithm.code
    assert max(trained.seconds for trained in each.values()) == pytest.approx(one.seconds)
