"""Training control is one object per program: two programs over the same models, each with its own
rounds, curve and end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.algorithms import registered
from colonnade.data import DataSpec, VerticalData, load
from colonnade.learning import Algorithm, Columns, Exchange, LabelHolder, Part, Settings, combine
from colonnade.learning.training import Point, Training
from colonnade.network import Delays, Network
from colonnade.network.faults import Client
from colonnade.testing.engines import difference, live, projected, stacked

EPOCHS = (3, 2)  # of the two programs
UNEVEN = Delays(compute={"exponential": 0.01}, latency=0.005)  # no two events at once


class TwoLoops(Algorithm):
    """Averaged embeddings, learnt by two loops at once over the same models."""

    name = "two-loops"
    settings = Settings
    clients = Columns()
    server = LabelHolder("aggregator")
    embedding = Exchange(clients, server, "an encoding of the columns, row by row", width=8)
    gradient = embedding.back("how the loss changes with the client's embedding")

    def build(self, net: Network) -> None:
        self.encoders = self.encoder_stack(net, self.clients, width=8)
        self.head = self.head_stack(net, self.server, 8)
        self.controls = (self.training, Training(self))
        self.curves: tuple[list[Point], list[Point]] = ([], [])
        for control, curve, epochs in zip(self.controls, self.curves, EPOCHS, strict=True):
            control.usual = epochs
            control.watch = curve.append

    async def train(self, net: Network) -> None:
        await net.concurrently(*[lambda net, k=k: self.loop(net, k) for k in range(2)])

    async def loop(self, net: Network, k: int) -> None:
        async for batch in self.controls[k].rounds(net):
            h = self.encoders(batch.x)
            inbox = await net.send(h, self.embedding, len(batch))
            mean = combine(inbox, "mean")
            batch.loss, gradient = self.head.learn(mean.value, batch.y, self.loss, inbox.any)
            shares = mean.share(gradient)
            back = await net.send(shares, self.gradient, len(batch), where=inbox.arrived)
            self.encoders.backward(h, back)

    async def predict(self, net: Network, part: Part) -> Tensor:
        logits = []
        async for batch in net.rounds(part.in_order(self.predict_rows(net))):
            inbox = await net.send(self.encoders.predict(batch.x), self.embedding, len(batch))
            logits.append(self.head.predict(inbox.mean())[0])
        return torch.cat(logits)


@pytest.fixture(autouse=True)
def _known() -> Iterator[None]:
    with registered(TwoLoops):
        yield


@pytest.fixture(scope="module")
def digits() -> VerticalData:
    return load(DataSpec(dataset="digits", rows=300, parties=3), 0)


def settings(**more: Any) -> Settings:
    return Settings(name="two", algorithm="two-loops", lr=1e-2, batch=16, **more)


def test_each_program_has_its_own_curve_and_its_own_end(digits: VerticalData) -> None:
    trained = stacked(settings(), digits)
    algorithm = trained.algorithm
    assert isinstance(algorithm, TwoLoops)
    assert [[point.epoch for point in curve] for curve in algorithm.curves] == [[1, 2, 3], [1, 2]]
    alone = algorithm.training.batches.per_epoch
    for curve in algorithm.curves:
        assert [point.round for point in curve] == [alone * (i + 1) for i in range(len(curve))]
        assert curve[-1].metrics["validation_loss"] < curve[0].metrics["validation_loss"]
    assert trained.metrics["test_accuracy"] > 0.5


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"delays": Delays(compute=0.01, latency=0.005)},
        {"delays": UNEVEN},
    ],
    ids=["calm", "delays", "uneven delays"],
)
def test_both_engines_train_the_same_model(facts: dict[str, Any], digits: VerticalData) -> None:
    one, each = stacked(settings(), digits, **facts), projected(settings(), digits, **facts)
    assert difference(one, each) < 1e-6
    assert each["server"].metrics == pytest.approx(one.metrics, abs=1e-6)
    assert each["server"].seconds == pytest.approx(one.seconds)


def test_real_parties_run_each_program_to_its_own_end(digits: VerticalData) -> None:
    """In which order the two programs change the models is not fixed there."""
    server = live(settings(), digits)["server"]
    assert isinstance(server.algorithm, TwoLoops)
    assert [len(curve) for curve in server.algorithm.curves] == list(EPOCHS)
    assert server.metrics["test_accuracy"] > 0.5


def test_under_faults_a_simulation_is_a_function_of_its_inputs(digits: VerticalData) -> None:
    facts = {"fault": Client(name="c", down=0.2, up=0.5), "delays": UNEVEN}
    one, again = (stacked(settings(), digits, **facts) for _ in range(2))
    assert difference(one, dict.fromkeys(one.weights, again)) == 0
    assert one.seconds == again.seconds
    calm = stacked(settings(), digits, delays=UNEVEN)
    assert difference(one, dict.fromkeys(one.weights, calm)) > 0, "something failed"
