"""What can be wrong with a federation; every error names the key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from colonnade.common.party_names import check_party
from colonnade.common.text import nearest
from colonnade.errors import InputError
from colonnade.federation.agreement.specs import PartySpec, Roles, RowsSpec, address
from colonnade.network.topology import Links, Topology

if TYPE_CHECKING:
    from colonnade.learning.task import Task

WIDER = 'Take topology = "complete", or a larger radius where the topology is geometric'


def names(parties: tuple[PartySpec, ...]) -> None:
    for i, party in enumerate(parties):
        check_party(party.name, f"parties[{i}].name")
        if any(other.name == party.name for other in parties[:i]):
            raise InputError(
                f"parties[{i}].name: {party.name!r} is there twice; a party that does two things "
                "has roles = [...]"
            )


def partial_rows(rows: RowsSpec | None, leader: str | None) -> None:
    """Only the label holder has every row where others lack some."""
    by = None if rows is None or not rows.partial else rows.split_by
    if by is not None and by.party != leader:
        raise InputError(
            f'rows.split_by.party = "{by.party}": with partial = true a party may lack rows, and '
            f"cannot say what they are for; expected the label holder, {leader!r}"
        )


def roles(parties: tuple[PartySpec, ...], known: Roles) -> None:
    for i, party in enumerate(parties):
        if not party.roles:
            raise InputError(f"parties[{i}].role: missing; expected one of {', '.join(known.all)}")
        for role in party.roles:
            if role not in known.all:
                raise InputError(
                    f"parties[{i}].role: {role!r} is not a role of this method"
                    f"{nearest(role, known.all)}; there are {', '.join(known.all)}"
                )
    for role in known.all:
        if role not in known.optional and not any(role in party.roles for party in parties):
            raise InputError(f"parties: nobody has the role {role!r}, which this method needs")
    holders = [party.name for party in parties if known.labels and known.labels in party.roles]
    if len(holders) > 1 and not known.several:
        raise InputError(
            f"parties: {' and '.join(holders)} have the role {known.labels!r}; one party holds the "
            "labels"
        )


def columns(parties: tuple[PartySpec, ...], roles: Roles) -> None:
    for i, party in enumerate(parties):
        where, holder = f"parties[{i}].columns", roles.columns in party.roles
        if party.columns is not None and not holder:
            raise InputError(
                f"{where}: {party.name!r} is not one of the {roles.columns}, so it brings no "
                f"columns; leave it out, or add {roles.columns!r} to its roles"
            )
        if party.columns is not None and party.columns < 1:
            raise InputError(f"{where} = {party.columns}: expected 1 or more")


def class_names(parties: tuple[PartySpec, ...], roles: Roles, rows: RowsSpec) -> None:
    """Parties that know different classes must give them the same numbers."""
    holders = [party.name for party in parties if roles.labels in party.roles]
    if len(holders) > 1 and rows.count and not rows.names:
        raise InputError(
            f"rows.classes = {rows.count}: {', '.join(holders)} hold labels, and each may know "
            'some of the classes only; give the names of all, e.g. classes = ["no", "yes"]'
        )


def addresses(parties: tuple[PartySpec, ...]) -> None:
    taken: dict[tuple[str, int], str] = {}
    for i, party in enumerate(parties):
        if party.endpoint is None:
            continue
        where = f"parties[{i}].endpoint"
        host, port = address(party.endpoint, where)
        other = taken.setdefault((host.lower(), port), party.name)
        if other != party.name:
            raise InputError(
                f'{where} = "{party.endpoint}": is the endpoint of {other!r} as well; on one '
                "machine each party needs its own port"
            )


def widths(parties: tuple[PartySpec, ...], task: Task) -> None:
    """Where the data says how many columns a party has, the party need not, nor otherwise."""
    has = dict(zip(task.clients, task.widths, strict=True))
    for i, party in enumerate(parties):
        if party.columns is not None and party.columns != has[party.name]:
            raise InputError(
                f"parties[{i}].columns = {party.columns}: but {party.name!r} has "
                f"{has[party.name]} columns of [data]; leave it out"
            )


def connected(topology: Topology, clients: tuple[str, ...]) -> None:
    if cut := [clients[i] for i in topology.cut_off(len(clients))]:
        raise InputError(
            f'network.topology = "{topology.kind}": is not connected; nothing leads from '
            f"{clients[0]} to {', '.join(cut)}. {WIDER}"
        )


def linked(topology: Topology, links: Links) -> None:
    """Everybody in an exchange has somebody to exchange with."""
    heard = set(links.senders[links.real].tolist())
    silent = [name for i, name in enumerate(links.src.parties) if i not in heard]
    hearing = np.asarray(links.real.any(1))
    deaf = [name for i, name in enumerate(links.dst.parties) if not hearing[i]]
    for lonely, group in ((silent, links.dst), (deaf, links.src)):
        if lonely:
            raise InputError(
                f'network.topology = "{topology.kind}": {lonely[0]} is not linked to any of '
                f"{group.name} ({', '.join(group.parties)}), but this method sends from "
                f"{links.src.name} to {links.dst.name}. {WIDER}"
            )
