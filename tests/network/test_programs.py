"""Programs side by side: each at its own pace, on one clock, under one weather, on every engine."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import torch

from colonnade.network import (
    ABSENT,
    ALL,
    LATEST,
    Channel,
    Delays,
    Group,
    Inbox,
    Network,
    Program,
    World,
    deadline,
    first,
    is_absent,
    locally,
)
from colonnade.network.faults import Catastrophe, Client, Communication, Connection, Device, Fault
from colonnade.network.program_counter import MAIN
from colonnade.testing import run_live, run_projected, run_stacked

CLIENTS = Group("clients", ("client0", "client1", "client2"), "client")
SERVER = Group("server", ("server",), "aggregator")
EACH = [Group(f"only{i}", (party,), "client") for i, party in enumerate(CLIENTS.parties)]
Story = Callable[[Network], Coroutine[Any, Any, Any]]

ENGINES: dict[str, Callable[[World, Story], Any]] = {
    "stacked": run_stacked,
    "projected": lambda world, program: run_projected(world, program)["server"],
    "live": lambda world, program: run_live(world, program, "server")["server"],
    "live, nobody leads": lambda world, program: run_live(world, program, None)["server"],
}
SIMULATED = {name: ENGINES[name] for name in ("stacked", "projected")}
everywhere = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
simulated = pytest.mark.parametrize("engine", SIMULATED.values(), ids=SIMULATED)


def world(**facts: Any) -> World:
    return World((CLIENTS, SERVER, *EACH), CLIENTS, **facts)


def numbers(net: Network, group: Group, number: float) -> Any:
    """[members here, 1, 1], or absent."""
    here = list(net.here(group))
    return torch.full((len(here), 1, 1), float(number)) if here else ABSENT


async def gather(net: Network, number: float, src: Group = CLIENTS, wait: Any = ALL) -> Inbox:
    """The group sends a number to the server."""
    channel = Channel(src, SERVER, "number", 1)
    return await net.send(numbers(net, src, number), channel, 1, wait=wait)


def seen(inbox: Inbox) -> Any:
    return locally(lambda box: (box.value[0, :, 0, 0].tolist(), box.arrived[0].tolist()), inbox)


@everywhere
def test_after_a_restart_each_program_goes_on_at_its_own_round(engine: Any) -> None:
    done: list[list[int]] = [[], []]

    def loop(k: int) -> Story:
        async def program(net: Network) -> None:
            async for round in net.rounds(range(6)):
                if net.here(SERVER):
                    done[k].append(round)
                await gather(net, round)

        return program

    async def story(net: Network) -> None:
        start = MAIN.at(0, 1)
        net.rounds_by_program |= {start.beside(0): 2, start.beside(1): 5}
        await net.concurrently(loop(0), loop(1))

    engine(world(), story)
    assert done == [[2, 3, 4, 5], [5]]


@everywhere
def test_how_far_each_program_is_can_be_kept(engine: Any) -> None:
    found: list[dict[Any, int]] = []

    def loop(rounds: int) -> Story:
        async def program(net: Network) -> None:
            async for _ in net.rounds(range(rounds)):
                await gather(net, 0.0)
            assert net.rounds_by_program[net.origin] == rounds

        return program

    async def story(net: Network) -> None:
        net.watch_side_by_side = lambda child: found.append(dict(child.rounds_by_program))
        await net.concurrently(loop(2), loop(4))

    engine(world(), story)
    first_one, second_one = (MAIN.at(0, 1).beside(k) for k in range(2))
    counts = [(kept.get(first_one, 0), kept.get(second_one, 0)) for kept in found]
    assert (2, 4) in counts
    assert all(one <= 2 and other <= 4 for one, other in counts)


@everywhere
def test_registers_of_one_program_are_not_those_of_another(engine: Any) -> None:
    """The first program is far ahead when the second one writes."""

    def loop(found: list[Any], number: int, later: int) -> Story:
        async def program(net: Network) -> None:
            async for _ in net.rounds(range(later)):
                await gather(net, -1.0)
            async for round in net.rounds(range(8)):
                found.append(seen(await gather(net, number + round, wait=LATEST)))

        return program

    async def story(net: Network) -> Any:
        found: list[list[Any]] = [[], []]
        await net.concurrently(loop(found[0], 100, 0), loop(found[1], 200, 5))
        return found

    for k, found in enumerate(engine(world(), story)):
        assert found == [([100.0 * (k + 1) + round] * 3, [True] * 3) for round in range(8)]


@simulated
def test_a_party_computes_for_one_program_at_a_time(engine: Any) -> None:
    """Three clients compute for a second at the same time; the server answers one after another."""

    def loop(i: int) -> Story:
        async def program(net: Network) -> None:
            await gather(net, 1.0, EACH[i])
            answer = Channel(SERVER, EACH[i], "answer", 1)
            await net.send(numbers(net, SERVER, 1.0), answer, 1)

        return program

    async def story(net: Network) -> float:
        await net.concurrently(*[loop(i) for i in range(3)])
        return net.now

    assert engine(world(delays=Delays(compute=1.0)), story) == pytest.approx(4.0)


@simulated
def test_a_party_that_waits_in_one_program_computes_for_another(engine: Any) -> None:
    """Client 0 takes 10 s; meanwhile the server answers client 1 three times."""

    def loop(i: int, rounds: int, ends: list[float]) -> Story:
        async def program(net: Network) -> None:
            async for _ in net.rounds(range(rounds)):
                inbox = await gather(net, 1.0, EACH[i])
                answer = Channel(SERVER, EACH[i], "answer", 1)
                await net.send(numbers(net, SERVER, 1.0), answer, 1)
                locally(lambda _: ends.append(net.now), inbox)

        return program

    async def story(net: Network) -> list[float]:
        ends: list[float] = []
        await net.concurrently(loop(0, 1, ends), loop(1, 3, ends))
        return ends

    speed = {"client0": 0.1}
    slow = world(delays=Delays(compute=1.0, speed=speed))
    assert engine(slow, story) == pytest.approx([2.0, 4.0, 6.0, 11.0])


FAULTS = [
    Client(name="client", down=0.4, up=0.4),
    Device(name="device", rate=0.4),
    Device(name="device that stays", rate=0.4, stay=0.6),
    Connection(name="connection", down=0.4, up=0.4),
    Communication(name="communication", rate=0.4),
    Catastrophe(name="catastrophe", at=5, rate=0.7, recovery=4),
]


@simulated
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_who_is_down_is_down_in_all_programs(engine: Any, fault: Fault) -> None:
    def loop(arrived: list[Any], up: list[Any]) -> Story:
        async def program(net: Network) -> None:
            async for _ in net.rounds(range(30)):
                inbox = await gather(net, 1.0)
                arrived.append(locally(lambda box: box.arrived[0].tolist(), inbox))
                up.append(net.alive(CLIENTS).tolist())

        return program

    async def story(net: Network) -> Any:
        seen: list[tuple[list[Any], list[Any]]] = [([], []) for _ in range(3)]
        await net.concurrently(*[loop(*lists) for lists in seen])
        return seen

    one, *others = engine(world(fault=fault, seed=2), story)
    assert all(other == one for other in others)
    assert len({tuple(arrived) for arrived in one[0]}) > 2, "something fails, and not always"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_programs_of_unequal_pace_meet_the_same_faults_on_both_engines(fault: Fault) -> None:
    def loop(found: list[Any], i: int) -> Story:
        async def program(net: Network) -> None:
            async for _ in net.rounds(range(10 * (i + 1))):
                found.append((i, seen(await gather(net, 1.0, EACH[i]))))

        return program

    async def story(net: Network) -> Any:
        found: list[list[Any]] = [[] for _ in EACH]
        await net.concurrently(*[loop(found[i], i) for i in range(3)])
        after = seen(await gather(net, 2.0))  # what fell is still down
        return found, after

    public = world(fault=fault, delays=Delays(compute={"exponential": 1.0}), seed=5)
    assert run_stacked(public, story) == run_projected(public, story)["server"]


def test_what_fell_in_programs_side_by_side_is_down_when_they_have_ended() -> None:
    async def loop(net: Network) -> None:
        async for _ in net.rounds(range(8)):
            await gather(net, 1.0)

    async def story(net: Network) -> Any:
        await net.concurrently(loop, loop)
        return seen(await gather(net.within("inference"), 1.0))[1]

    for fault in (
        Catastrophe(name="c", at=3, rate=1.0, when="always"),
        Client(name="c", down=1.0, up=0.0, when="always"),
    ):
        assert run_stacked(world(fault=fault), story) == [False] * 3
        assert run_projected(world(fault=fault), story)["server"] == [False] * 3


@everywhere
def test_decisions_phases_waits_and_the_ledger_work_inside_programs(engine: Any) -> None:
    def loop(k: int, told: list[float], waits: Any) -> Story:
        async def program(net: Network) -> None:
            async for round in net.rounds(range(3)):
                inbox = await gather(net, round, wait=waits)
                apart = net.within("validation")
                async for _ in apart.rounds(range(2)):
                    got = seen(await gather(apart, 10 * k + round))
                    assert is_absent(got) or got == ([10.0 * k + round] * 3, [True] * 3)
                mine = locally(lambda box: box.value.sum((0, 1, 2)), inbox)
                told.extend(await net.agree(mine, SERVER, 1))

        return program

    async def story(net: Network) -> Any:
        told: list[list[float]] = [[], [], []]
        ways = [ALL, first(2), deadline(5.0)]
        await net.concurrently(*[loop(k, told[k], wait) for k, wait in enumerate(ways)])
        sent = [row for row in net.ledger.rows() if row[1] == "server"]
        return told, sum(row[-2] for row in sent)

    told, decisions = engine(world(), story)
    assert told[0] == [0.0, 3.0, 6.0]
    assert told[2] == [0.0, 3.0, 6.0]
    assert [got in (2.0 * r, 3.0 * r) for r, got in enumerate(told[1])] == [True] * 3
    assert decisions == 3 * 3 * 3  # programs, rounds, receivers


def test_a_program_names_one_party_as_its_leader() -> None:
    async def nothing(net: Network) -> None:
        await gather(net, 1.0)

    for leader in (CLIENTS, "nobody"):

        async def story(net: Network, leader: Any = leader) -> None:
            await net.concurrently(Program(nothing, leader))

        for run in (run_stacked, run_projected, lambda w, p: run_live(w, p, "server")):
            with pytest.raises(ValueError, match="led by one party of client0"):
                run(world(), story)


@pytest.mark.parametrize("leaders", [("server", "client0"), (SERVER, None), (None, None)])
def test_programs_with_leaders_of_their_own_compute_the_same_on_every_engine(leaders: Any) -> None:
    def loop(found: list[Any], i: int) -> Story:
        async def program(net: Network) -> None:
            async for round in net.rounds(range(5)):
                found.append(seen(await gather(net, 10 * i + round)))

        return program

    async def story(net: Network) -> Any:
        found: list[list[Any]] = [[], []]
        pairs = zip(found, leaders, strict=True)
        await net.concurrently(*[Program(loop(f, i), who) for i, (f, who) in enumerate(pairs)])
        return found

    results = [engine(world(), story) for engine in ENGINES.values()]
    assert results[0][1] == [([10.0 + round] * 3, [True] * 3) for round in range(5)]
    assert all(result == results[0] for result in results)
