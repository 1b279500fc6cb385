"""The algorithm test kit: what every algorithm must do, as tests for pytest.

from colonnade.testing import AlgorithmKit
from my_algorithm import Mine

class TestMine(AlgorithmKit):
    algorithm = Mine
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from colonnade.algorithms import registered
from colonnade.common.processes import one_thread
from colonnade.data import DataSpec, VerticalData, from_arrays, load
from colonnade.experiments.run import build, drive
from colonnade.learning.algorithm import Algorithm
from colonnade.learning.checkpoint import Checkpoint
from colonnade.learning.settings import Settings
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
from colonnade.testing.engines import Trained, difference, live, over_zenoh, projected, stacked

FAULTS = [
    Connection(name="connection", down=0.3, up=0.3),
    Client(name="client", down=0.3, up=0.3),
    Aggregator(name="aggregator", down=0.3, up=0.5),
    Device(name="device", rate=0.3),
    Catastrophe(name="catastrophe", at=3, rate=0.7, recovery=6, when="always"),
    Communication(name="always", rate=0.3, when="always"),
]
DELAYS = Delays(compute={"exponential": 0.1}, latency=0.01)


@cache
def digits(rows: int | None = None) -> VerticalData:
    return load(DataSpec(dataset="digits", rows=rows), seed=0)


class AlgorithmKit:
    """Subclass it as `class TestMine(AlgorithmKit)` and name the algorithm."""

    algorithm: ClassVar[type[Algorithm]]
    # Keys that make a short run shorter, beside `epochs`.
    brief: ClassVar[Mapping[str, Any]] = {}
    # Settings under which the algorithm goes another way or sends something else.
    variants: ClassVar[tuple[Mapping[str, Any], ...]] = ()
    # Settings under which it learns scikit-learn's digits, the metric that says so, and how good
    # that must be.
    learns: ClassVar[Mapping[str, Any]] = {"epochs": 40, "optimizer": "adam", "lr": 3e-3}
    metric: ClassVar[str] = "test_accuracy"
    enough: ClassVar[float] = 0.9

    @pytest.fixture(autouse=True)
    def _setting(self) -> Iterator[None]:
        """The algorithm is known while it is tested, and torch uses one thread, as in a run."""
        with registered(self.algorithm), one_thread():
            yield

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "variant" in metafunc.fixturenames:
            metafunc.parametrize("variant", self.variants or ({},), ids=str)

    @classmethod
    def settings(cls, epochs: int, **more: Any) -> Settings:
        """Those of a short run."""
        return cls._method({**cls.brief, "epochs": epochs, **more})

    @classmethod
    def _method(cls, keys: Mapping[str, Any]) -> Settings:
        return cls.algorithm.settings(name=cls.algorithm.name, algorithm=cls.algorithm.name, **keys)

    @classmethod
    @cache
    def learnt(cls) -> Trained:
        return stacked(cls._method(cls.learns), digits())

    @pytest.fixture
    def double_precision(self) -> Iterator[None]:
        """A gradient that is zero but for rounding, as that of what batch normalisation takes away
        again, becomes a whole step by Adam in single precision."""
        torch.set_default_dtype(torch.float64)
        yield
        torch.set_default_dtype(torch.float32)

    def test_it_learns_digits(self) -> None:
        assert self.learnt().metrics[self.metric] > self.enough

    def test_equal_seeds_give_equal_weights_and_other_seeds_others(self) -> None:
        one, again, other = (stacked(self.settings(2), digits(300), seed=s) for s in (0, 0, 1))
        for party, tensors in one.weights.items():
            for key, value in tensors.items():
                assert torch.equal(value, again.weights[party][key])
        assert any(
            not torch.equal(value, other.weights[party][key])
            for party, tensors in one.weights.items()
            for key, value in tensors.items()
        )

    @pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
    def test_all_parties_in_one_process_or_each_on_its_own_train_the_same_model(
        self, fault: Fault
    ) -> None:
        one = stacked(self.settings(3), digits(300), fault=fault, delays=DELAYS)
        each = projected(self.settings(3), digits(300), fault=fault, delays=DELAYS)
        assert difference(one, each) < 1e-6
        same_result(one, each)
        assert max(trained.seconds for trained in each.values()) == pytest.approx(one.seconds)
        rows = sorted(one.net.ledger.rows())
        assert sorted(row for t in each.values() for row in t.net.ledger.rows()) == rows

    def test_it_sends_what_it_declares_and_nothing_else(self) -> None:
        declared = {exchange.ends for exchange in self.algorithm.exchanges}
        sent = self.learnt().net.ledger.kinds()
        for variant in self.variants:
            sent |= stacked(self.settings(1, **variant), digits(200)).net.ledger.kinds()
        assert sent == declared

    @pytest.mark.usefixtures("double_precision")
    def test_every_variant_trains_the_same_model_on_both_engines(
        self, variant: Mapping[str, Any]
    ) -> None:
        fault = Client(name="client", down=0.3, up=0.3, when="always")
        one = stacked(self.settings(2, **variant), digits(300), fault=fault)
        each = projected(self.settings(2, **variant), digits(300), fault=fault)
        assert difference(one, each) < 1e-6
        same_result(one, each)

    @pytest.mark.usefixtures("double_precision")
    def test_parties_as_they_are_deployed_train_the_same_model(
        self, variant: Mapping[str, Any]
    ) -> None:
        method = self.settings(1, **variant)
        self._same_run(stacked(method, digits(200)), live(method, digits(200)))

    def test_parties_on_a_real_network_train_the_same_model(self, tmp_path: Path) -> None:
        one = stacked(self.settings(2), digits(300))
        self._same_run(one, live(self.settings(2), digits(300)))
        self._same_run(one, over_zenoh(self.settings(2), digits(300), tmp_path))

    def _same_run(self, one: Trained, each: dict[str, Trained]) -> None:
        """Real parties do not wait for the turn of a program: whoever of several is ready first
        comes first, and the weights differ."""
        if not self.algorithm.side_by_side:
            same_run(one, each)
            return
        same_result(one, each, within=1.0)
        sent = set[tuple[str, str, str]]().union(*(t.net.ledger.kinds() for t in each.values()))
        late = {ends for ends in one.net.ledger.kinds() if ends[0].startswith("late")}
        assert sent - late == one.net.ledger.kinds() - late  # what is late, real time decides

    @pytest.mark.parametrize("share", [0.35, 0.8])
    def test_parties_that_start_again_go_on_as_if_nothing_had_happened(
        self, variant: Mapping[str, Any], share: float, tmp_path: Path
    ) -> None:
        """Whatever a party must still know after a crash is declared, and so in its checkpoint."""
        method, fault = self.settings(2, **variant), Client(name="client", down=0.3, up=0.3)
        whole = stacked(method, digits(300), fault=fault)
        algorithm, net = build(method, digits(300), 0, fault=fault)
        kept, last = Checkpoint(algorithm, tmp_path), int(share * whole.net.rounds_begun)

        def watch(round: int) -> None:
            if (restart := net.restart_round(round)) == round:
                kept.keep(net, restart, {})
                if round >= last:
                    raise Outage

        net.watch = watch
        with pytest.raises(Outage):
            drive(algorithm.train(net))
        again, new = build(method, digits(300), 0, fault=fault)
        assert Checkpoint(again, tmp_path).resume(new) is not None
        new._samplers = net._samplers  # what fails does not depend on the crash
        drive(again.train(new))
        for party, tensors in again.tensors(new).items():
            for key, value in tensors.items():
                assert torch.equal(value, whole.weights[party][key]), f"{party}: {key}"

    def test_saved_models_predict_the_same_when_loaded(self, tmp_path: Path) -> None:
        trained = self.learnt()
        trained.algorithm.save(tmp_path, trained.net)
        files = {path.stem for path in tmp_path.glob("*.safetensors")}
        assert files <= set(trained.net.world.parties)
        fresh = stacked(self.settings(1), digits(), seed=9)
        fresh.algorithm.load(tmp_path, fresh.net)
        part = trained.algorithm.data.test
        expected = drive(trained.algorithm.predict(trained.net.within("inference"), part))
        assert torch.equal(
            expected, drive(fresh.algorithm.predict(fresh.net.within("inference"), part))
        )

    def test_the_steps_that_get_compiled_train_the_same_model(self) -> None:
        eager = stacked(self.settings(2), digits(200))
        with torch.compiler.set_stance("force_eager"):  # tests/models compiles one stack for real
            compiled = stacked(self.settings(2, compile=True), digits(200))
        for party, tensors in eager.weights.items():
            for key, value in tensors.items():
                assert torch.allclose(value, compiled.weights[party][key], atol=1e-5), key

    def test_parties_with_few_and_with_many_columns_train_together(self) -> None:
        x = torch.randn(120, 170, generator=torch.Generator().manual_seed(0))
        y = (x[:, 0] + x[:, 40] + x[:, 169] > 0).long()
        columns = [range(30), range(30, 150), range(150, 170)]
        data = from_arrays(x.numpy(), y.numpy(), columns=[list(c) for c in columns])
        fault = Client(name="client", down=0.3, up=0.3)
        one = stacked(self.settings(2), data, fault=fault)
        each = projected(self.settings(2), data, fault=fault)
        assert difference(one, each) < 1e-6

    def test_a_recorded_trace_gives_the_run_it_was_recorded_from(self, tmp_path: Path) -> None:
        original = Client(name="client", down=0.3, up=0.3)
        algorithm, net = build(self.settings(2), digits(300), 0, fault=original)
        recorder = Recorder(net._sampler)
        net._samplers["training"] = recorder
        drive(algorithm.train(net))
        recorder.save(tmp_path / "trace.npz")
        trace = Trace(name="trace", path=str(tmp_path / "trace.npz"))
        again = stacked(self.settings(2), digits(300), fault=trace)
        each = projected(self.settings(2), digits(300), fault=trace)
        for party, tensors in algorithm.tensors(net).items():
            assert all(torch.equal(v, again.weights[party][key]) for key, v in tensors.items())
        assert difference(again, each) < 1e-6


class Outage(Exception):
    """All parties crash."""


def same_result(one: Trained, each: dict[str, Trained], within: float = 1e-6) -> None:
    """Those whom the algorithm informs, and nobody else, know the result."""
    told = {party: trained.metrics for party, trained in each.items() if trained.metrics}
    assert set(told) == set(one.algorithm.informed)
    for metrics in told.values():
        assert metrics == pytest.approx(one.metrics, abs=within)


def same_run(one: Trained, each: dict[str, Trained]) -> None:
    assert difference(one, each) < 1e-5
    same_result(one, each, within=1e-5)
    rows = sorted(one.net.ledger.rows())
    assert sorted(row for t in each.values() for row in t.net.ledger.rows()) == rows
