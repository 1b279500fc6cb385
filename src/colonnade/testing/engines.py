"""The same program on every engine: all parties in one process, each on its own, as deployed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from colonnade.algorithms import registry
from colonnade.data import VerticalData
from colonnade.experiments.run import build, drive
from colonnade.learning.algorithm import Algorithm
from colonnade.learning.settings import Settings
from colonnade.learning.task import Task
from colonnade.network import Network, ProjectedNetwork, StackedNetwork, World
from colonnade.network.clock import SECOND, Clock, WallClock
from colonnade.network.live.following import finish
from colonnade.network.live.joining import take_part
from colonnade.network.live.network import Live
from colonnade.network.live.post import Post
from colonnade.network.program_counter import END, ProgramCounter
from colonnade.network.transport.memory import MemoryTransport
from colonnade.network.transport.transport import Transport

PATIENCE = 60.0  # seconds; a busy machine must not change the result of a test


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


def run_live(
    world: World, program: Callable[[Network], Coroutine[Any, Any, Any]], leader: str | None
) -> dict[str, Any]:
    """The program's result at each party as real parties run it, in memory and in virtual time."""
    clock = Clock()
    transport = MemoryTransport(clock)
    posts = [Post(world, transport.seat(party), leader=leader, life=1) for party in world.parties]
    for post in posts:
        post.listen()
    run = partial(take_part, program=program, gather=PATIENCE, patience=PATIENCE)
    results = clock.run(*[(post.party, run(post)) for post in posts])
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
    kind, task = registry()[settings.algorithm], Task.of(data, seed, facts.get("delays"))

    def program(net: Network) -> Coroutine[Any, Any, Trained]:
        algorithm = kind(settings, task)
        algorithm.join(net, data)
        return _train(algorithm, net)

    return run_projected(kind(settings, task).world(**facts), program)


def live(settings: Settings, data: VerticalData, seed: int = 0) -> dict[str, Trained]:
    """Train and evaluate as real parties do, but in one thread and in virtual time."""
    clock = Clock()
    room = MemoryTransport(clock)
    parties = _members(settings, data, seed, room.seat)
    results = clock.run(*[(party, program()) for party, program in parties.items()])
    return dict(zip(parties, results, strict=True))


def over_zenoh(
    settings: Settings, data: VerticalData, keys: Path, seed: int = 0
) -> dict[str, Trained]:
    """Train and evaluate over mutual TLS, every party in a thread of its own. `keys`: a folder for
    certificates."""
    from colonnade.federation.keys.certificates import make_authority, make_certificate
    from colonnade.federation.keys.identity import Identity
    from colonnade.federation.member.local_files import free_addresses
    from colonnade.network.transport.zenoh import Place, ZenohTransport

    names = registry()[settings.algorithm](settings, Task.of(data, seed)).world().parties
    make_authority(keys, "test")
    for party in names:
        make_certificate(keys, party)
    at = dict(zip(names, free_addresses(len(names)), strict=True))

    def seat(party: str) -> ZenohTransport:
        others = tuple(name for name in names if name != party)
        earlier = {name: at[name] for name in names[: names.index(party)]}
        identity = Identity.of(keys, party)
        return ZenohTransport(
            Place(party, at[party], earlier, names, others, identity), WallClock()
        )

    seats = {party: seat(party) for party in names}
    try:
        parties = _members(settings, data, seed, seats.__getitem__)
        with ThreadPoolExecutor(len(names)) as pool:
            runs = {
                party: pool.submit(seats[party].clock.run, (party, program()))
                for party, program in parties.items()
            }
            return {party: run.result()[0] for party, run in runs.items()}
    finally:
        for each in seats.values():
            each.close()


def _members(
    settings: Settings, data: VerticalData, seed: int, seat: Callable[[str], Transport]
) -> Mapping[str, Callable[[], Coroutine[Any, Any, Trained]]]:
    """What each party runs. Built one after the other: their first weights come from torch's global
    stream."""
    kind, task = registry()[settings.algorithm], Task.of(data, seed)
    programs = {}
    for party in kind(settings, task).world().parties:
        algorithm = kind(settings, task)
        post = Post(algorithm.world(), seat(party), leader=algorithm.leader)
        algorithm.join(Live(post), data)
        programs[party] = lambda algorithm=algorithm, post=post: _live(algorithm, post)
    return programs


async def _live(algorithm: Algorithm, post: Post) -> Trained:
    nets: list[Live] = []

    async def train(net: Live) -> None:
        nets[:] = [net]
        await algorithm.train(net)

    post.listen()
    await take_part(post, train, gather=PATIENCE, patience=PATIENCE)
    finish(post)
    ended, (net,) = post.clock.now, nets
    test = Live(post, "test", patience=PATIENCE)
    test.origin, test.phase, test.ledger = ProgramCounter((END, 1)), "inference", net.ledger
    metrics = await algorithm.test(test) if algorithm.data.test.rows else {}
    return Trained(algorithm, net, metrics, ended / SECOND)


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
