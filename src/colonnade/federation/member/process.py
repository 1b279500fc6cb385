"""A party as a process: `colonnade join`."""

from __future__ import annotations

import json
import logging
import time

from rich.console import Console

from colonnade.common.private_files import private
from colonnade.common.processes import one_thread
from colonnade.federation.agreement.party_file import PartyFile
from colonnade.federation.member.aligning.process import matched, read_own_rows
from colonnade.federation.member.background_writer import BackgroundWriter
from colonnade.federation.member.folder import of_a_party
from colonnade.federation.member.folder_lock import only_one
from colonnade.federation.member.leaderless import member_kind
from colonnade.federation.member.member import Member
from colonnade.federation.member.own_data import OwnData, read_own
from colonnade.federation.member.place import place_of, visiting
from colonnade.federation.member.prediction_requests import Predictor
from colonnade.federation.member.score_requests import Scorer
from colonnade.federation.member.status import StatusLine, end_noted, status
from colonnade.network.clock import WallClock
from colonnade.network.quota import Quota
from colonnade.network.transport.zenoh import ZenohTransport, log_reasons

__all__ = ["join", "place_of", "serve", "visiting"]

log = logging.getLogger(__name__)


def join(party: PartyFile, console: Console, *, once: bool = False) -> Member:
    """Take part until it is over, or until Ctrl-C. What is wrong is told before anyone connects."""
    party.check()
    own = None if party.needs_alignment else read_own(party)
    keys = read_own_rows(party) if own is None else None
    log_reasons()
    with (
        private(party.folder, of_a_party),
        only_one(party.folder, party.party),
        end_noted(party.folder, party.party),
    ):
        if keys is not None:
            party = matched(party, keys, console)
        return _live(party, own or read_own(party), console, once)


def _live(party: PartyFile, own: OwnData, console: Console, once: bool) -> Member:
    clock = WallClock()
    quota = Quota(party.federation.network.quota_bytes, own=party.party)
    transport = ZenohTransport(place_of(party), clock, quota)
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
        with one_thread(), StatusLine(member, console) as line:
            try:
                clock.run((party.party, member.live()), ("status", line.keep_up()))
            except KeyboardInterrupt:
                member.leave()
                raise
        return member
    finally:
        transport.close()


def serve(member: Member, transport: ZenohTransport) -> None:
    transport.serve("status", lambda _, reply: reply(json.dumps(status(member)).encode()))
    if member.party in member.federation.label_holders or member.post.leader is None:
        transport.serve("predict", lambda data, reply: Predictor(member, reply).begin(data))
        transport.serve("score", lambda data, reply: Scorer(member, reply).begin(data))
