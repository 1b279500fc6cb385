"""The progress of a training in a simulation, for `colonnade watch`: `live/<run>.json` of an output
folder. The file is there while the training goes on, and is removed when it is over."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from colonnade.common.files import replacing

LIVE = "live"  # the folder


class LiveLink(msgspec.Struct, frozen=True):
    """One link in training, or all links between two groups where parties are many."""

    sender: str
    receiver: str
    bytes: int
    up: float  # the share of its newest messages that arrived: 0 or 1 for a single link


class LiveTraining(msgspec.Struct, frozen=True):
    """A training under way."""

    title: str
    method: str
    faults: str
    seed: int
    round: int
    rounds: int  # at most, usually
    began: float  # seconds since 1970
    told: float  # when this was written
    links: list[LiveLink]
    points: list[dict[str, float | None]]  # of the curve; see `history/`
    steady: list[str] = []  # parties that no fault strikes


def write_live(folder: Path, run: str, training: LiveTraining) -> None:
    with replacing(folder / LIVE / f"{run}.json") as partial:
        partial.write_bytes(msgspec.json.encode(training))


def end_live(folder: Path, run: str) -> None:
    (folder / LIVE / f"{run}.json").unlink(missing_ok=True)


def read_live(folder: Path) -> dict[str, LiveTraining]:
    """The trainings under way, by run; a file that is removed meanwhile is left out."""
    found: dict[str, LiveTraining] = {}
    for path in sorted((folder / LIVE).glob("*.json")):
        with suppress(OSError, msgspec.DecodeError):
            found[path.stem] = msgspec.json.decode(path.read_bytes(), type=LiveTraining)
    return found
