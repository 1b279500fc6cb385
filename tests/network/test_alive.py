"""Who is up for a computation: drawn once for a round without an exchange, and the same whoever
asks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from colonnade.network import Channel, Delays, Fault, Group, Network, World, is_absent
from colonnade.network.faults import Aggregator, Client
from colonnade.testing import run_projected, run_stacked

CLIENTS = Group("clients", ("a", "b"), "client")
SERVER = Group("server", ("s",), "aggregator")
OWNER = Group("owner", ("o",), "owner")
# Whoever is called changes its state: up, down, up, ...
FLIPPING = Client(name="flipping", down=1.0, up=1.0)


def world(fault: Fault, *groups: Group) -> World:
    return World(groups or (CLIENTS, SERVER, OWNER), CLIENTS, fault=fault)


def everywhere(world: World, program: Any) -> list[Any]:
    """The program's result with all parties in one place, and at each party."""
    return [run_stacked(world, program), *run_projected(world, program).values()]


def test_a_group_that_computes_alone_is_called_once_in_a_round() -> None:
    async def program(net: Network) -> list[bool]:
        seen = []
        async for _ in net.rounds(range(4)):
            for _again in range(3):
                net.alive(CLIENTS)
            seen.append(bool(net.alive(CLIENTS).all()))
        return seen

    one, *each = everywhere(world(FLIPPING), program)
    assert one == [False, True, False, True]
    at_clients = each[:2]
    assert at_clients == [one, one]


def test_an_exchange_is_the_call_and_asking_afterwards_draws_nothing() -> None:
    channel = Channel(CLIENTS, SERVER, "n", 1)

    async def program(net: Network) -> list[tuple[bool, bool]]:
        seen = []
        async for _ in net.rounds(range(3)):
            value = net.pick(CLIENTS, torch.ones(2, 1, 1))
            await net.send(value, channel, 1)
            first = bool(net.alive(CLIENTS).all())
            net.alive(SERVER)
            seen.append((first, bool(net.alive(CLIENTS).all())))
        return seen

    one, *each = everywhere(world(FLIPPING), program)
    assert one == [(False, False), (True, True), (False, False)]
    assert each[0] == each[1] == one


def test_an_owner_is_always_up_and_to_ask_for_it_draws_nothing() -> None:
    fault = Aggregator(name="flipping", down=1.0, up=1.0)

    async def program(net: Network) -> list[bool]:
        seen = []
        async for round in net.rounds(range(4)):
            assert net.alive(OWNER).all()
            if round % 2:
                seen.append(bool(net.alive(SERVER).all()))
        return seen

    one, *each = everywhere(world(fault), program)
    assert one == each[2] == [False, True]  # the server was drawn in the rounds that asked for it


def test_an_owner_that_holds_columns_as_well_can_be_down() -> None:
    both = Group("owner", ("a",), "owner")

    async def program(net: Network) -> bool:
        async for _ in net.rounds(range(1)):
            pass
        return bool(net.alive(both).all())

    assert run_stacked(world(FLIPPING, CLIENTS, both), program) is False


def test_a_value_that_all_know_is_cut_to_the_members_here() -> None:
    async def program(net: Network) -> Any:
        return net.pick(CLIENTS, torch.tensor([[1.0], [2.0]]))

    one, a, b, server, _ = everywhere(world(Fault(name="none")), program)
    assert (one.tolist(), a.tolist(), b.tolist()) == ([[1.0], [2.0]], [[1.0]], [[2.0]])
    assert is_absent(server)


@pytest.mark.parametrize("latency", [0.0, 0.01])
def test_of_two_programs_the_one_whose_lines_run_is_asked(latency: float) -> None:
    """A stack is shared by programs; who is up depends on the program that takes the step."""
    channel = Channel(CLIENTS, SERVER, "n", 1)
    seen: list[str] = []

    async def child(net: Network) -> None:
        async for _ in net.rounds(range(3)):
            assert net.running is net
            await net.send(net.pick(CLIENTS, torch.ones(2, 1, 1)), channel, 1)
            assert net.running is net
            seen.append(net.program)

    async def program(net: Network) -> None:
        await net.concurrently(child, child)

    facts = World((CLIENTS, SERVER), CLIENTS, delays=Delays(latency=latency))
    run_stacked(facts, program)
    assert len(seen) == 6
    assert seen != sorted(seen), "the two programs took turns"
    run_projected(facts, program)
