"""What files say of networks: the keys of a `[network]` table that simulated and real networks
share, and the key `wire` of a method."""

from __future__ import annotations

from typing import Literal

import msgspec

from colonnade.network.topology import Kind, Topology

Wire = Literal["float16", "bfloat16", "int8"]  # what numbers are rounded to; see rounding.py


class GraphSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is linked to whom."""

    topology: Kind = "complete"
    radius: float | None = None

    @property
    def graph(self) -> Topology:
        return Topology(self.topology, self.radius)
