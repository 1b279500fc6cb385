"""A real federation to watch: the folder of `colonnade up`, or a party file.

In the folder of `up` every party writes its status, its ledger and, at a label holder, its curve:
reading them asks nobody. With a party file, the other parties are asked how they are every few
seconds, as by `colonnade status`; of bytes, only those that left this party are known.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

from colonnade.common.results import FEDERATION, read_history, read_ledger, read_results
from colonnade.common.text import printable
from colonnade.experiments.table import bytes_text, short
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.federation_file import read_federation
from colonnade.federation.agreement.party_file import PartyFile
from colonnade.federation.asking.sentences import sentences
from colonnade.federation.asking.statuses import statuses
from colonnade.federation.member.record import Record
from colonnade.federation.member.stage import Stage
from colonnade.federation.member.status import read_status
from colonnade.network.ledger_rows import LEARNING
from colonnade.watch.snapshot import (
    Link,
    Pace,
    Party,
    Snapshot,
    State,
    Training,
    chosen_metric,
    curve,
    titled,
)

ASK_EVERY = 3.0  # seconds
OVER = (Stage.DONE, Stage.ANSWERING)


class Federated:
    """`folders`: of the parties whose files are on this machine."""

    def __init__(self, federation: Federation, folders: Mapping[str, Path], about: str) -> None:
        self.federation, self.folders, self.about = federation, folders, about
        self.pace, self.asked = Pace(), dict[str, dict[str, Any]]()
        self.run = Record(next(iter(folders.values())), federation).run

    @classmethod
    def in_folder(cls, folder: Path) -> Federated:
        federation = read_federation(folder / FEDERATION)
        folders = {name: folder / name for name in federation.members}
        return cls(federation, folders, f"federation in {folder}")

    @classmethod
    def of_party(cls, party: PartyFile) -> Federated:
        """Asks the others in the background, for as long as this process lives."""
        federated = cls(party.federation, {party.party: party.folder}, f"as seen by {party.party}")
        Thread(target=federated.ask, args=(party, Event()), daemon=True).start()
        return federated

    def ask(self, party: PartyFile, enough: Event) -> None:
        while not enough.wait(ASK_EVERY if self.asked else 0):
            self.asked = statuses(party)

    def snapshot(self) -> Snapshot:
        told = {name: self._told(name) for name in self.federation.members}
        points = self._points()
        decides = next((t["metric"] for t in told.values() if t.get("metric")), None)
        metric = chosen_metric(decides, [points])
        line = curve(self.federation.method.name, points, metric) if metric else None
        training = self._training(told, points)
        return Snapshot(
            title=self.federation.name,
            about=self.about,
            said=self._said(told),
            facts=self._facts(training, told),
            trainings=[training],
            metric=titled(metric),
            curves=[line] if line and line.x else [],
            messages=[printable(one, 500) for one in sentences(told)],
        )

    def _told(self, name: str) -> dict[str, Any]:
        own = read_status(self.folders[name]) if name in self.folders else {}
        return own or self.asked.get(name, {})

    def _points(self) -> list[dict[str, float]]:
        found = [read_history(folder, self.run) for folder in self.folders.values()]
        return max(found, key=len)

    def _said(self, told: Mapping[str, dict[str, Any]]) -> str:
        running = [t for t in told.values() if t and "ended" not in t and "invalid" not in t]
        away = len(told) - len(running)
        results = [r for folder in self.folders.values() for r in read_results(folder)]
        if results and not running:
            return "Training and test are over, and the processes have ended."
        if not any(told.values()):
            return "Nothing has happened here yet; parties show up when they join."
        if not running:
            return "No party runs now. The same commands go on from the last checkpoint."
        stages = {t["stage"] for t in running}
        stage = stages.pop() if len(stages) == 1 else "at different stages"
        missing = f", {away} not there" if away else ""
        return printable(f"{len(running)} of {len(told)} parties there{missing}: {stage}.", 500)

    def _training(
        self, told: Mapping[str, dict[str, Any]], points: Sequence[dict[str, float]]
    ) -> Training:
        rounds = [t.get("round", 0) for t in told.values() if t]
        whole = max((t.get("rounds", 0) for t in told.values() if t), default=0)
        training = any(t.get("stage") == Stage.TRAINING for t in told.values())
        now, clock = max(rounds, default=0), time.time()
        since = clock - now * _seconds_a_round(points) if points else None
        rate = self.pace.rate("all", clock, now, since) if training else None
        parties = [Party(name, *_state(one)) for name, one in told.items()]
        note = ""
        if len(self.folders) < len(told):
            who = ", ".join(self.folders)
            note = f"Bytes that left {who}; what others sent is known to them, and at the end here."
        name = self.federation.method.name
        return Training(name, now, max(now, whole), rate, parties, self._links(told), note)

    def _links(self, told: Mapping[str, dict[str, Any]]) -> list[Link]:
        sizes = self._sizes()
        down = {name for name, one in told.items() if _state(one)[0] == "down"}
        members = self.federation.members
        pairs = [(a, b) for a in members for b in self.federation.neighbours(a)]
        known = set(self.folders)
        return [
            Link(a, b, sizes.get((a, b), 0 if a in known else None), 0.0 if down & {a, b} else 1.0)
            for a, b in dict.fromkeys([*pairs, *sizes])
        ]

    def _sizes(self) -> dict[tuple[str, str], int]:
        """Bytes by link: of each sender as its own ledger has it, else as told to another."""
        sizes: dict[tuple[str, str], int] = {}
        for owner, folder in self.folders.items():
            for row in read_ledger(folder, self.run):
                if row.phase in LEARNING and (
                    row.sender == owner or row.sender not in self.folders
                ):
                    key = row.sender, row.receiver
                    sizes[key] = sizes.get(key, 0) + row.bytes
        return sizes

    def _facts(
        self, training: Training, told: Mapping[str, dict[str, Any]]
    ) -> list[tuple[str, str]]:
        up = sum(party.state == "up" for party in training.parties)
        facts = [("parties there", f"{up} of {len(told)}")]
        if training.rate is not None:
            facts.append(("rounds per second", short(training.rate)))
        facts.append(
            ("sent in training", bytes_text(sum(one.bytes or 0 for one in training.links)))
        )
        for t in told.values():
            value = t.get("metrics", {}).get(f"test_{t.get('metric', '')}")
            if value is not None:
                facts.append((f"test {t['metric']}".replace("_", " "), f"{value:.4f}"))
                break
        return facts


def _seconds_a_round(points: Sequence[dict[str, float]]) -> float:
    """On average up to the newest point of the curve; 0: not known."""
    return points[-1].get("virtual_seconds", 0.0) / max(points[-1]["round"], 1)


def _state(told: Mapping[str, Any]) -> tuple[State, str]:
    if not told:
        return "down", "no answer"
    if "invalid" in told:
        return "unknown", printable(told["invalid"])
    stage = printable(told["stage"])
    if "ended" in told:
        return ("done", stage) if told["stage"] == Stage.DONE else ("down", stage)
    if told["stage"] == Stage.TRAINING:
        return "up", f"{stage}, round {told.get('round', 0):,}"
    return "up", stage
