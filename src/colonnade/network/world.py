"""What every party knows: the public facts of a federation, and its programs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from colonnade.network.delays import Delays
from colonnade.network.faults import Fault
from colonnade.network.topology import Group, Topology

Run = Callable[[Any], Coroutine[Any, Any, None]]  # takes the network to run on


@dataclass(frozen=True)
class World:
    """The public facts of a federation: groups and their parties, links, faults and delays."""

    groups: tuple[Group, ...]
    columns: Group  # the column holders; the graph is over them
    seed: int = 0
    topology: Topology = field(default_factory=Topology)
    fault: Fault = field(default_factory=lambda: Fault(name="none"))
    delays: Delays = field(default_factory=Delays)

    def __post_init__(self) -> None:
        self.fault.check()
        self.delays.check()

    @property
    def parties(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(party for group in self.groups for party in group.parties))

    @cached_property
    def _exposed(self) -> frozenset[str]:
        exposed = (group for group in self.groups if group.role != "owner")
        return frozenset(party for group in exposed for party in group.parties)

    def spared(self, group: Group) -> bool:
        """Whether faults strike none of the group's members: owners that are in no other group."""
        return group.role == "owner" and self._exposed.isdisjoint(group.parties)


@dataclass(frozen=True)
class Program:
    """One of several programs that run side by side, with a leader of its own: a party by its name,
    or a group with one member. None: nobody leads it. `parties`: those that have a part in it, if
    not all; real parties that have none do not hear of it."""

    run: Run
    leader: str | Group | None
    parties: tuple[str, ...] | None = None

    def leading_party(self, world: World) -> str | None:
        """The name of the leader, None if nobody leads; ValueError if there is no such party."""
        if self.leader is None:
            return None
        parties = self.leader.parties if isinstance(self.leader, Group) else (self.leader,)
        if len(parties) != 1 or parties[0] not in world.parties:
            raise ValueError(
                f"a program is led by one party of {', '.join(world.parties)}; "
                f"found {', '.join(parties) or 'nobody'}"
            )
        return parties[0]
