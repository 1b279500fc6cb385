"""Writes the progress of a training for `colonnade watch`; see common/live.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.common.live import LiveLink, LiveTraining, end_live, write_live
from colonnade.experiments.table import MANY_PARTIES, party_labels
from colonnade.network import StackedNetwork
from colonnade.network.ledger_rows import LEARNING, ledger_rows

PAUSE = 0.5  # seconds between two writes, at least
SHARE = 50  # writing takes at most one part in so many of the time


class LiveFile:
    """`outside`: groups that are not shown. `facts`: those of `LiveTraining` that do not change."""

    def __init__(
        self, folder: Path, run: str, net: StackedNetwork, outside: Sequence[str], **facts: Any
    ) -> None:
        self.folder, self.run, self.net, self.facts = folder, run, net, facts
        groups = [group for group in net.world.groups if group.name in outside]
        self.outside = {party for group in groups for party in group.parties}
        struck = {
            party
            for group in net.world.groups
            if group.role == net.world.fault.struck
            for party in group.parties
        }
        self.steady = [party for party in net.world.parties if party not in struck]
        self.points: Sequence[dict[str, Any]] = []
        self.began, self._due = time.time(), 0.0

    def look(self, rounds: Callable[[], int]) -> None:
        """Write the file if it is time. `rounds`: that are done."""
        begun = time.perf_counter()
        if begun < self._due:
            return
        with suppress(OSError):  # a full disk must not end the training
            write_live(self.folder, self.run, self._training(rounds()))
        now = time.perf_counter()
        self._due = now + max(PAUSE, SHARE * (now - begun))

    def end(self) -> None:
        with suppress(OSError):
            end_live(self.folder, self.run)

    def _training(self, rounds: int) -> LiveTraining:
        times = {"began": self.began, "told": time.time()}
        facts = {
            "links": links(self.net, self.outside),
            "points": list(self.points),
        }
        return LiveTraining(round=rounds, steady=self.steady, **times, **facts, **self.facts)


def links(net: StackedNetwork, outside: Set[str]) -> list[LiveLink]:
    """Links with what they have carried in training, and whether their newest message arrived;
    between groups, where parties are many. `outside`: parties that are left out."""
    sizes: dict[tuple[str, str], int] = {}
    for row in ledger_rows(net.ledger):
        if row.phase in LEARNING:
            key = row.sender, row.receiver
            sizes[key] = sizes.get(key, 0) + row.bytes
    arrived = _arrived(net)
    labels = party_labels(party for link in [*sizes, *arrived] for party in link)
    if len(labels) <= MANY_PARTIES:
        labels = {party: party for party in labels}
    grouped: dict[tuple[str, str], tuple[int, list[float]]] = {}
    for link in dict.fromkeys([*sizes, *arrived]):
        if outside & set(link):
            continue
        sender, receiver = labels[link[0]], labels[link[1]]
        size, up = grouped.get((sender, receiver), (0, []))
        grouped[sender, receiver] = size + sizes.get(link, 0), [*up, *arrived.get(link, [])]
    return [
        LiveLink(*link, size, float(np.mean(up)) if up else 1.0)
        for link, (size, up) in grouped.items()
    ]


def _arrived(net: StackedNetwork) -> dict[tuple[str, str], list[float]]:
    """Whether the newest message of each link and kind arrived."""
    found: dict[tuple[str, str], list[float]] = {}
    for lines, mask in net.newest.values():
        for r, j in zip(*np.nonzero(lines.real & ~lines.own), strict=True):
            link = lines.src.parties[lines.senders[r, j]], lines.dst.parties[r]
            found.setdefault(link, []).append(1.0 if mask is None else float(mask[r, j]))
    return found
