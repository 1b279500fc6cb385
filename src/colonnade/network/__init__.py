"""Choreographies over a lossy network: groups, exchanges, engines, faults, delays and the
ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colonnade.common import lazy
from colonnade.network.absent import ABSENT, Absent, is_absent, local, locally
from colonnade.network.delays import Delays
from colonnade.network.faults import Fault
from colonnade.network.ledger import Ledger
from colonnade.network.topology import Group, Topology

if TYPE_CHECKING:
    from colonnade.network.channel import Channel
    from colonnade.network.inbox import Inbox, Register
    from colonnade.network.network import Network
    from colonnade.network.parcel import ALL, EVERYONE, LATEST, Wait, deadline, first
    from colonnade.network.projected import ProjectedNetwork
    from colonnade.network.stacked import StackedNetwork
    from colonnade.network.world import Program, World

__all__ = [
    "ABSENT",
    "ALL",
    "EVERYONE",
    "LATEST",
    "Absent",
    "Channel",
    "Delays",
    "Fault",
    "Group",
    "Inbox",
    "Ledger",
    "Network",
    "Program",
    "ProjectedNetwork",
    "Register",
    "StackedNetwork",
    "Topology",
    "Wait",
    "World",
    "deadline",
    "first",
    "is_absent",
    "local",
    "locally",
]

__getattr__ = lazy.attributes(
    __name__,
    {
        "channel": ("Channel",),
        "inbox": ("Inbox", "Register"),
        "network": ("Network",),
        "parcel": ("ALL", "EVERYONE", "LATEST", "Wait", "deadline", "first"),
        "projected": ("ProjectedNetwork",),
        "stacked": ("StackedNetwork",),
        "world": ("Program", "World"),
    },
)
