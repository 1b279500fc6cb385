"""A party as a process: `colonnade join`."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from rich.console import Console

from colonnade.common.devices import computing_on
from colonnade.common.private_files import private
from colonnade.common.processes import one_thread
from colonnade.common.tracking import check_trackers
from colonnade.errors import InputError
from colonnade.federation.agreement.party_file import PartyFile
from colonnade.federation.member.aligning.process import matched, read_own_rows
from colonnade.federation.member.background_writer import BackgroundWriter
from colonnade.federation.member.finding import Finding, Found, keep, kept
from colonnade.federation.member.folder import of_a_party
from colonnade.federation.member.folder_lock import only_one
from colonnade.federation.member.leaderless import member_kind
from colonnade.federation.member.member import Member
from colonnade.federation.member.own_data import OwnData, read_own
from colonnade.federation.member.place import place_of
from colonnade.federation.member.prediction_requests import Predictor
from colonnade.federation.member.score_requests import Scorer
from colonnade.federation.member.second_process import hear_of_second, refuse_second
from colonnade.federation.member.status import StatusLine, end_noted, status
from colonnade.network.clock import WallClock
from colonnade.network.quota import Quota
from colonnade.network.transport.zenoh import ZenohTransport, log_reasons
from colonnade.network.transport.zenoh_config import FACTS

log = logging.getLogger(__name__)


def join(
    party: PartyFile, console: Console, *, once: bool = False, track: Sequence[str] = ()
) -> Member:
    """Take part until it is over, or until Ctrl-C. What is wrong with this party's own files is
    told before anyone connects. `track`: with which trackers; see tracking.py."""
    check_trackers(track)
    if track and party.party not in party.federation.label_holders:
        raise InputError(f"--track: {party.party} has no labels, and so no curve to track")
    party.check()
    log_reasons()
    with (
        private(party.folder, of_a_party),
        only_one(party.folder, party.party),
        end_noted(party.folder, party.party),
        computing_on(party.federation.method.device),
    ):
        refuse_second(party)
        if party.needs_alignment:
            party = matched(party, read_own_rows(party), console)
        facts, party, own = found_out(party)
        own.keep(party.folder)
        for note in () if own.features is None else own.features.notes:
            log.info("%s: %s", party.party, note)
        return _live(party, own, console, once, track, facts)


def found_out(party: PartyFile) -> tuple[bytes, PartyFile, OwnData]:
    """What this party tells of its file, the party with a complete federation, and its data. Where
    the federation file leaves out what the files tell, the parties find it out together."""
    federation = party.federation
    if federation.rows is None:
        return b"", party, read_own(party)
    finding, before = Finding(party), kept(party)
    if before is None and not federation.complete:
        finding.advance()  # what is wrong with the file is told before anyone connects
        clock = WallClock()
        transport = ZenohTransport(place_of(party), clock)
        transport.serve(FACTS, lambda _, reply: reply(finding.answer()))
        result: list[Found] = []

        async def find() -> None:
            result.append(await finding.find(transport))

        try:
            clock.run((party.party, find()))
        finally:
            transport.close()
        [before] = result
        keep(party.folder, before)
    if before is not None:
        party = replace(party, federation=before.complete(federation))
    own = read_own(party, finding.read)
    finding.tell(party.federation)
    return finding.answer(), party, own


def _live(
    party: PartyFile,
    own: OwnData,
    console: Console,
    once: bool,
    track: Sequence[str],
    facts: bytes,
) -> Member:
    clock = WallClock()
    quota = Quota(party.federation.network.quota_bytes, own=party.party)
    transport = ZenohTransport(place_of(party), clock, quota)
    member: Member | None = None
    try:
        member = member_kind(party.federation)(
            party.federation,
            own,
            transport,
            party.folder,
            life=time.time_ns() // 1_000_000,
            once=once,
            quota=quota,
        )
        kept = member.keeping
        kept.background, kept.stopwatch = BackgroundWriter(kept.trouble), time.perf_counter
        serve(member, transport)
        if track:
            member.record.track(track)
        transport.serve(FACTS, lambda _, reply: reply(facts))
        with one_thread(), StatusLine(member, console) as line:
            try:
                clock.run((party.party, member.live()), ("status", line.keep_up()))
            except KeyboardInterrupt:
                member.leave()
                raise
        return member
    finally:
        if member is not None and member.record.tracking is not None:
            member.record.tracking.end({}, "left before the end")
        transport.close()


def serve(member: Member, transport: ZenohTransport) -> None:
    def tell_status(data: bytes, reply: Callable[[bytes], None]) -> None:
        hear_of_second(member.party, data)
        reply(json.dumps(status(member)).encode())

    transport.serve("status", tell_status)
    if member.party in member.federation.label_holders or member.post.leader is None:
        transport.serve("predict", lambda data, reply: Predictor(member, reply).begin(data))
        transport.serve("score", lambda data, reply: Scorer(member, reply).begin(data))
