"""Tools to test choreographies: the same program on both engines, in virtual time.

one = stacked(settings, data, fault=fault)
each = projected(settings, data, fault=fault)
assert difference(one, each) == 0
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from colonnade.algorithms import registry
from colonnade.algorithms.algorithm import Algorithm, Settings
from colonnade.algorithms.task import Task
from colonnade.data import VerticalData
from colonnade.experiments.run import build, drive
from colonnade.network import Network, ProjectedNetwork, StackedNetwork, World
from colonnade.network.clock import Clock
from colonnade.network.transport.memory import MemoryTransport


def run_stacked(world: World, program: Callable[[Network], Coroutine[Any, Any, Any]]) -> Any:
    """The program's result with all parties in one place."""
    return drive(program(StackedNetwork(world)))


def run_projected(
    world: World, program: Callable[[Network], Coroutine[Any, Any, Any]]
) -> dict[str, Any]:
    """The program's result at each party, every party on its own network in memory."""
    clock = Clock()
    transport = MemoryTransport(clock)
    nets = [ProjectedNetwork(world, transport.seat(party)) for party in world.parties]
    results = clock.run(*[(net.party, program(net)) for net in nets])
    return dict(zip(world.parties, results, strict=True))


@dataclass
class Trained:
    """A trained algorithm as it stands at one process."""

    algorithm: Algorithm
    net: Network
    metrics: dict[str, float]
    seconds: float  # when its training ended

    @property
    def weights(self) -> dict[str, dict[str, Tensor]]:
        return self.algorithm.tensors(self.net)


def stacked(settings: Settings, data: VerticalData, seed: int = 0, **facts: Any) -> Trained:
    """Train and evaluate with all parties in one process. `facts`: fault, delays, topology."""
    algorithm, net = build(settings, data, seed, **facts)
    return drive(_train(algorithm, net))


def projected(
    settings: Settings, data: VerticalData, seed: int = 0, **facts: Any
) -> dict[str, Trained]:
    """Train and evaluate with every party on its own."""
    kind, task = registry()[settings.algorithm], Task.of(data, seed)

    def program(net: Network) -> Coroutine[Any, Any, Trained]:
        algorithm = kind(settings, task)
        algorithm.join(net, data)
        return _train(algorithm, net)

    return run_projected(kind(settings, task).world(**facts), program)


async def _train(algorithm: Algorithm, net: Network) -> Trained:
    await algorithm.train(net)
    ended = net.now
    return Trained(algorithm, net, await algorithm.evaluate(net), ended)


def difference(one: Trained, each: dict[str, Trained]) -> float:
    """The largest difference of any weight of any party."""
    gaps = [0.0]
    for party, tensors in one.weights.items():
        mine = each[party].weights[party]
        assert mine.keys() == tensors.keys()
        gaps += [float((mine[name] - value).abs().max()) for name, value in tensors.items()]
    return max(gaps)
