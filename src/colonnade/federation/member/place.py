"""The place of a party in the network of its federation."""

from __future__ import annotations

from dataclasses import replace

from colonnade.federation.agreement.party_file import PartyFile
from colonnade.network.transport.zenoh_config import Place


def place_of(party: PartyFile) -> Place:
    """Along the links of the federation: of two parties, the later one in the file connects."""
    federation = party.federation
    net, members = federation.network, federation.members
    neighbours = federation.neighbours(party.party)
    earlier = members[: members.index(party.party)]
    servers = [net.hub] if net.hub else [p for p in neighbours if p in earlier]
    return Place(
        party=party.party,
        listen="" if net.hub not in (None, party.party) else party.listening or "",
        connect={p: federation.party(p).endpoint or "" for p in servers if p != party.party},
        members=members,
        neighbours=neighbours,
        identity=party.identity,
        hub=net.hub,
        lease=net.lease,
        largest=net.largest * 2**20,
    )


def visiting(party: PartyFile) -> Place:
    """For a second process of this party that asks others something."""
    place = place_of(party)
    endpoints = {p.name: p.endpoint for p in party.federation.parties if p.endpoint}
    return replace(place, listen=place.listen if place.is_hub else "", connect=endpoints)
