"""One choreography, two engines: what is sent, what arrives, when, and what is counted."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, cast, get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from colonnade.errors import PartyLost
from colonnade.network import (
    ABSENT,
    ALL,
    EVERYONE,
    LATEST,
    Channel,
    Delays,
    Group,
    Inbox,
    Network,
    StackedNetwork,
    Topology,
    Wait,
    World,
    deadline,
    first,
    is_absent,
    locally,
)
from colonnade.network.channel import Numbers
from colonnade.network.faults import Catastrophe, Client, Communication, Connection, Fault
from colonnade.network.topology import links_between
from colonnade.testing import run_projected, run_stacked

CLIENTS = Group("clients", tuple(f"client{i}" for i in range(4)), "client")
SERVER = Group("server", ("server",), "aggregator")
Program = Callable[[Network], Coroutine[Any, Any, Any]]


def world(**facts: Any) -> World:
    return World((CLIENTS, SERVER), CLIENTS, **facts)


def numbers(net: Network, group: Group, round: int) -> Any:
    """Each member's own value: [members here, 1, 2], or absent."""
    here = list(net.here(group))
    if not here:
        return ABSENT
    return torch.tensor([[[10.0 * i + round, -1.0]] for i in here])


async def gather(net: Network, rounds: int, wait: Wait) -> list[tuple[Any, Any, float]]:
    """Clients send a number to the server every round."""
    seen = []
    async for round in net.rounds(range(rounds)):
        value = numbers(net, CLIENTS, round)
        inbox = await net.send(value, Channel(CLIENTS, SERVER, "number", 2), 1, wait=wait)
        seen.append(locally(lambda box: (box.value.tolist(), box.arrived.tolist(), net.now), inbox))
    return seen


def both(world: World, program: Program) -> tuple[Any, Any]:
    """The result at the server, stacked and projected."""
    return run_stacked(world, program), run_projected(world, program)["server"]


FAULTS = [
    Fault(name="none"),
    Client(name="c", down=0.3, up=0.3),
    Connection(name="l", down=0.3, up=0.3),
    Communication(name="m", rate=0.5, stay=0.8),
]
DELAYS = [
    Delays(),
    Delays(compute=0.5, latency=0.1, bandwidth=1000.0),
    Delays(compute={"exponential": 1.0}, latency={"client1": 3.0, "client2": {"exponential": 1.0}}),
    Delays(compute=1.0, speed={"client3": 0.25}),
    Delays(lag={"clients": {"exponential": 1.0}, "client2": 2.0}, lag_factors={"number": 0.5}),
]


@pytest.mark.parametrize(
    "wait", [ALL, EVERYONE, LATEST, deadline(1.3), first(2)], ids=lambda w: w.kind
)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
@pytest.mark.parametrize("delays", DELAYS, ids=["none", "constant", "random", "slow client", "lag"])
def test_both_engines_receive_the_same_at_the_same_time(
    wait: Wait, fault: Fault, delays: Delays
) -> None:
    one, other = both(world(fault=fault, delays=delays, seed=3), lambda net: gather(net, 30, wait))
    for round, (expected, got) in enumerate(zip(one, other, strict=True)):
        assert expected[:2] == got[:2], round
        if wait.kind != "latest":  # registers: the stacked server has no clock of its own to show
            assert expected[2] >= got[2] - 1e-9


def test_what_is_missing_is_zero_and_marked_and_never_the_dead_partys_value() -> None:
    fault = Client(name="c", down=0.5, up=0.2)
    for values, arrived, _ in run_stacked(world(fault=fault), lambda net: gather(net, 60, ALL)):
        for slot in range(4):
            assert (values[0][slot][0][1] == -1.0) == arrived[0][slot]
            assert arrived[0][slot] or values[0][slot] == [[0.0, 0.0]]


