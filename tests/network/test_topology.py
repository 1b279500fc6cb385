"""Graphs and edge lists."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import InputError
from colonnade.network.topology import Group, Topology, links_between


def devices(n: int) -> Group:
    return Group("devices", tuple(f"d{i}" for i in range(n)))


def test_clients_and_server_are_all_linked_whatever_the_graph_of_the_clients() -> None:
    clients, server = devices(9), Group("server", ("server",), "aggregator")
    links = links_between(clients, server, clients.parties, Topology("grid"))
    assert links.shape == (1, 9)
    assert links.complete
    assert not links.own.any()


def _kings_moves(side: int) -> Any:
    """Neighbours at a distance up to √2."""
    paths: Any = nx.strong_product(nx.path_graph(side), nx.path_graph(side))
    return nx.convert_node_labels_to_integers(paths)


@given(side=st.integers(2, 6), kind=st.sampled_from(["grid", "ring", "geometric"]))
def test_edge_lists_agree_with_networkx(side: int, kind: str) -> None:
    group = devices(side * side)
    topology = Topology(kind, 1.5 if kind == "geometric" else None)  # pyright: ignore[reportArgumentType]
    links = links_between(group, group, group.parties, topology)
    heard = {
        (int(links.senders[r, j]), int(r)) for r, j in zip(*np.nonzero(links.real), strict=True)
    }
    graph = {
        "grid": lambda: nx.convert_node_labels_to_integers(nx.grid_2d_graph(side, side)),
        "ring": lambda: nx.cycle_graph(side * side),
        "geometric": lambda: _kings_moves(side),
    }[kind]()
    expected = {(a, b) for edge in graph.edges for a, b in (edge, edge[::-1])}
    expected |= {(i, i) for i in range(side * side)}
    assert heard == expected
    assert (links.senders[links.own] == np.nonzero(links.own)[0]).all()


@given(side=st.integers(2, 5))
def test_the_opposite_direction_lists_the_same_neighbours_in_the_same_order(side: int) -> None:
    group = devices(side * side)
    aggregators = Group("aggregators", group.parties[::2], "aggregator")
    out = links_between(group, aggregators, group.parties, Topology("grid"))
    back = links_between(aggregators, group, group.parties, Topology("grid"))
    assert back.out_degree == out.shape[1]
    for r, j in zip(*np.nonzero(back.real), strict=True):
        aggregator, slot = back.senders[r, j], back.outgoing[r, j]
        assert out.senders[aggregator, slot] == r
        assert out.real[aggregator, slot]


def test_cost_grows_with_edges_not_with_parties_squared() -> None:
    group = devices(32 * 32)
    links = links_between(group, group, group.parties, Topology("grid"))
    assert links.shape == (1024, 5)
    assert links.edges == 1024 + 2 * 2 * 32 * 31


def test_a_grid_of_ten_is_refused_with_what_would_do() -> None:
    with pytest.raises(InputError, match="square number"):
        Topology("grid").neighbours(10)


def test_a_geometric_graph_needs_a_radius() -> None:
    with pytest.raises(InputError, match="radius"):
        Topology("geometric").neighbours(9)
