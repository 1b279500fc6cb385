"""The status of a party: as an answer to others, as one line for a person, and as a file.

When the process ends, it writes into the file, `status.json`, how it ended. A process that is
killed cannot do so; `read_status` then finds that no process holds the folder's lock.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
from rich.console import Console
from rich.logging import RichHandler
from rich.status import Status
from rich.text import Text

from colonnade.common.files import replacing
from colonnade.common.metric_names import decisive
from colonnade.common.text import printable
from colonnade.common.user_code import Source
from colonnade.federation.member.folder import STATUS
from colonnade.federation.member.folder_lock import is_running
from colonnade.federation.member.member import Member
from colonnade.federation.member.stage import Stage
from colonnade.network.clock import SECOND
from colonnade.network.wire import Count, Name, read_note

log = logging.getLogger(__name__)

LINE = 2000  # characters of a line in the log
LOOK, SHOW = SECOND // 20, SECOND // 2  # between two checks of the stage, and two updates

Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Remark = Annotated[str, msgspec.Meta(max_length=500)]


class Told(msgspec.Struct, frozen=True):
    """The status that a party tells, with the limits by which the receiver checks it."""

    party: Name
    process: Count
    stage: Name
    round: Count
    rounds: Count
    away: dict[Name, Seconds]
    late: list[Name]
    refused: Count
    model: Name = ""
    lacking: dict[Name, Name] = {}
    dropped: Count = 0
    remarks: list[Remark] = []
    code: dict[Name, Source] = {}


def told(answer: bytes) -> dict[str, Any]:
    """The status in another party's answer, safe to print; WireError if it is not valid."""
    found = msgspec.to_builtins(read_note(answer, Told))
    return {key: _shown(value) for key, value in found.items()}


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {printable(key): _shown(one) for key, one in value.items()}
    if isinstance(value, list):
        return [printable(one) for one in value]
    return printable(value) if isinstance(value, str) else value


def status(member: Member) -> dict[str, Any]:
    """The status that this party tells; see `Told`."""
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
        "model": member.post.parts.newest(),
        "lacking": member.lacking(),
        "code": msgspec.to_builtins(member.own.code),
        "dropped": member.post.quota.drops.total,
        "remarks": member.remarks(),
    }


class Printable(logging.Formatter):
    """Escapes every log line, because it may hold text of another party."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(super().formatMessage(record), LINE)


def set_up_log(console: Console) -> None:
    """Plain lines with the time, on the standard error."""
    handler = RichHandler(
        console=console, show_path=False, show_level=False, log_time_format="%H:%M:%S", markup=False
    )
    handler.setFormatter(Printable())
    logger = logging.getLogger("colonnade")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


class StatusLine:
    """Shows the status of a party as one line of the terminal, and writes it to the status file."""

    def __init__(self, member: Member, console: Console) -> None:
        self.member, self.console = member, console
        self.line = Status(Stage.STARTING, console=console) if console.is_terminal else None
        self.stage, self.told = "", False

    def __enter__(self) -> StatusLine:
        if self.line:
            self.line.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.line:
            self.line.stop()
        self.write()

    async def keep_up(self) -> None:
        """Show every change of stage at once, and the rest twice a second."""
        clock, state, due = self.member.clock, self.member.state, 0
        while state.stage != Stage.DONE:
            if state.stage != self.stage or clock.now >= due:
                self.show()
                due = clock.now + SHOW
            await clock.sleep_until(clock.now + LOOK)
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
        self.write()

    def write(self) -> None:
        with suppress(OSError):
            decides = self.member.algorithm.task.goal.deciding.key
            own = {"metrics": self.member.state.metrics, "metric": decides}  # not told to others
            own["activity"] = self.member.algorithm.activity
            own["caution"] = self.member.algorithm.caution()
            own["notes"] = notes_of(self.member)
            own["checkpoints"] = self.member.keeping.share
            write_status(self.member.folder / STATUS, status(self.member) | own)


def notes_of(member: Member) -> list[str]:
    """What was done with the columns of this party's file that a person should know."""
    features = member.own.features
    return [] if features is None else [f"{member.party}: {note}" for note in features.notes]


def outcome(member: Member) -> str:
    result = member.state.result
    assert result is not None
    figures = [f"{name} {value:.4f}" for name, value in result.metrics.items() if value is not None]
    told = ", ".join(figures) or "no test rows"
    return f"{told}; colonnade report {member.folder} writes the report"


def sentence(member: Member) -> str:
    state = member.state
    parts = [f"{member.party}: {state.stage}"]
    if state.stage == Stage.TRAINING:
        rounds = f"round {state.round:,} of at most {state.rounds:,}"
        parts.append(member.algorithm.activity or rounds)
    parts += decisive(state.metrics, member.algorithm.task.goal.deciding.key)
    for party, seconds in member.away().items():
        parts.append(f"{party}: away since {seconds:.0f} s; {member.without(party)}")
    return " · ".join(parts)


@contextmanager
def end_noted(folder: Path, party: str) -> Iterator[None]:
    """When this block ends, write to the status file how: done, left (by Ctrl-C or SIGTERM), or
    with which error. The caller holds the folder's lock."""
    (folder / STATUS).unlink(missing_ok=True)  # of an earlier process
    how, reason = Stage.DONE, ""
    try:
        yield
    except KeyboardInterrupt:
        how = Stage.LEFT
        raise
    except BaseException as error:
        how, reason = Stage.FAILED, str(error) or type(error).__name__
        raise
    finally:
        facts = _read(folder) or {"party": party, "process": os.getpid(), "stage": Stage.STARTING}
        with suppress(OSError):
            write_status(folder / STATUS, _ended(facts, how, datetime.now(UTC), reason))


def _ended(facts: dict[str, Any], how: Stage, at: datetime, reason: str) -> dict[str, Any]:
    """The status of a process that has ended, without what was true only while it ran: which
    parties were away or late."""
    ended = {"at": at.isoformat(timespec="seconds"), "during": facts["stage"], "reason": reason}
    lasting = {key: value for key, value in facts.items() if key not in ("away", "late")}
    return {**lasting, "stage": how, "ended": ended}


def write_status(path: Path, facts: dict[str, Any]) -> None:
    with replacing(path) as partial:
        partial.write_text(json.dumps(facts), encoding="utf-8")


def read_status(folder: Path) -> dict[str, Any]:
    """The status that the party of this folder last wrote, and how its process ended, if it has."""
    facts = _read(folder)
    if not facts or "ended" in facts or is_running(folder):
        return facts
    if facts != (again := _read(folder)):  # it ended meanwhile, or has begun anew
        return again
    last = datetime.fromtimestamp((folder / STATUS).stat().st_mtime, UTC)
    return _ended(facts, Stage.GONE, last, "its process was killed, or its machine stopped")


def _read(folder: Path) -> dict[str, Any]:
    try:
        return json.loads((folder / STATUS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
