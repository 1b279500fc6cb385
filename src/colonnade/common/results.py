"""The output folder: `config.toml`, `results.jsonl`, `failures.jsonl`, `history/`, `ledger/`,
`course/`, `curves/`, `leads/`, `turns/`, `models/`, `report.html`.

`results.jsonl` holds one object per finished run, `failures.jsonl` one per failed run. The training
curve of a run is in `history/<run>.jsonl`, what left each party in `ledger/<run>.jsonl`, and the
figures of its test, batch by batch, in `course/<run>.jsonl`; what the pictures of its test are
drawn from is in `curves/<run>.json` (see curves.py). Where several parties led, how many
rounds each of them led in each epoch is in `leads/<run>.jsonl`, and the first rounds one by one in
`turns/<run>.jsonl`. `<run>` is the `run` field of the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from colonnade.common.files import replacing
from colonnade.errors import InputError

RESULTS = "results.jsonl"
FAILURES = "failures.jsonl"  # there only if a run of the last command failed
CONFIG = "config.toml"
FEDERATION = "federation.toml"  # in the folder of `colonnade up`
TABLES = "tables"  # the folder for tables as CSV and LaTeX


class Result(msgspec.Struct, frozen=True):
    """What one run (method × faults × seed) gave and what it cost."""

    method: str
    faults: str
    seed: int
    run: str  # names the run's files in history/, ledger/ and models/
    metrics: dict[str, float | None]  # None: not a number, the run diverged
    cost: dict[str, float | int | None]
    notes: tuple[str, ...] = ()  # about the data (a subset) and what the method chose by itself
    # With noise: epsilon (None: infinite), delta, sigma, clip, and how often a row left. With
    # label_privacy: label_epsilon.
    privacy: dict[str, float | int | None] = {}
    data: str = ""  # fingerprint of the rows, in a simulation

    @property
    def key(self) -> tuple[str, str, int]:
        return (self.method, self.faults, self.seed)


def real(results: Sequence[Result]) -> bool:
    """Whether these are runs of real federations, which have no virtual time."""
    clocks = [(r.cost.get("virtual_seconds"), r.cost.get("wall_seconds")) for r in results]
    return bool(clocks) and all(wall and wall == virtual for virtual, wall in clocks)


class Failure(msgspec.Struct, frozen=True):
    """Why a run has no result."""

    run: str  # its title, such as "DVFL · none · seed 0"
    reason: str


class LedgerRow(msgspec.Struct, frozen=True):
    """How much of one kind of content went over one link (or one bundle of links) in one phase."""

    phase: str  # training | validation | inference
    sender: str
    receiver: str
    kind: str
    messages: int
    bytes: int


class LeadsRow(msgspec.Struct, frozen=True):
    """The rounds that a party led in one epoch, and how many steps of others happened within them:
    between an embedding and its gradient."""

    epoch: int
    party: str
    rounds: int
    others: int  # in all of them
    most: int  # in one of them


class TurnRow(msgspec.Struct, frozen=True):
    """One round of a party, with the seconds from when to when."""

    party: str
    began: float
    ended: float
    others: int


def read_results(folder: Path) -> list[Result]:
    """Finished runs; a last line cut off by an interruption is ignored."""
    return _read_lines(folder / RESULTS, Result)


def read_failures(folder: Path) -> list[Failure]:
    """Runs that failed in the last command; the next one tries them again."""
    return _read_lines(folder / FAILURES, Failure)


def read_history(folder: Path, run: str) -> list[dict[str, float]]:
    return _read_lines(folder / "history" / f"{run}.jsonl", dict[str, Any])


def read_accuracy_by_batch(folder: Path, run: str) -> list[dict[str, float]]:
    """One metric of a test, batch by batch."""
    return _read_lines(folder / "course" / f"{run}.jsonl", dict[str, Any])


def read_ledger(folder: Path, run: str) -> list[LedgerRow]:
    return _read_lines(folder / "ledger" / f"{run}.jsonl", LedgerRow)


def read_leads(folder: Path, run: str) -> list[LeadsRow]:
    return _read_lines(folder / "leads" / f"{run}.jsonl", LeadsRow)


def read_turns(folder: Path, run: str) -> list[TurnRow]:
    return _read_lines(folder / "turns" / f"{run}.jsonl", TurnRow)


def append_result(folder: Path, result: Result) -> None:
    _append(folder / RESULTS, result)


def append_failure(folder: Path, failure: Failure) -> None:
    _append(folder / FAILURES, failure)


def _append(path: Path, row: msgspec.Struct) -> None:
    with path.open("ab") as file:
        file.write(msgspec.json.encode(row) + b"\n")


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    """JSON lines, whole or not at all."""
    with replacing(path) as partial:
        partial.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))


def write_results(folder: Path, results: Sequence[Result]) -> None:
    write_lines(folder / RESULTS, results)


def slug(name: str) -> str:
    """A name as part of a file name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "x"


def _read_lines(path: Path, kind: Any) -> list[Any]:
    if not path.exists():
        return []
    decoder = msgspec.json.Decoder(kind)
    lines = path.read_bytes().split(b"\n")
    last = len(lines) if lines[-1] else 0  # no newline at the end: the writer was interrupted
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            if line:
                rows.append(decoder.decode(line))
        except msgspec.DecodeError as error:
            if number != last:
                raise InputError(
                    f"{path}, line {number}: damaged ({error}); run again with --fresh"
                ) from error
    return rows
