"""A party as a process: `colonnade join`."""

from __future__ import annotations

import fcntl
import json
import logging
import time
from dataclasses import replace
from typing import TextIO

from rich.console import Console

from colonnade.errors import InputError
from colonnade.experiments.run import one_thread
from colonnade.federation.background import Background
from colonnade.federation.equals import member_kind
from colonnade.federation.member import Member
from colonnade.federation.own import read_own
from colonnade.federation.party import PartyFile
from colonnade.federation.predicting import Predictor
from colonnade.federation.status import StatusLine, status
from colonnade.network.clock import WallClock
from colonnade.network.quota import Quota
from colonnade.network.transport.zenoh import Place, ZenohTransport, log_reasons

log = logging.getLogger(__name__)

LOCK = "lock"


def join(party: PartyFile, console: Console, *, once: bool = False) -> Member:
    """Take part until it is over, or until Ctrl-C. What is wrong is told before anyone connects."""
    party.check()
    own = read_own(party)
    log_reasons()
    clock = WallClock()
    lock = only_one(party)
    quota = Quota(party.federation.network.quota_bytes, own=party.party)
    transport = ZenohTransport(place_of(party), clock, quota)
    try:
        member = member_kind(party.federation)(
            party.federation,
            own,
            transport,
            party.folder,
            born=time.time_ns() // 1_000_000,
            once=once,
            quota=quota,
        )
        member.background, member.stopwatch = Background(), time.perf_counter
        serve(member, transport)
        with one_thread(), StatusLine(member, console) as line:
            try:
                clock.run((party.party, member.live()), ("status", line.keep_up()))
            except KeyboardInterrupt:
                member.leave()
                raise
        return member
    finally:
        transport.close()
        lock.close()


def only_one(party: PartyFile) -> TextIO:
    """A folder is one process's: two would overwrite each other's checkpoints."""
    party.folder.mkdir(parents=True, exist_ok=True)
    lock = (party.folder / LOCK).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise InputError(
            f"{party.folder}: {party.party} is running already, and uses this folder; end that "
            "process, or give the party file another folder"
        ) from None
    return lock


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


def serve(member: Member, transport: ZenohTransport) -> None:
    transport.serve("status", lambda _, reply: reply(json.dumps(status(member)).encode()))
    if member.post.leads or member.post.leader is None:
        transport.serve("predict", lambda data, reply: Predictor(member, reply).begin(data))
