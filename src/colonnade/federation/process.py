"""A party as a process: `colonnade join`."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import msgspec
from rich.console import Console
from rich.logging import RichHandler
from rich.status import Status
from rich.text import Text

from colonnade.errors import ColonnadeError, InputError
from colonnade.experiments.run import one_thread
from colonnade.federation.member import AT_ONCE, Answer, Member, Question, predictions
from colonnade.federation.own import read_own
from colonnade.federation.party import PartyFile
from colonnade.network.clock import SECOND, WallClock
from colonnade.network.transport.zenoh import Place, ZenohTransport, log_reasons

log = logging.getLogger(__name__)

STATUS, LOCK = "status.json", "lock"
SHOW = SECOND // 2  # between two looks at the state


class Asked(msgspec.Struct, frozen=True):
    """What `colonnade predict` sends to the label holder."""

    ids: list[str] | None = None  # None: the rows that nobody trained on


class Predicted(msgspec.Struct, frozen=True):
    """What it gets back, row by row."""

    ids: list[str]
    classes: list[str]  # names, by number
    predictions: list[int]
    probabilities: list[float]
    absent: list[list[str]]
    error: str = ""


def join(party: PartyFile, console: Console, *, once: bool = False) -> Member:
    """Take part until it is over, or until Ctrl-C. What is wrong is told before anyone connects."""
    party.check()
    own = read_own(party)
    log_reasons()
    clock = WallClock()
    lock = only_one(party)
    transport = ZenohTransport(place_of(party), clock)
    try:
        member = Member(
            party.federation,
            own,
            transport,
            party.folder,
            born=time.time_ns() // 1_000_000,
            once=once,
        )
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
    return replace(place, listen="", connect=endpoints)


# -- what others may ask ---------------------------------------------------------------------------


def serve(member: Member, transport: ZenohTransport) -> None:
    transport.serve("status", lambda _, reply: reply(json.dumps(status(member)).encode()))
    if member.post.leads:
        transport.serve("predict", lambda data, reply: Predictor(member, reply).begin(data))


def status(member: Member) -> dict[str, Any]:
    """What a party tells of itself."""
    state = member.state
    return {
        "party": member.party,
        "process": os.getpid(),
        "stage": state.stage,
        "round": state.round,
        "rounds": state.rounds,
        "away": {party: round(seconds, 1) for party, seconds in member.away().items()},
        "late": [party for party, peer in member.post.peers.items() if peer.late],
        "refused": member.post.refused,
    }


class Predictor:
    """One request for predictions, in as many questions as it takes."""

    def __init__(self, member: Member, reply: Callable[[bytes], None]) -> None:
        self.member, self.reply = member, reply
        self.ids: list[str] = []
        self.answers: list[Answer] = []

    def begin(self, data: bytes) -> None:
        member = self.member
        try:
            asked = msgspec.json.decode(data or b"{}", type=Asked)
        except msgspec.MsgspecError as error:
            self.fail(f"not a request: {error}")
            return
        if member.state.result is None:
            state = member.state
            self.fail(f"{member.party} is not ready: {state.stage}, round {state.round}")
            return
        self.ids = new_rows(member) if asked.ids is None else asked.ids
        unknown = [one for one in self.ids if one not in member.own.places]
        if unknown:
            self.fail(f"{member.party} has no row {unknown[0]!r}")
            return
        self.next()

    def next(self) -> None:
        start = len(self.answers) * AT_ONCE
        chosen = self.ids[start : start + AT_ONCE]
        if not chosen:
            self.finish()
            return
        self.member.questions.append(Question(chosen, self.take))
        self.member.wake.notify()

    def take(self, answer: Answer) -> None:
        self.answers.append(answer)
        self.next()

    def finish(self) -> None:
        chosen: list[int] = []
        likely: list[float] = []
        absent: list[list[str]] = []
        for answer in self.answers:
            classes, probabilities = predictions(answer)
            chosen += classes
            likely += [round(float(p.max()), 6) for p in probabilities]
            absent += [list(answer.absent)] * len(classes)
        task = self.member.algorithm.task
        names = list(self.member.own.classes) or [str(i) for i in range(task.classes)]
        self.answer(Predicted(self.ids, names, chosen, likely, absent))

    def fail(self, reason: str) -> None:
        self.answer(Predicted([], [], [], [], [], reason))

    def answer(self, found: Predicted) -> None:
        try:
            self.reply(msgspec.json.encode(found))
        except ColonnadeError as error:
            if not found.error:  # too large; ask for fewer rows
                self.fail(str(error))


def new_rows(member: Member) -> list[str]:
    """Rows of the label holder's file that nobody trained on: those after the aligned ones; without
    such, the test rows."""
    rows, own = member.federation.rows, member.own
    if rows is None:
        return list(own.ids)
    later = own.ids[rows.aligned :]
    test = rows.split(member.federation.seed).test
    return list(later) or [own.ids[i] for i in test]


# -- what a person sees ----------------------------------------------------------------------------


def set_up_log(console: Console) -> None:
    """Plain lines with the time, on the standard error."""
    handler = RichHandler(
        console=console, show_path=False, show_level=False, log_time_format="%H:%M:%S", markup=False
    )
    logger = logging.getLogger("colonnade")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


class StatusLine:
    """One line that says how it goes, and a file beside the results that says the same."""

    def __init__(self, member: Member, console: Console) -> None:
        self.member, self.console = member, console
        self.line = Status("starting", console=console) if console.is_terminal else None
        self.stage, self.told = "", False

    def __enter__(self) -> StatusLine:
        if self.line:
            self.line.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.line:
            self.line.stop()

    async def keep_up(self) -> None:
        clock, state = self.member.clock, self.member.state
        while state.stage != "done":
            self.show()
            await clock.sleep_until(clock.now + SHOW)
        self.show()

    def show(self) -> None:
        if self.line:
            self.line.update(Text(sentence(self.member)))
        elif self.member.state.stage != self.stage:
            log.info("%s", sentence(self.member))
        if self.member.state.result is not None and not self.told:
            self.told = True
            log.info("%s", outcome(self.member))
        self.stage = self.member.state.stage
        with suppress(OSError):
            own = {"metrics": self.member.state.metrics}  # not for others to ask
            write_status(self.member.folder / STATUS, status(self.member) | own)


def outcome(member: Member) -> str:
    result = member.state.result
    assert result is not None
    figures = [f"{name} {value:.4f}" for name, value in result.metrics.items() if value is not None]
    told = ", ".join(figures) or "no test rows"
    return f"{told}; colonnade report {member.folder} writes the report"


def sentence(member: Member) -> str:
    state = member.state
    parts = [f"{member.party}: {state.stage}"]
    if state.stage == "training":
        parts.append(f"round {state.round:,} of at most {state.rounds:,}")
    parts += [f"{name} {value:.4f}" for name, value in state.metrics.items() if "accuracy" in name]
    for party, seconds in member.away().items():
        parts.append(f"{party}: away since {seconds:.0f} s; {member.without(party)}")
    return " · ".join(parts)


def write_status(path: Path, facts: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(facts), encoding="utf-8")
    os.replace(partial, path)


def read_status(folder: Path) -> dict[str, Any]:
    try:
        return json.loads((folder / STATUS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def need_leader(party: PartyFile, command: str) -> None:
    leader = party.federation.leader
    if party.party != leader:
        raise InputError(
            f"{party.source}: {command} is for the label holder, {leader!r}: only it learns the "
            "predictions"
        )
