"""Training by programs side by side: who does how many rounds, and one member of a group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from colonnade.algorithms.vafl import VAFLSettings
from colonnade.common.processes import one_thread
from colonnade.learning.side_by_side import PACE, Order, Rows
from colonnade.models.optim import Optimizer
from colonnade.models.stack import Stack
from colonnade.network import Channel, Delays, Group
from colonnade.testing.engines import Trained, stacked
from colonnade.testing.kit import digits


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def trained(**facts: Any) -> Trained:
    method = VAFLSettings(name="vafl", algorithm="vafl", epochs=4)
    return stacked(method, digits(300), **facts)


def rounds_of(trained: Trained) -> list[int]:
    progress = trained.algorithm.training.progress
    return [int(progress[f"{PACE}{k}"]) for k in range(4)]


def test_without_delays_all_clients_visit_equally_often() -> None:
    assert len(set(rounds_of(trained()))) == 1


def test_a_client_of_half_the_speed_visits_half_as_often_and_the_epoch_is_as_long() -> None:
    delays = Delays(compute={"clients": 1.0}, speed={"client3": 0.5})
    *fast, slow = rounds_of(found := trained(delays=delays))
    assert slow / (sum(fast) / 3) == pytest.approx(0.5, abs=0.1)
    assert sum(rounds_of(found)) == sum(rounds_of(trained()))


def test_a_program_goes_over_all_its_rows_before_it_begins_again() -> None:
    rows = torch.tensor([3, 5, 7, 11, 13])
    order = Order(Rows(rows, "client0"), size=2, epoch=1, seed=0, most=9)
    for first in (0, 3, 6):
        seen = torch.cat([order[first + i].rows for i in range(3)])
        assert sorted(seen.tolist()) == rows.tolist()
    other = Order(Rows(rows, "client1"), size=5, epoch=1, seed=0, most=9)
    same = Order(Rows(rows, "client0"), size=5, epoch=1, seed=0, most=9)
    assert same[0].rows.tolist() == torch.cat([order[i].rows for i in range(3)]).tolist()
    assert any(other[i].rows.tolist() != same[i].rows.tolist() for i in range(3))


def test_one_member_of_a_group_is_named_after_it() -> None:
    clients = Group("clients", ("a", "b", "c"))
    server = Group("server", ("s",), "aggregator")
    alone = clients.only(1)
    assert (alone.parties, alone.declared, alone.place) == (("b",), "clients", 1)
    channel = Channel(clients, server, "embedding", (4, 5, 6)).only(src=2)
    assert (channel.src.parties, channel.width, channel.kind) == (("c",), 6, "embedding")
    back = Channel(server, clients, "gradient", (4, 5, 6), each=True).only(dst=0)
    assert (back.dst.parties, back.width) == (("a",), 4)


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_one_member_of_a_stack_learns_what_it_would_learn_on_its_own(kind: str) -> None:
    def modules() -> list[nn.Module]:
        torch.manual_seed(0)
        made = [nn.Sequential(nn.Linear(5, 3), nn.ReLU()) for _ in range(2)]
        return [*made, nn.Sequential(nn.Linear(5, 4), nn.Tanh())]

    rule = Optimizer("adam" if kind == "adam" else "sgd", 0.1, momentum=0.5)
    stack, alone = Stack(modules(), rule, places=[0, 2, 3]), modules()
    own = [Stack([module], rule) for module in alone]
    x = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(1))
    for member, place in [(0, 0), (2, 3), (0, 0), (1, 2)]:
        view, ours = stack.only(place), x[member : member + 1]
        h, expected = view(ours), own[member](ours)
        assert torch.equal(h, expected)
        stack.only(2)(x[1:2])  # a forward computation of another program in between
        view.backward(h, torch.ones_like(h))
        own[member].backward(expected, torch.ones_like(expected))
    together = torch.ones(3, 7, 4)
    stack.backward(stack(x), together)
    for member, mine in enumerate(own):
        out = mine(x[member : member + 1])
        mine.backward(out, torch.ones_like(out))
        for name, value in stack.member_state(member).items():
            assert torch.allclose(value, mine.member_state(0)[name]), name
    assert stack.only(1).members == 0, "that member is not here"
