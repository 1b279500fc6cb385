"""Choreographies over a lossy network: groups, exchanges, engines, faults, delays and the
ledger."""

from colonnade.network.absent import ABSENT, Absent, is_absent, locally
from colonnade.network.delays import Delays
from colonnade.network.faults import Fault
from colonnade.network.inbox import Inbox, Register
from colonnade.network.ledger import Ledger
from colonnade.network.network import Network, World
from colonnade.network.parcel import ALL, EVERYONE, LATEST, Wait, deadline, first
from colonnade.network.projected import ProjectedNetwork
from colonnade.network.stacked import StackedNetwork
from colonnade.network.topology import Group, Topology

__all__ = [
    "ABSENT",
    "ALL",
    "EVERYONE",
    "LATEST",
    "Absent",
    "Delays",
    "Fault",
    "Group",
    "Inbox",
    "Ledger",
    "Network",
    "ProjectedNetwork",
    "Register",
    "StackedNetwork",
    "Topology",
    "Wait",
    "World",
    "deadline",
    "first",
    "is_absent",
    "locally",
]
