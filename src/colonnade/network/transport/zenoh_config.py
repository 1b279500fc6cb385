"""The place of a party in a federation as a configuration of Zenoh: endpoints, TLS, access rules.

Without a hub every party is a peer and there is one link per pair of neighbours. With a hub, the
hub is a router and the others are its clients: a router does not pass messages from peer to peer.
Scouting by multicast and gossip is off, because it would connect every party with every other.

Access is denied unless a rule allows it, and rules are about the common name of the certificate at
the other end of a link. They also close what TLS leaves open: the connecting side of Zenoh accepts
certificates of the public web authorities besides ours. TLS is from link to link: a hub can read
what it passes on and could send under any name. Parties that do not trust a hub so far use none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import zenoh

from colonnade.common.party_names import check_party
from colonnade.errors import InputError

OVERHEAD = 2**16  # of a message's key and header, at most
RETRY = {"period_init_ms": 100, "period_max_ms": 500, "period_increase_factor": 2}
MESSAGES = ("put", "delete")
WATCHING = ("declare_liveliness_subscriber", "liveliness_query")
SIZED = ("put", "delete", "query", "reply")

Rule = dict[str, Any]
STATUS = "status"  # the question that every member may ask
FACTS = "facts"  # what neighbours may ask as well: numbers of rows and columns


class TlsFiles(Protocol):
    """The files by which a party proves who it is, and knows who the others are."""

    @property
    def authority(self) -> Path: ...
    @property
    def certificate(self) -> Path: ...
    @property
    def key(self) -> Path: ...


@dataclass(frozen=True)
class Place:
    """The place of a party in a federation: with which parties it is connected, and how."""

    party: str
    listen: str  # host:port; empty if it only connects
    connect: Mapping[str, str]  # neighbour -> the host:port at which this party connects to it
    members: tuple[str, ...]  # every name of the federation
    neighbours: tuple[str, ...]  # exchange messages with this party, directly or through the hub
    identity: TlsFiles | None  # None: plain TCP, only if the user asks for it
    hub: str | None = None  # passes on all messages; the others connect to the hub only
    lease: float = 1.5  # seconds until a silent party counts as gone
    largest: int = 64 * 2**20  # bytes of one message

    def __post_init__(self) -> None:
        named = [self.party, *self.neighbours, *self.connect, *([self.hub] if self.hub else [])]
        for name in self.members:
            check_party(name, "members")  # a name with a wildcard would be a rule for everybody
        if strangers := sorted(set(named) - set(self.members)):
            raise InputError(f"members: {', '.join(strangers)} missing from {list(self.members)}.")
        for address in filter(None, [self.listen, *self.connect.values()]):
            check_address(address)
        if self.behind_hub and self.hub not in self.connect:
            raise InputError(f"connect: {self.party!r} needs the address of the hub {self.hub!r}.")
        if self.is_hub and not self.listen:
            raise InputError(f"listen: the hub {self.hub!r} needs an address to listen at.")

    @property
    def is_hub(self) -> bool:
        return self.party == self.hub

    @property
    def behind_hub(self) -> bool:
        return self.hub is not None and not self.is_hub

    @property
    def servers(self) -> dict[str, str]:
        """The parties that this one connects to, with their addresses."""
        if self.is_hub:
            return {}
        return {self.hub: self.connect[self.hub]} if self.hub else dict(self.connect)

    def way_to(self, party: str) -> dict[str, str]:
        """The address to which a second process of this party connects in order to ask `party`."""
        server = self.hub or party
        address = self.connect.get(server) or (self.listen if server == self.party else "")
        if not address:
            raise InputError(f"connect: the address of {server!r} is missing; expected host:port.")
        return {server: address}


def check_address(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise InputError(f"{address!r} is not an address; expected host:port, such as lab:7447.")


def configuration(
    place: Place, *, visiting: Mapping[str, str] | None = None, patience: float = -1
) -> zenoh.Config:
    """`visiting`: for a second process of the party: the addresses that it connects to; it listens
    nowhere. `patience`: seconds until opening a client's session fails."""
    protocol = "tls" if place.identity else "tcp"
    servers = place.servers if visiting is None else visiting
    client = place.behind_hub or (visiting is not None and len(visiting) == 1)
    listen = "" if client or visiting is not None else place.listen
    settings: dict[str, Any] = {
        "mode": "client" if client else "router" if place.is_hub else "peer",
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "scouting/delay": 0,  # else opening takes half a second
        "listen/endpoints": [f"{protocol}/{listen}"] if listen else [],
        "connect/endpoints": [f"{protocol}/{address}" for address in servers.values()],
        "connect/timeout_ms": round(patience * 1000) if client else -1,  # 0 means: never retry
        "connect/exit_on_failure": client,
        "connect/retry": RETRY,
        "transport/shared_memory/enabled": False,
        "transport/link/protocols": [protocol],
        **_limits(place),
    }
    if place.identity:
        settings["transport/link/tls"] = _certificates(place.identity)
        settings["access_control"] = access(place)
    config = zenoh.Config()
    for key, value in settings.items():
        config.insert_json5(key, json.dumps(value))
    return config


