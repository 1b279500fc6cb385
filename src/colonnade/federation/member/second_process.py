"""A process that listens elsewhere than the federation file says: is another process of this party
running where the others connect? Nobody would connect to this one, and nobody else could tell."""

from __future__ import annotations

import logging

from colonnade.errors import InputError
from colonnade.federation.agreement.party_file import PartyFile
from colonnade.federation.member.place import visiting
from colonnade.network.transport.zenoh_asking import ask

log = logging.getLogger(__name__)

SECOND = b"second"  # with the question for a status: a second process asks, and will end
PATIENCE = 2.0  # seconds


def refuse_second(party: PartyFile) -> None:
    """InputError: a process with this party's certificate answers at the party's address."""
    address = party.federation.party(party.party).endpoint
    if address is None or party.listen in (None, address) or party.federation.network.hub:
        return
    if ask(visiting(party), party.party, "status", SECOND, timeout=PATIENCE) is None:
        return
    raise InputError(
        f"{party.source}: {party.party} takes part already: a process with its certificate answers "
        f"at {address}, its address in the federation file. End that one first; this one, which "
        f"would listen at {party.listen}, has not taken part"
    )


def hear_of_second(party: str, payload: bytes) -> None:
    """Log it, if a second process of this party has asked."""
    if payload == SECOND:
        log.warning(
            "%s: a second process with our certificate was started, listening elsewhere; it has "
            "been refused",
            party,
        )
