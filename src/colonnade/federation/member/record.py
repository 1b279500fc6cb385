"""The record of a party: the output folder of a real run.

The files are the same as those of an experiment, so that `colonnade report` reads them. The label
holder writes all of them, the other parties their ledger and their model. After a restart, the
files are continued.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import tomli_w

from colonnade.common.curves import Curves, write_curves
from colonnade.common.results import (
    CONFIG,
    LedgerRow,
    Result,
    read_history,
    read_leads,
    read_ledger,
    read_results,
    read_turns,
    slug,
    write_lines,
    write_results,
)
from colonnade.common.toml import Table
from colonnade.common.tracking import Tracked, Tracking
from colonnade.errors import InputError
from colonnade.federation.agreement.federation import Federation
from colonnade.learning.side_by_side import Leads, Led, Paces
from colonnade.learning.training import Point
from colonnade.network import Ledger
from colonnade.network.ledger_rows import LEARNING, ledger_rows

AS_IT_HAPPENED = "as it happened"  # the faults of a real run

Line = tuple[str, str, str, str]  # phase, sender, receiver, kind


class Record:
    def __init__(self, folder: Path, federation: Federation) -> None:
        self.folder, self.federation = folder, federation
        self.run = f"{slug(federation.method.name)}.{slug(AS_IT_HAPPENED)}.{federation.seed}"
        self.ledger = Ledger()  # of this life of the party
        self.before = lines_of(read_ledger(folder, self.run))  # of earlier lives
        self.told: dict[
            str, dict[Line, tuple[int, int]]
        ] = {}  # ledgers that others sent at the end
        self.points = read_history(folder, self.run)
        self.dirty = True  # what the files hold is not all that is to be kept
        self.paces = self._paces()  # who led when, as this party has seen it
        self.unwritten: Result | None = None  # of the test, until it is on the disk
        self.curves: Curves | None = None  # of the test, likewise
        self.tracking: Tracking | None = None  # at a label holder, if asked for
        self.begun = time.monotonic()
        self.spent = max((float(point["virtual_seconds"]) for point in self.points), default=0.0)

    @property
    def seconds(self) -> float:
        """Seconds since the training began, without those in which this party was not running."""
        return self.spent + time.monotonic() - self.begun

    def track(self, names: Sequence[str]) -> None:
        """Begin to track the training, with what is known of it from before a restart."""
        settings = self.federation.table()
        tracked = Tracked(self.folder, self.federation.name, self.run, self.run, settings)
        self.tracking = Tracking(names, tracked)
        for point in self.points:
            self.tracking.point(point)

    def begin(self) -> None:
        """Make the output folder and write `config.toml`."""
        table = {**self.federation.table(), **_plan(self.federation)}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / CONFIG).write_text(tomli_w.dumps(table), encoding="utf-8")
        except OSError as error:
            raise InputError(
                f"{self.folder}: cannot be written ({error.strerror or error}); make room, or give "
                "the party file another folder"
            ) from error

    def rounds(self, so_far: int) -> int:
        """Rounds of the training; `so_far` if this party has no training curve."""
        return max((int(point["round"]) for point in self.points), default=so_far)

    def add(self, point: Point) -> None:
        """Add a point of the training curve; it replaces the points of the same and later rounds,
        which are done again."""
        place = {"round": point.round, "epoch": point.epoch}
        spent = {"virtual_seconds": round(self.seconds, 3), "bytes": self._sent()[1]}
        earlier = [p for p in self.points if p["round"] < point.round]
        self.points = [*earlier, {**place, **spent, **point.metrics}]
        if self.tracking is not None:
            self.tracking.point(self.points[-1])

    def keep(self) -> None:
        """Write the ledger, the training curve, and the result if there is one. Until that has
        succeeded, the record is `dirty`."""
        self.dirty = True
        write_lines(self.folder / "ledger" / f"{self.run}.jsonl", self.rows())
        if self.points:
            write_lines(self.folder / "history" / f"{self.run}.jsonl", self.points)
        if self.points and self.paces.leads:
            write_lines(self.folder / "leads" / f"{self.run}.jsonl", self.paces.leads.values())
            write_lines(self.folder / "turns" / f"{self.run}.jsonl", self.paces.first)
        if self.curves is not None:
            write_curves(self.folder, self.run, self.curves)
            self.curves = None
        if self.unwritten is not None:
            write_results(self.folder, [self.unwritten])
            self.unwritten = None
        self.dirty = False

    def rows(self) -> list[LedgerRow]:
        """What left this party, and what left the others as they told."""
        sums = dict(_merged(self.before, lines_of(ledger_rows(self.ledger))))
        for lines in self.told.values():
            sums.update(lines)
        return [LedgerRow(*line, *count) for line, count in sums.items()]

    def known(self) -> Result | None:
        """The result that an earlier process of this party wrote; None if there is none."""
        found = [result for result in read_results(self.folder) if result.run == self.run]
        return found[0] if found else None

    def result(
        self,
        metrics: dict[str, float],
        rounds: int,
        notes: Iterable[str],
        privacy: dict[str, float | int | None],
    ) -> Result:
        messages, sent = self._sent()
        took = round(self.seconds, 3)  # one figure for both: that is how a real run is known
        cost: dict[str, float | int | None] = {
            "rounds": rounds,
            "messages": messages,
            "bytes": sent,
            "virtual_seconds": took,
            "wall_seconds": took,
        }
        numbers = {key: value if math.isfinite(value) else None for key, value in metrics.items()}
        cell = self.federation.method.name, AS_IT_HAPPENED, self.federation.seed
        self.unwritten = Result(*cell, self.run, numbers, cost, tuple(notes), privacy)
        if self.tracking is not None:
            self.tracking.end({**numbers, **{f"cost/{key}": value for key, value in cost.items()}})
        return self.unwritten

    def _paces(self) -> Paces:
        """Those that an earlier process of this party wrote."""
        leads = [Leads(*msgspec.structs.astuple(row)) for row in read_leads(self.folder, self.run)]
        turns = [Led(*msgspec.structs.astuple(row)) for row in read_turns(self.folder, self.run)]
        return Paces(turns, {(one.epoch, one.party): one for one in leads})

    def _sent(self) -> tuple[int, int]:
        rows = [row for row in self.rows() if row.phase in LEARNING]
        return sum(row.messages for row in rows), sum(row.bytes for row in rows)


def _plan(federation: Federation) -> Table:
    """The tables of an experiment file that the report needs."""
    method = {"name": federation.method.name, "algorithm": federation.method.algorithm}
    faults = [{"name": AS_IT_HAPPENED}]
    return {"methods": [method], "faults": faults, "seeds": [federation.seed]}


def lines_of(rows: Iterable[LedgerRow]) -> dict[Line, tuple[int, int]]:
    return {(r.phase, r.sender, r.receiver, r.kind): (r.messages, r.bytes) for r in rows}


def _merged(
    one: dict[Line, tuple[int, int]], other: dict[Line, tuple[int, int]]
) -> dict[Line, tuple[int, int]]:
    lines = dict.fromkeys([*one, *other])
    none = (0, 0)
    return {
        line: (
            one.get(line, none)[0] + other.get(line, none)[0],
            one.get(line, none)[1] + other.get(line, none)[1],
        )
        for line in lines
    }
