"""From results to figures beside the paper's, differences, judged claims and plain sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from pathlib import Path

from colonnade.common.explanations import PartyExplanation, read_explanations
from colonnade.common.results import Result, read_ledger
from colonnade.experiments.findings import Voice, lead, verdict
from colonnade.experiments.reproduce.claims import At, Judgement, judge
from colonnade.experiments.reproduce.study import Entry, Place, Sheet
from colonnade.experiments.table import Cell, Metric, Plan, Summary

CLIENT_BYTES = "client_bytes"  # what one client sends in training, mean over the clients
ROUND_MB = "megabytes_per_client_and_round"  # what one client sends and is sent, 10⁶ bytes
TARGET_MB = "megabytes_to_target"  # `bytes_to_target` in 10⁶ bytes
OF_PARTY = ":"  # between a measure of an explanation and a party


@dataclass(frozen=True)
class Evidence:
    """What there is of one part."""

    folder: Path
    results: Sequence[Result] = ()
    seeds: tuple[int, ...] = ()  # as planned
    absent: str = ""  # why the part could not run at all

    def cell(self, place: Place, metric: str) -> Cell | None:
        """The figures of one method under one kind of faults; what is not finite is left out."""
        runs = [r for r in self.results if (r.method, r.faults) == (place.method, place.faults)]
        values = {run.seed: self.measured(run, metric) for run in runs}
        known = {seed: v for seed, v in values.items() if v is not None and isfinite(v)}
        return Cell(tuple(known.values()), tuple(known)) if known else None

    def measured(self, run: Result, metric: str) -> float | None:
        """Of one run. `importance:client3` is what its explanation says of a party."""
        if OF_PARTY not in metric:
            return measured(self.folder, run, metric)
        measure, party = metric.split(OF_PARTY)
        told = self.explained.get((run.run, party))
        return None if told is None else getattr(told, measure)

    @cached_property
    def explained(self) -> dict[tuple[str, str], PartyExplanation]:
        """By run and party."""
        found = read_explanations(self.folder)
        return {(one.run, p.party): p for one in found for p in one.parties}


def measured(folder: Path, run: Result, metric: str) -> float | None:
    """A metric or a cost of the run, or what its ledger says."""
    if metric == TARGET_MB:
        sent = run.cost.get("bytes_to_target")
        return None if sent is None else sent / 1e6
    if metric not in (CLIENT_BYTES, ROUND_MB):
        return run.metrics.get(metric, run.cost.get(metric))
    rows = [row for row in read_ledger(folder, run.run) if row.phase == "training"]
    clients = {row.sender for row in rows if re.fullmatch(r"client\d+", row.sender)}
    if metric == CLIENT_BYTES:
        return sum(r.bytes for r in rows if r.sender in clients) / max(1, len(clients)) or None
    sent = sum(r.bytes for r in rows if clients & {r.sender, r.receiver} and r.kind != "decision")
    return sent / max(1, len(clients)) / (run.cost.get("rounds") or 1) / 1e6 or None


@dataclass(frozen=True)
class Assessment:
    """A sheet with our figures in it."""

    sheet: Sheet
    ours: Summary
    reasons: Mapping[At, str]  # why a figure of ours is missing
    judged: bool = True  # False: at this scale the figures say nothing about the claims

    @cached_property
    def entries(self) -> dict[At, Entry]:
        columns = [column.name for column in self.sheet.columns]
        return {
            (row.name, column): entry
            for row in self.sheet.rows
            for column, entry in zip(columns, row.entries, strict=True)
        }

    @cached_property
    def judgements(self) -> list[Judgement]:
        cells = self.ours.cells
        return [judge(claim, cells, meaningful=self.judged) for claim in self.sheet.claims]

    def difference(self, at: At) -> float | None:
        """Ours minus the paper's; none where the data are not the paper's."""
        cell, published = self.ours.cells.get(at), self.entries[at].published
        column = next(column for column in self.sheet.columns if column.name == at[1])
        if cell is None or published is None or column.substitute:
            return None
        return cell.mean - published.value

    def beyond_spread(self, at: At) -> bool:
        """Whether ours differs from the paper's by more than the paper's own spread, or by more
        than ours (2 sd) where the paper tells none."""
        difference, published = self.difference(at), self.entries[at].published
        if difference is None or published is None:
            return False
        ours = self.ours.cells[at].spread or 0.0
        return abs(difference) > (ours if published.spread is None else published.spread)

    def explanation(self, at: At) -> str:
        """Of a difference; empty where we have none."""
        known = [one.text for one in self.sheet.explanations if one.about(*at)]
        return known[-1] if known else ""

    def findings(self, voice: Voice) -> list[str]:
        """Which method is best: first over all columns, then column by column."""
        summary = self._once_each()
        if not self.sheet.ranked or not any(
            len(summary.ranking(c.name)) > 1 for c in self.sheet.columns
        ):
            return []
        verdicts = [verdict(summary, c.name, voice, c.words) for c in self.sheet.columns]
        told = [sentence for sentence in verdicts if sentence]
        return told if len(told) == 1 else [lead(summary, voice, self.sheet.settings), *told]

    def _once_each(self) -> Summary:
        """Where rows show the same runs, only the first of them: it cannot win over itself."""
        seen: set[tuple[Place | None, str]] = set()
        cells: dict[At, Cell] = {}
        for at, cell in self.ours.cells.items():
            shown = (self.entries[at].ours, at[1])
            if shown not in seen:
                cells[at] = cell
            seen.add(shown)
        return replace(self.ours, cells=cells)


def assess(sheet: Sheet, evidence: Mapping[str, Evidence], *, judged: bool = True) -> Assessment:
    cells: dict[At, Cell] = {}
    reasons: dict[At, str] = {}
    seeds: dict[int, None] = {}
    for row in sheet.rows:
        for column, entry in zip(sheet.columns, row.entries, strict=True):
            at, place = (row.name, column.name), entry.ours
            part = evidence.get(place.part) if place else None
            cell = part.cell(place, column.metric or sheet.metric) if part and place else None
            if part:
                seeds |= dict.fromkeys(part.seeds)
            if cell:
                cells[at] = cell
            else:
                reasons[at] = entry.why or _why(part, column.metric or sheet.metric)
    methods = tuple(row.name for row in sheet.rows)
    columns = tuple(column.name for column in sheet.columns)
    plan = Plan(methods, columns, tuple(seeds))
    summary = Summary(Metric(sheet.metric), plan, cells, sheet.ranked)
    return Assessment(sheet, summary, reasons, judged)


def _why(part: Evidence | None, metric: str) -> str:
    if part is None:
        return ""  # nothing was to be measured here
    if part.absent:
        return "no data"
    return "not reached" if metric.endswith("_to_target") and part.results else "failed"
