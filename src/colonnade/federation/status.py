"""How a party is: as others may ask, as one line for a person, as a file beside the results."""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.logging import RichHandler
from rich.status import Status
from rich.text import Text

from colonnade.federation.member import Member
from colonnade.network.clock import SECOND

log = logging.getLogger(__name__)

STATUS = "status.json"
SHOW = SECOND // 2  # between two looks at the state


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
        "model": member.post.parts.newest(),
        "lacking": member.lacking(),
        "code": msgspec.to_builtins(member.own.code),
    }


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
