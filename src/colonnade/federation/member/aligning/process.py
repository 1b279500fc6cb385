"""Matching rows as a process: `colonnade align`, and the first step of `join` where the federation
file asks for it."""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from colonnade.common.private_files import private
from colonnade.data.table_files import opened, row_count
from colonnade.errors import InputError
from colonnade.federation.agreement.alignment_file import (
    ALIGNMENT,
    Addition,
    Alignment,
    read_alignment,
    write_alignment,
)
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.party_file import PartyFile, with_alignment
from colonnade.federation.member.aligning.bars import Bars
from colonnade.federation.member.aligning.follower import Follower
from colonnade.federation.member.aligning.leader import Leader
from colonnade.federation.member.finding import matching
from colonnade.federation.member.folder import STATUS, of_a_party
from colonnade.federation.member.folder_lock import only_one
from colonnade.federation.member.own_data import feature_names
from colonnade.federation.member.own_keys import (
    check_there,
    check_unchanged,
    has_label,
    read_keys,
)
from colonnade.federation.member.place import place_of
from colonnade.federation.member.stage import Stage
from colonnade.federation.member.status import end_noted, write_status
from colonnade.network.clock import WallClock
from colonnade.network.quota import Quota
from colonnade.network.transport.transport import Transport
from colonnade.network.transport.zenoh import Place, ZenohTransport, log_reasons
from colonnade.network.transport.zenoh_config import FACTS
from colonnade.privacy.alignment.keys import KeyColumn
from colonnade.privacy.alignment.protocols import protocol

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """What a party may tell its user of a run. Never which rows."""

    alignment: Alignment
    seconds: float
    bytes: int  # that left this party
    addition: Addition | None = None  # where rows were added, also if there were no new ones


@dataclass(frozen=True)
class OwnRows:
    """What a party brings to a run."""

    keys: KeyColumn | None = None  # None: it has no rows
    # By row: whether it has a label, so that it can be trained on. For the leader.
    labelled: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    rows: int = 0
    order: str = ""  # the secret that decided the order of rows before, at the leader
    before: Alignment | None = None  # which rows are added to


def align(party: PartyFile, console: Console, *, add: bool = False) -> Outcome:
    """Match rows with the others, whatever was matched before. `add`: only rows that are not in the
    alignment yet; what is new is put behind the others, and not trained on."""
    if party.federation.rows is None or party.federation.rows.match is None:
        raise InputError(
            f"{party.source}: its federation file does not say that rows are matched; set "
            'match = "private" in [rows], and leave aligned out'
        )
    party.check()
    log_reasons()
    with (
        private(party.folder, of_a_party),
        only_one(party.folder, party.party),
        end_noted(party.folder, party.party),
    ):
        before = _to_add_to(party) if add else None
        return match_rows(party, read_own_rows(party, before), console)


def _to_add_to(party: PartyFile) -> Alignment:
    found = with_alignment(party).alignment
    if found is None:
        raise InputError(
            f"{party.folder / ALIGNMENT}: is not there, so that there is nothing to add rows to; "
            "match the rows first, at every party: colonnade align, without --add"
        )
    return found