def _limits(place: Place) -> dict[str, Any]:
    """Limits of time and of size. `max_message_size` refuses a message of many fragments while it
    arrives; the filter, which sees whole messages only, has the exact limit."""
    sized = {
        "flows": ["ingress", "egress"],
        "messages": SIZED,
        "key_exprs": ["vfl/**"],
        "size_limit": place.largest,
    }
    return {
        "transport/link/tx/lease": round(place.lease * 1000),
        "transport/link/tx/queue/congestion_control/block/wait_before_close": round(
            place.lease * 1e6
        ),
        "transport/link/rx/max_message_size": place.largest + OVERHEAD,
        "low_pass_filter": [sized],
    }


def _certificates(identity: TlsFiles) -> dict[str, Any]:
    key, certificate = str(identity.key), str(identity.certificate)
    return {
        "root_ca_certificate": str(identity.authority),
        "enable_mtls": True,
        "verify_name_on_connect": True,
        "close_link_on_expiration": True,
        "listen_private_key": key,
        "listen_certificate": certificate,
        "connect_private_key": key,
        "connect_certificate": certificate,
    }


def access(place: Place) -> dict[str, Any]:
    """The access rules: what may pass a link, by the name in the certificate at its other end."""
    others = [place.hub] if place.behind_hub else place.members
    rules = [rule for other in others for rule in _rules_with(place, str(other))]
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": rules,
        "subjects": [{"id": other, "cert_common_names": [other]} for other in others],
        "policies": [
            {
                "subjects": [other],
                "rules": [r["id"] for r in rules if r["id"].startswith(f"{other} ")],
            }
            for other in others
        ],
    }


def _rules_with(place: Place, other: str) -> Iterator[Rule]:
    """The rules for links to `other`. A hub sends messages of all parties. A member that is not a
    neighbour may only ask and be asked; so may a second process of this party."""
    here = "*" if place.is_hub else place.party
    there = "*" if other == place.hub else other
    talks = other != place.party and (place.hub is not None or other in place.neighbours)
    for flow, source, target in (("ingress", there, here), ("egress", here, there)):
        for messages, keys in _allowed(source, target, talks):
            yield {
                "id": f"{other} {flow} {messages[0]}",
                "permission": "allow",
                "flows": [flow],
                "messages": messages,
                "key_exprs": list(keys),
            }


def _allowed(
    source: str, target: str, talks: bool
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """What may go from source to target: messages of the source, and subscriptions to messages for
    it. Every member may ask for a party's status, and neighbours for the facts of its file; all
    other questions are for processes of that party only."""
    if talks:
        yield MESSAGES, (f"vfl/{source}/to/{target}",)
        yield ("declare_subscriber",), (f"vfl/*/to/{source}",)
    yield ("liveliness_token",), (f"vfl/{source}/alive/*",)
    yield WATCHING, ("vfl/*/alive/*",)
    asked = (STATUS, FACTS) if talks else (STATUS,)
    yield ("query",), (*(f"vfl/{target}/ask/{name}" for name in asked), f"vfl/{source}/ask/*")
    yield ("declare_queryable", "reply"), (f"vfl/{source}/ask/*",)
