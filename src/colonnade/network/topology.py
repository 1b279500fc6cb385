"""Which parties are linked: groups of parties, the graph between devices, and lists of links.

The graph connects the column holders (clients, devices). Every other party (server, owner) is
linked to all parties. A party that is in both groups of an exchange is always linked to itself; its
message to itself never leaves it, never fails and is never counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from colonnade.errors import InputError

if TYPE_CHECKING:
    import networkx as nx
    from torch import Tensor


@dataclass(frozen=True)
class Group:
    """Parties that do the same thing. `role` says which faults strike them: client, aggregator or
    owner."""

    name: str
    parties: tuple[str, ...]
    role: Literal["client", "aggregator", "owner"] = "client"
    whole: str = ""  # of a group made by `only`: the name of the whole group
    place: int = 0  # of a group made by `only`: the number of its member in the whole group

    def __len__(self) -> int:
        return len(self.parties)

    @property
    def declared(self) -> str:
        """The name by which ledger, messages and settings know these parties."""
        return self.whole or self.name

    def only(self, member: int) -> Group:
        """One member as a group, for a program in which the others of the group have no part."""
        ends = (self.declared, self.place + member)
        return Group(f"{self.declared}[{ends[1]}]", (self.parties[member],), self.role, *ends)


@dataclass(frozen=True, eq=False)
class Links:
    """The links from one group to another, by receiver: slot j of receiver r is its j-th sender.

    Sparse rows are padded; `real` is False there. The links of the opposite direction list the same
    neighbours in the same order, so what receiver r computes per slot can be sent back with
    `each=True` as it stands.
    """

    src: Group
    dst: Group
    senders: np.ndarray  # [receivers, in-degree] index of the sender in src
    outgoing: np.ndarray  # [receivers, in-degree] position of the link among those of its sender
    real: np.ndarray  # [receivers, in-degree] bool
    own: np.ndarray  # [receivers, in-degree] bool: sender and receiver are the same party
    out_degree: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.senders.shape[0], self.senders.shape[1]

    @property
    def edges(self) -> int:
        return int(self.real.sum())

    @cached_property
    def complete(self) -> bool:
        """Every receiver is linked to every sender, in order: an exchange is then a view, not a
        copy."""
        return bool(self.real.all()) and self.shape[1] == len(self.src)

    @cached_property
    def all_arrived(self) -> Tensor:
        return _tensor(self.real.copy())

    def of_senders(self, senders: tuple[int, ...]) -> list[tuple[int, int]]:
        """Receiver and slot of every link from these members; cached, because each exchange
        asks."""
        if senders not in self._of_senders:
            chosen = np.nonzero(self.real & np.isin(self.senders, senders))
            pairs = [(int(r), int(j)) for r, j in zip(*chosen, strict=True)]
            self._of_senders[senders] = pairs
        return self._of_senders[senders]

    @cached_property
    def _of_senders(self) -> dict[tuple[int, ...], list[tuple[int, int]]]:
        return {}

    @cached_property
    def everywhere(self) -> bool:
        """No padding: with no faults, every slot arrives."""
        return bool(self.real.all())

    @cached_property
    def gather(self) -> Tensor:
        return _tensor(self.senders.reshape(-1).copy())

    @cached_property
    def gather_addressed(self) -> Tensor:
        """The index of slot (r, j) in a flattened [senders, out-degree] value."""
        return _tensor((self.senders * self.out_degree + self.outgoing).reshape(-1))


def _tensor(array: np.ndarray) -> Tensor:
    import torch

    return torch.from_numpy(array)


Kind = Literal["complete", "grid", "ring", "geometric"]


@dataclass(frozen=True)
class Topology:
    """The graph between the column holders. `radius` (in patch units) belongs to `geometric`."""

    kind: Kind = "complete"
    radius: float | None = None

    def neighbours(self, n: int) -> list[list[int]] | None:
        """The neighbours of each device, itself included, in ascending order; None: all devices."""
        if self.kind == "complete":
            return None
        graph = self._graph(n)
        return [sorted([i, *graph[i]]) for i in range(n)]

    def diameter(self, n: int) -> int:
        """The largest number of hops between two devices."""
        return _diameter(self, n)

    def cut_off(self, n: int) -> list[int]:
        """The devices that are not connected with the first one."""
        if self.kind == "complete":
            return []
        import networkx as nx

        return sorted(set(range(n)) - nx.node_connected_component(self._graph(n), 0))

    def _graph(self, n: int) -> nx.Graph:
        """The graph of the devices 0 to n - 1."""
        import networkx as nx  # 0.9 s to import: only where a sparse graph is needed

        if self.kind == "ring":
            graph = nx.cycle_graph(n) if n > 2 else nx.path_graph(n)
            return graph
        side = _side(n, self.kind)
        if self.kind == "grid":
            graph = nx.grid_2d_graph(side, side)
        else:
            if self.radius is None:
                raise InputError("network.radius: the geometric topology needs a radius, e.g. 1.5")
            places = {(i, j): (i, j) for i in range(side) for j in range(side)}
            graph = nx.Graph()
            graph.add_nodes_from((node, {"pos": place}) for node, place in places.items())
            graph.add_edges_from(nx.geometric_edges(graph, radius=self.radius))
        return nx.convert_node_labels_to_integers(graph, ordering="sorted")


@cache
def _diameter(topology: Topology, n: int) -> int:
    if topology.kind == "complete":
        return min(1, n - 1)
    if topology.cut_off(n):
        raise InputError(
            f'network.topology = "{topology.kind}": is not connected, so some devices cannot hear '
            "of each other; take a larger radius"
        )
    import networkx as nx

    return nx.diameter(topology._graph(n), usebounds=True)


def links_between(src: Group, dst: Group, nodes: tuple[str, ...], topology: Topology) -> Links:
    """The edge list from src to dst, given the graph over `nodes` (the column holders)."""
    neighbours = topology.neighbours(len(nodes))
    if neighbours is None or not _both_on_graph(src, dst, nodes):
        senders = np.tile(np.arange(len(src)), (len(dst), 1))
        real = np.ones(senders.shape, dtype=bool)
        outgoing = np.tile(np.arange(len(dst))[:, None], (1, len(src)))
        out_degree = len(dst)
    else:
        senders, real = _table(dst, src, nodes, neighbours)
        receivers, out_real = _table(src, dst, nodes, neighbours)
        position = {
            (int(s), int(r)): j
            for s, row in enumerate(receivers)
            for j, r in enumerate(row)
            if out_real[s, j]
        }
        outgoing = np.zeros_like(senders)
        for r, j in zip(*np.nonzero(real), strict=True):
            outgoing[r, j] = position[int(senders[r, j]), int(r)]
        out_degree = receivers.shape[1]
    same = {party: i for i, party in enumerate(src.parties)}
    own_sender = np.array([same.get(party, -1) for party in dst.parties])[:, None]
    return Links(src, dst, senders, outgoing, real, real & (senders == own_sender), out_degree)


def _both_on_graph(src: Group, dst: Group, nodes: tuple[str, ...]) -> bool:
    return set(src.parties) <= set(nodes) and set(dst.parties) <= set(nodes)


def _table(
    of: Group, to: Group, nodes: tuple[str, ...], neighbours: list[list[int]]
) -> tuple[np.ndarray, np.ndarray]:
    """For every member of `of`, its neighbours in `to`, padded to the largest degree."""
    place = {party: i for i, party in enumerate(nodes)}
    member = {party: i for i, party in enumerate(to.parties)}
    rows = [
        [member[nodes[k]] for k in neighbours[place[party]] if nodes[k] in member]
        for party in of.parties
    ]
    degree = max((len(row) for row in rows), default=0)
    table = np.zeros((len(rows), degree), dtype=np.int64)
    real = np.zeros((len(rows), degree), dtype=bool)
    for i, row in enumerate(rows):
        table[i, : len(row)] = row
        real[i, : len(row)] = True
    return table, real


def _side(n: int, kind: str) -> int:
    side = round(n**0.5)
    if side * side != n:
        raise InputError(
            f"network.topology: {kind} lays the devices on a square, so data.parties must be a "
            f"square number (4, 9, 16, …), not {n}"
        )
    return side