def match_rows(party: PartyFile, own: OwnRows, console: Console) -> Outcome:
    """The caller holds the lock of the party's folder."""
    rows, net = party.federation.rows, party.federation.network
    assert rows is not None
    assert rows.match is not None
    if warning := protocol(rows.match).warning:
        log.warning("%s", warning)
    clock, begun = WallClock(), time.monotonic()
    transport = ZenohTransport(star(party), clock, Quota(net.quota_bytes, own=party.party))
    try:
        with Bars(console) as bars:
            kept: list[Alignment] = []

            def keep(found: Alignment) -> None:
                write_alignment(party.folder, found)
                kept.append(found)

            side = side_of(party.federation, own, transport, keep=keep, watch=bars.show)
            waits = own.before is not None  # whoever joins meanwhile waits, and is told when it can
            transport.serve(
                FACTS, lambda _, reply: reply(b"" if kept or waits else matching(party.federation))
            )
            status = _status(party)
            write_status(party.folder / STATUS, status)
            transport.serve("status", lambda _, reply: reply(json.dumps(status).encode()))
            side.listen(life=time.time_ns() // 1_000_000)
            (found,) = clock.run((party.party, side.run_to_the_end()))
    finally:
        transport.close()
    if isinstance(side, Follower):
        side.check_confirmed()
    return Outcome(found, time.monotonic() - begun, side.bytes, side.addition)


def matched(party: PartyFile, own: OwnRows, console: Console) -> PartyFile:
    """The party once its rows are matched, for `join`."""
    outcome = match_rows(party, own, console)
    log.info("%s", sentence(party, outcome))
    return with_alignment(party)


def side_of(
    federation: Federation, own: OwnRows, transport: Transport, **more: Any
) -> Leader | Follower:
    leader, arguments = federation.speaker, (federation, transport, own.keys)
    more["before"] = own.before
    if transport.party == leader:
        return Leader(*arguments, labelled=own.labelled, order=own.order, **more)
    return Follower(*arguments, leader=leader, rows=own.rows, **more)


def read_own_rows(party: PartyFile, before: Alignment | None = None) -> OwnRows:
    """The keys in this party's file; what is wrong with them is told before anyone connects.
    `before`: an alignment that rows are added to."""
    rows, spec, federation = party.federation.rows, party.data, party.federation
    assert rows is not None
    assert rows.match is not None
    protocol(rows.match)  # or it is not installed
    if spec is None or spec.id is None:
        return OwnRows(before=before)
    path = Path(spec.path)
    with opened(path, spec.sql, party.folder) as columns:
        check_there(columns, spec.id, path, "data.id")
        check_there(columns, spec.label, path, "data.label")
        if party.holds_columns:
            feature_names(columns, spec, rows, party.party, path)
        keys = read_keys(columns[spec.id], path, spec.id, rows)
        labelled = np.ones(row_count(columns), dtype=bool)
        one_leads = federation.leader is not None and not federation.roles.several
        if spec.label is not None and one_leads:
            labelled = has_label(columns[spec.label])
        if before is not None:
            check_unchanged(keys, before, path)
        return OwnRows(keys, labelled, len(labelled), _order_before(party), before)


def _order_before(party: PartyFile) -> str:
    """So that, as far as possible, the same rows are for training and test as before."""
    try:
        before = read_alignment(party.folder)
    except InputError:  # it is made anew anyway
        return ""
    return "" if before is None else before.facts.order


def star(party: PartyFile) -> Place:
    """Every party talks with the leader only."""
    federation, place = party.federation, place_of(party)
    members, leader = federation.members, federation.speaker
    others = tuple(member for member in members if member != party.party)
    neighbours = others if party.party == leader else (leader,)
    if federation.network.hub:
        return replace(place, neighbours=neighbours)
    earlier = members[: members.index(party.party)]
    connect = {p: federation.party(p).endpoint or "" for p in neighbours if p in earlier}
    return replace(place, neighbours=neighbours, connect=connect)


def sentence(party: PartyFile, outcome: Outcome) -> str:
    facts, common = outcome.alignment.facts, len(outcome.alignment.rows)
    who = party.party
    if outcome.addition is not None:
        return f"{who}: {_added(party, outcome.addition, outcome.alignment)}"
    if outcome.alignment.notes:
        return f"{who}: {outcome.alignment.notes[0]}"
    if party.data is None:
        return f"{who}: the others have matched {facts.aligned:,} rows for training and test"
    empty = f" ({facts.empty:,} of them without a key)" if facts.empty else ""
    later = f", {facts.aligned:,} of them with a label" if facts.aligned < common else ""
    sizes = "".join(f"; {party} has {keys:,} keys" for party, keys in facts.sizes.items())
    if facts.partial:
        mine = int((outcome.alignment.rows >= 0).sum())
        return (
            f"{who}: of {facts.rows:,} rows here{empty}, {mine:,} are at {party.federation.speaker}"
            f", too, and are used; {common:,} are used in all{later}{sizes}"
        )
    return f"{who}: of {facts.rows:,} rows here{empty}, {common:,} are at every party{later}{sizes}"


def _added(party: PartyFile, addition: Addition, alignment: Alignment) -> str:
    count, rows = addition.rows, party.federation.rows
    assert rows is not None
    here = f"of {addition.others:,} rows here that were not matched yet"
    where = "at one of them or more" if rows.partial else "at every party"
    sizes = "".join(f"; {other} has {keys:,} such keys" for other, keys in addition.sizes.items())
    if party.data is None:
        here, where, sizes = "of all rows that were not matched yet", "common ones", ""
    elif addition.matched:
        here += "".join(
            f", {many:,} {'are ' if not i else ''}at {other} (of {addition.sizes[other]:,})"
            for i, (other, many) in enumerate(addition.matched.items())
        )
        sizes = ""
    elif rows.partial:
        here += f", {int((alignment.rows[-count:] >= 0).sum()) if count else 0:,} are used"
        where = "used in all"
    if not count:
        return f"{here}; none are {where}, so nothing has changed{sizes}"
    whole = f"{len(alignment.rows) - count:,} " if party.data is not None else ""
    return (
        f"{here}; {count:,} are {where}, and were added behind the other {whole}rows. They are not "
        f"trained on, and can be predicted{sizes}"
    )


def _status(party: PartyFile) -> dict[str, Any]:
    return {
        "party": party.party,
        "process": os.getpid(),
        "stage": Stage.MATCHING,
        "round": 0,
        "rounds": 0,
        "away": {},
        "late": [],
        "refused": 0,
    }
