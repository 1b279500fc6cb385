"""The algorithm test kit: what every registered algorithm must do. A new one gets it for free."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

from colonnade.algorithms import registry
from colonnade.algorithms.algorithm import Settings
from colonnade.data import DataSpec, VerticalData, from_arrays, load
from colonnade.experiments.run import build, drive
from colonnade.network import Delays, Fault
from colonnade.network.faults import (
    Aggregator,
    Catastrophe,
    Client,
    Communication,
    Connection,
    Device,
    Trace,
)
from colonnade.network.samplers import Recorder
from colonnade.testing import Trained, difference, live, over_zenoh, projected, stacked

ALGORITHMS = list(registry())
FAULTS = [
    Connection(name="connection", down=0.3, up=0.3),
    Client(name="client", down=0.3, up=0.3),
    Aggregator(name="aggregator", down=0.3, up=0.5),
    Device(name="device", rate=0.3),
    Catastrophe(name="catastrophe", at=3, rate=0.7, recovery=6, when="always"),
    Communication(name="always", rate=0.3, when="always"),
]


@cache
def digits(rows: int | None = None) -> VerticalData:
    return load(DataSpec(dataset="digits", rows=rows), seed=0)


# What makes a short run short, beside `epochs`. An algorithm may do without an entry here.
BRIEF: dict[str, dict[str, object]] = {
    "dvfl": {"client_epochs": 2, "aggregator_epochs": 3},
    "fedonce": {"client_epochs": 2},
}

# Settings under which an algorithm goes another way or sends something else.
VARIANTS: dict[str, list[dict[str, object]]] = {
    "dvfl": [
        {"aggregators": 0},
        {"aggregators": 0, "objective": "simclr"},
        {"aggregators": 2, "objective": "barlow", "period": 2},
        {"aggregators": 2, "dropout": 0.3, "imputation": "learnt"},
        {"aggregators": 0, "dropout": 0.3, "imputation": "learnt"},
        {"encoder": "cnn", "aggregator_width": 20, "replay": 2},
    ],
    "fedonce": [{"objective": "noise"}, {"missing": "retry"}, {"encoder": [0.5], "decoder": [9]}],
    "mags": [
        {"aggregators": 2, "gossip": 2, "dropout": 0.3},
        {"depth": 1, "gossip": 1},
        {"depth": 2, "aggregators": 3, "imputation": "mean", "dropout": 0.3},
        {"imputation": "learnt", "dropout": 0.3, "dropout_kind": "party"},
        {"objective": "autoencoder", "encoder_epochs": 1},
    ],
    "splitnn": [{"missing": "stale", "encoder": [0.5, 8]}],
}
EVERY_VARIANT = [(name, more) for name in ALGORITHMS for more in VARIANTS.get(name, [])]


def settings(name: str, epochs: int, **more: object) -> Settings:
    if epochs <= 3:
        more = BRIEF.get(name, {}) | more
    return registry()[name].settings(name=name, algorithm=name, epochs=epochs, **more)  # pyright: ignore[reportArgumentType]


@cache
def learnt(name: str) -> Trained:
    return stacked(settings(name, 40, optimizer="adam", lr=3e-3), digits())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_learns_digits(name: str) -> None:
    assert learnt(name).metrics["test_accuracy"] > 0.9


@pytest.mark.parametrize("name", ALGORITHMS)
def test_equal_seeds_give_equal_weights_and_other_seeds_others(name: str) -> None:
    one, again, other = (stacked(settings(name, 2), digits(300), seed=s) for s in (0, 0, 1))
    for party, tensors in one.weights.items():
        for key, value in tensors.items():
            assert torch.equal(value, again.weights[party][key])
    assert any(
        not torch.equal(value, other.weights[party][key])
        for party, tensors in one.weights.items()
        for key, value in tensors.items()
    )


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_all_parties_in_one_process_or_each_on_its_own_train_the_same_model(
    name: str, fault: Fault
) -> None:
    delays = Delays(compute={"exponential": 0.1}, latency=0.01)
    one = stacked(settings(name, 3), digits(300), fault=fault, delays=delays)
    each = projected(settings(name, 3), digits(300), fault=fault, delays=delays)
    assert difference(one, each) < 1e-6
    told = [trained.metrics for trained in each.values() if trained.metrics]
    assert len(told) == 1, "the label holder, and nobody else, knows the result"
    assert told[0] == pytest.approx(one.metrics, abs=1e-6)
    assert max(trained.seconds for trained in each.values()) == pytest.approx(one.seconds)
    rows = sorted(one.net.ledger.rows())
    assert sorted(row for t in each.values() for row in t.net.ledger.rows()) == rows


@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_sends_what_it_declares_and_nothing_else(name: str) -> None:
    declared = {(e.kind, e.src, e.dst) for e in registry()[name].exchanges}
    sent = learnt(name).net.ledger.kinds()
    for more in VARIANTS.get(name, []):
        sent |= stacked(settings(name, 1, **more), digits(200)).net.ledger.kinds()
    assert sent == declared


@pytest.fixture
def double_precision() -> Iterator[None]:
    """A gradient that is zero but for rounding, as that of what batch normalisation takes away
    again, becomes a whole step by Adam in single precision."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize(("name", "more"), EVERY_VARIANT, ids=str)