@given(
    value=st.lists(
        st.sampled_from([0.0, 1.0, float("nan"), float("inf"), -float("inf")]),
        min_size=4,
        max_size=4,
    ),
    arrived=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_not_even_nan_of_a_missing_party_gets_through_a_mask(
    value: list[float], arrived: list[bool]
) -> None:
    raw = torch.tensor(value).view(1, 4, 1, 1)
    inbox = Inbox(raw, torch.tensor([arrived]), all(arrived))
    for result in (inbox.value[0, :, 0, 0], inbox.concat()[0, 0]):
        for got, sent, here in zip(result.tolist(), value, arrived, strict=True):
            assert (got == sent or (got != got and sent != sent)) if here else got == 0


@pytest.mark.parametrize("topology", ["complete", "grid", "ring"])
def test_what_goes_there_and_back_along_any_graph_finds_its_sender(topology: Any) -> None:
    """Devices send their number; aggregators answer each of them with sender and receiver."""
    devices = Group("devices", tuple(f"d{i}" for i in range(9)), "client")
    aggregators = Group("aggregators", devices.parties[:5], "aggregator")

    async def program(net: Network) -> Any:
        here = list(net.here(devices))
        value = torch.tensor([[float(i)] for i in here])
        inbox = await net.send(value, Channel(devices, aggregators, "number", 1), ())
        answer = locally(_stamp, inbox, torch.tensor([float(a) for a in net.here(aggregators)]))
        where = inbox.arrived
        back = await net.send(
            answer, Channel(aggregators, devices, "answer", 2, each=True), (), where=where
        )
        for i, device in enumerate(here):
            for pair, came in zip(back.value[i].tolist(), back.arrived[i].tolist(), strict=True):
                assert not came or pair[0] == device
        return {
            device: sorted(
                p[1]
                for p, c in zip(back.value[i].tolist(), back.arrived[i].tolist(), strict=True)
                if c
            )
            for i, device in enumerate(here)
        }

    public = World((devices, aggregators), devices, topology=Topology(topology))
    one, each = run_stacked(public, program), run_projected(public, program)
    merged = {device: answers for found in each.values() for device, answers in found.items()}
    assert one == merged
    assert all(i in one[i] for i in range(5)), "a party always hears itself"


def _stamp(inbox: Inbox, numbers: Tensor) -> Tensor:
    """[aggregators here, slots, 2]: the device's number and the aggregator's."""
    mine = numbers[:, None, None].expand(-1, inbox.value.shape[1], 1)
    return torch.cat([inbox.value, mine], 2)


def test_a_sender_with_nothing_to_say_does_not_keep_anybody_waiting() -> None:
    async def program(net: Network) -> Any:
        here = list(net.here(CLIENTS))
        value = torch.ones(len(here), 1) if here else ABSENT
        where = torch.tensor([i % 2 == 0 for i in here]) if here else ABSENT
        inbox = await net.send(value, Channel(CLIENTS, SERVER, "n", 1), (), where=where)
        return locally(lambda box: box.arrived.tolist(), inbox)

    assert both(world(), program) == ([[True, False, True, False]],) * 2


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_the_ledgers_of_the_parties_add_up_to_the_ledger_of_the_whole(fault: Fault) -> None:
    async def program(net: Network) -> Any:
        await gather(net, 20, ALL)
        return sorted(net.ledger.rows())

    public = world(fault=fault)
    one, each = run_stacked(public, program), run_projected(public, program)
    assert one == sorted(row for rows in each.values() for row in rows)
    if not isinstance(fault, Client | Connection | Communication):
        assert one[0] == ("training", "client0", "server", "number", 20, 20 * 2 * 4)


def test_unequal_widths_are_counted_sent_and_joined_without_their_padding() -> None:
    widths = (3, 1, 2, 3)

    async def program(net: Network) -> Any:
        here = list(net.here(CLIENTS))
        value = torch.zeros(len(here), 2, 3) if here else ABSENT
        for k, i in enumerate(here):
            cast(Tensor, value)[k, :, : widths[i]] = i + 1
        inbox = await net.send(value, Channel(CLIENTS, SERVER, "e", widths), 2)
        joined = inbox.concat()
        parts = locally(lambda box, j: box.split(j * 10), inbox, joined)
        back = await net.send(parts, Channel(SERVER, CLIENTS, "g", widths, each=True), 2)
        total = locally(lambda box: box.total().sum().item(), back)
        return locally(lambda j: j[0, 0].tolist(), joined), total, net.ledger.total()[1]

    joined, total, sent = run_stacked(world(), program)
    assert joined == [1, 1, 1, 2, 3, 3, 4, 4, 4]
    assert sent == 2 * (2 * 9 * 4)
    each = run_projected(world(), program)
    assert each["server"][0] == joined
    assert sum(result[2] for result in each.values()) == sent
    assert sum(result[1] for party, result in each.items() if party != "server") == total


def test_waiting_for_everyone_ends_with_the_name_of_a_party_that_never_returns() -> None:
    forever = world(fault=Client(name="c", down=1.0, up=0.0))
    for run in (run_stacked, run_projected):
        with pytest.raises(PartyLost, match=r"client0 is out of reach: client0 → server.*round 0"):
            run(forever, lambda net: gather(net, 1, EVERYONE))


def test_waiting_for_everyone_gets_everything_when_parties_return() -> None:
    shaky = world(fault=Client(name="c", down=0.9, up=0.1))
    for _, arrived, _ in run_stacked(shaky, lambda net: gather(net, 20, EVERYONE)):
        assert arrived == [[True] * 4]


def test_the_time_of_a_round_is_its_slowest_message_and_first_n_does_not_wait_for_it() -> None:
    slow = world(delays=Delays(compute=1.0, latency=0.5, speed={"client3": 0.1}))
    assert run_stacked(slow, lambda net: gather(net, 1, ALL))[0][2] == pytest.approx(10.5)

    async def server_time(net: Network) -> float:
        await gather(net, 1, first(3))
        return cast(StackedNetwork, net)._times(SERVER)[0] / 1e9

    assert run_stacked(slow, server_time) == pytest.approx(1.5)


def test_bandwidth_turns_bytes_into_time() -> None:
    thin = world(delays=Delays(bandwidth=64.0))  # a message has 2 numbers of 4 bytes: 64 bits
    assert run_stacked(thin, lambda net: gather(net, 1, ALL))[0][2] == pytest.approx(1.0)


def test_computing_takes_as_long_as_the_work() -> None:
    delays = Delays(compute={"clients": 2.0}, speed={"client3": 0.5})

    async def heavy(net: Network) -> float:
        channel = Channel(CLIENTS, SERVER, "number", 2)
        await net.send(numbers(net, CLIENTS, 0), channel, 1, work=3.5)
        return net.now

    one, other = both(world(delays=delays), heavy)
    assert one == other == pytest.approx(3.5 * 2.0 / 0.5)


def test_a_lag_holds_a_message_back_while_its_sender_goes_on() -> None:
    """Two kinds of message in a row: each is late by its own factor of the sender's lag."""
    delays = Delays(lag={"client1": 4.0}, lag_factors={"hint": 0.25})

    async def two(net: Network) -> list[float]:
        times = []
        for kind in ("number", "hint"):
            channel = Channel(CLIENTS, SERVER, kind, 2)
            inbox = await net.send(numbers(net, CLIENTS, 0), channel, 1, wait=first(3))
            times.append(locally(lambda box: box.arrived[0].tolist(), inbox))
        await net.send(numbers(net, CLIENTS, 0), Channel(CLIENTS, SERVER, "hint", 2), 1)
        return [*times, net.now]

    one, other = both(world(delays=delays), two)
    on_time = [True, False, True, True]
    assert one == other == [on_time, on_time, 1.0]


def test_one_draw_of_a_lag_holds_for_all_receivers() -> None:
    devices = Group("devices", tuple("abcd"), "client")
    links = links_between(devices, devices, devices.parties, Topology())
    delays = Delays(lag={"exponential": 1.0}, lag_factors={"share": 0.1})
    drawn, less = (delays.sampler(0).transfer(links, 8, kind) for kind in ("number", "share"))
    others = ~links.own
    for sender in range(4):
        mine = drawn[others & (links.senders == sender)]
        assert len(set(mine)) == 1
        assert mine[0] > 0
    assert np.allclose(0.1 * drawn, less, atol=1)
    assert not drawn[links.own].any(), "a message to oneself"


def test_a_register_shows_the_newest_message_that_has_arrived() -> None:
    late = world(delays=Delays(compute=1.0, latency={"client1": 2.5}))

    async def program(net: Network) -> Any:
        seen = []
        async for round in net.rounds(range(6)):
            value = numbers(net, CLIENTS, round)
            inbox = await net.send(value, Channel(CLIENTS, SERVER, "n", 2), 1, wait=LATEST)
            tick = numbers(net, SERVER, round)  # the server works for a second, too
            await net.send(tick, Channel(SERVER, CLIENTS, "t", 2), 1, wait=LATEST)
            seen.append(
                locally(
                    lambda box: (box.value[0, :2, 0, 0].tolist(), box.arrived[0, :2].tolist()),
                    inbox,
                )
            )
        return seen

    one, other = both(late, program)
    assert one == other
    firsts = [values[1] for values, arrived in one if arrived[1]]
    assert len(firsts) >= 2
    assert firsts == sorted(firsts), "old values come late but in order"


def test_programs_of_their_own_pace_interleave_by_virtual_time_in_both_engines() -> None:
    speed = {"client0": 1.0, "client1": 0.45, "client2": 0.21, "client3": 2.3}
    delays = Delays(compute=1.0, speed=speed)
    pairs = [Group(f"pair{i}", (f"client{i}",), "client") for i in range(4)]

    def loop(order: list[int], i: int) -> Program:
        async def program(net: Network) -> None:
            async for round in net.rounds(range(3)):
                value = numbers(net, pairs[i], round)
                inbox = await net.send(value, Channel(pairs[i], SERVER, "n", 2), 1)
                if not is_absent(inbox):
                    order.append(i)

        return program

    async def program(net: Network) -> list[int]:
        order: list[int] = []
        await net.concurrently(*[loop(order, i) for i in range(4)])
        return order

    public = World((*pairs, SERVER), CLIENTS, delays=delays)
    one, each = run_stacked(public, program), run_projected(public, program)
    assert one == each["server"]
    assert one.index(3) < one.index(0) < one.index(1) < one.index(2), "the fast ones come first"


def test_programs_can_be_started_again_and_meet_new_faults() -> None:
    pairs = [Group(f"pair{i}", (f"client{i}",), "client") for i in range(2)]

    def loop(seen: list[Any], i: int) -> Program:
        async def program(net: Network) -> None:
            async for round in net.rounds(range(12)):
                value = numbers(net, pairs[i], round)
                inbox = await net.send(value, Channel(pairs[i], SERVER, "n", 2), 1)
                seen.append(locally(lambda box: box.arrived.tolist(), inbox))

        return program

    async def program(net: Network) -> list[Any]:
        turns: list[Any] = []
        for _ in range(2):
            seen: list[list[Any]] = [[], []]
            await net.concurrently(*[loop(seen[i], i) for i in range(2)])
            turns.append(seen)
        return turns

    public = World((*pairs, SERVER), CLIENTS, fault=Client(name="c", down=0.5, up=0.5))
    one, each = run_stacked(public, program), run_projected(public, program)
    assert one == each["server"]
    assert one[0] != one[1]


def test_an_older_message_that_comes_later_does_not_overwrite_a_newer_one() -> None:
    """Latency is random, the server reads every second; a short last batch cannot stand in."""
    random = world(delays=Delays(compute=1.0, latency={"exponential": 3.0}))

    async def program(net: Network) -> Any:
        seen = []
        async for round in net.rounds(range(60)):
            rows = 1 if round % 20 else 2
            value = locally(lambda v, n: v.expand(-1, n, -1), numbers(net, CLIENTS, round), rows)
            inbox = await net.send(value, Channel(CLIENTS, SERVER, "n", 2), rows, wait=LATEST)
            tick = numbers(net, SERVER, round)
            await net.send(tick, Channel(SERVER, CLIENTS, "t", 2), 1, wait=LATEST)
            seen.append(locally(lambda box: (box.value.tolist(), box.arrived.tolist()), inbox))
        return seen

    one, other = both(random, program)
    assert one == other
    for slot in range(4):
        heard = [v[0][slot][0][0] for v, arrived in one if arrived[0][slot]]
        assert len(heard) > 10
        assert heard == sorted(heard)


def test_what_struck_in_training_holds_at_inference_and_faults_do_not_begin_anew() -> None:
    gone = Catastrophe(name="c", at=3, rate=1.0, when="always")
    long_ago = Client(name="c", down=0.3, up=0.1, when="inference")

    async def program(net: Network) -> tuple[int, list[bool]]:
        await gather(net, 5, ALL)
        later = await gather(net.within("inference"), 400, ALL)
        return 0, [all(arrived[0]) for _, arrived, _ in later]

    assert not any(run_stacked(world(fault=gone), program)[1])
    first_draw = [run_stacked(world(fault=long_ago, seed=s), program)[1][0] for s in range(40)]
    assert sum(first_draw) < 4, "four clients, each up a quarter of the time"


@pytest.mark.parametrize("numbers", get_args(Numbers))
@pytest.mark.parametrize("wait", [ALL, LATEST], ids=lambda wait: wait.kind)
def test_numbers_of_every_type_arrive_as_they_were_sent(numbers: Numbers, wait: Wait) -> None:
    """Unrounded, and counted with their true bytes."""
    channel = Channel(CLIENTS, SERVER, "n", 3, numbers=numbers)
    kind = channel.dtype
    limits: Any = torch.finfo(kind) if kind.is_floating_point else torch.iinfo(kind)
    sent = torch.tensor([[limits.min, limits.max, 1]] * 4, dtype=kind)[:, None]
    if kind.is_floating_point:
        sent[..., 2] += limits.eps

    async def program(net: Network) -> Any:
        here = list(net.here(CLIENTS))
        inbox = await net.send(sent[here] if here else ABSENT, channel, 1, wait=wait)
        got = locally(lambda box: box.value[0].equal(sent) and box.value.dtype == kind, inbox)
        return got, net.ledger.total()

    everything = (4, 4 * 3 * kind.itemsize)
    assert run_stacked(world(), program) == (True, everything)
    each = run_projected(world(), program)
    assert each["server"][0] is True
    assert sum(result[1][1] for result in each.values()) == everything[1]


def test_a_message_of_another_type_than_declared_is_refused_before_it_could_be_rounded() -> None:
    async def program(net: Network) -> None:
        value = torch.full((4, 1), 2**24 + 1)
        await net.send(value, Channel(CLIENTS, SERVER, "n", 1), ())

    with pytest.raises(TypeError, match=r"declared as torch\.float32"):
        run_stacked(world(), program)


def test_a_decision_reaches_everybody_and_branching_without_it_is_an_error() -> None:
    async def program(net: Network) -> float:
        mine = torch.tensor([7.0]) if net.here(SERVER) else ABSENT
        (decision,) = await net.agree(mine, SERVER, 1)
        return decision

    assert set(run_projected(world(), program).values()) == {7.0}
    assert run_stacked(world(), program) == 7.0
    for question in (ABSENT > 0, ABSENT == 0, ABSENT != 0):
        with pytest.raises(RuntimeError, match="branched"):
            bool(question)


def test_a_thousand_devices_on_a_grid_exchange_there_and_back() -> None:
    devices = Group("devices", tuple(f"d{i}" for i in range(1024)), "client")
    aggregators = Group("aggregators", devices.parties, "aggregator")

    async def program(net: Network) -> Any:
        inbox = await net.send(torch.ones(1024, 1, 4), Channel(devices, aggregators, "e", 4), 1)
        back = await net.send(
            inbox.value, Channel(aggregators, devices, "g", 4, each=True), 1, where=inbox.arrived
        )
        return inbox.arrived.sum().item(), back.total().sum().item(), net.ledger.total()

    public = World((devices, aggregators), devices, topology=Topology("grid"))
    arrived, total, (messages, sent) = run_stacked(public, program)
    edges = 2 * 2 * 32 * 31
    assert arrived == 1024 + edges
    assert total == 4 * (1024 + edges)
    assert (messages, sent) == (2 * edges, 2 * edges * 16)
