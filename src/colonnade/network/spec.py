"""The keys of a `[network]` table that simulated and real networks share."""

from __future__ import annotations

import msgspec

from colonnade.network.topology import Kind, Topology


class GraphSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is linked to whom."""

    topology: Kind = "complete"
    radius: float | None = None

    @property
    def graph(self) -> Topology:
        return Topology(self.topology, self.radius)