def test_every_variant_trains_the_same_model_on_both_engines(
    name: str, more: dict[str, object]
) -> None:
    fault = Client(name="client", down=0.3, up=0.3, when="always")
    one = stacked(settings(name, 2, **more), digits(300), fault=fault)
    each = projected(settings(name, 2, **more), digits(300), fault=fault)
    assert difference(one, each) < 1e-6
    told = next(trained.metrics for trained in each.values() if trained.metrics)
    assert told == pytest.approx(one.metrics, abs=1e-6)


def same_run(one: Trained, each: dict[str, Trained]) -> None:
    assert difference(one, each) < 1e-5
    told = [trained.metrics for trained in each.values() if trained.metrics]
    assert told == [pytest.approx(one.metrics, abs=1e-5)]
    rows = sorted(one.net.ledger.rows())
    assert sorted(row for t in each.values() for row in t.net.ledger.rows()) == rows


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize(("name", "more"), EVERY_VARIANT, ids=str)
def test_parties_as_they_are_deployed_train_the_same_model(
    name: str, more: dict[str, object]
) -> None:
    method = settings(name, 1, **more)
    same_run(stacked(method, digits(200)), live(method, digits(200)))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_parties_on_a_real_network_train_the_same_model(name: str, tmp_path: Path) -> None:
    one = stacked(settings(name, 2), digits(300))
    same_run(one, live(settings(name, 2), digits(300)))
    same_run(one, over_zenoh(settings(name, 2), digits(300), tmp_path))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_saved_models_predict_the_same_when_loaded(name: str, tmp_path: Path) -> None:
    trained = learnt(name)
    trained.algorithm.save(tmp_path, trained.net)
    files = {path.stem for path in tmp_path.glob("*.safetensors")}
    assert files <= set(trained.net.world.parties)
    fresh = stacked(settings(name, 1), digits(), seed=9)
    fresh.algorithm.load(tmp_path, fresh.net)
    part = trained.algorithm.data.test
    expected = drive(trained.algorithm.predict(trained.net.within("inference"), part))
    assert torch.equal(
        expected, drive(fresh.algorithm.predict(fresh.net.within("inference"), part))
    )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_steps_that_get_compiled_train_the_same_model(name: str) -> None:
    eager = stacked(settings(name, 2), digits(200))
    with torch.compiler.set_stance("force_eager"):  # tests/models compiles one stack for real
        compiled = stacked(settings(name, 2, compile=True), digits(200))
    for party, tensors in eager.weights.items():
        for key, value in tensors.items():
            assert torch.allclose(value, compiled.weights[party][key], atol=1e-5), key


@pytest.mark.parametrize("name", ALGORITHMS)
def test_parties_with_few_and_with_many_columns_train_together(name: str) -> None:
    x = torch.randn(120, 170, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] + x[:, 40] + x[:, 169] > 0).long()
    columns = [range(30), range(30, 150), range(150, 170)]
    data = from_arrays(x.numpy(), y.numpy(), columns=[list(c) for c in columns])
    fault = Client(name="client", down=0.3, up=0.3)
    one = stacked(settings(name, 2), data, fault=fault)
    each = projected(settings(name, 2), data, fault=fault)
    assert difference(one, each) < 1e-6


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_recorded_trace_gives_the_run_it_was_recorded_from(name: str, tmp_path: Path) -> None:
    original = Client(name="client", down=0.3, up=0.3)
    algorithm, net = build(settings(name, 2), digits(300), 0, fault=original)
    recorder = Recorder(net._sampler)
    net._samplers["training"] = recorder
    drive(algorithm.train(net))
    recorder.save(tmp_path / "trace.npz")
    trace = Trace(name="trace", path=str(tmp_path / "trace.npz"))
    again = stacked(settings(name, 2), digits(300), fault=trace)
    each = projected(settings(name, 2), digits(300), fault=trace)
    for party, tensors in algorithm.tensors(net).items():
        assert all(torch.equal(v, again.weights[party][key]) for key, v in tensors.items())
    assert difference(again, each) < 1e-6
