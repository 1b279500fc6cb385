"""A simulation to watch: the output folder of `colonnade run`, while it runs or afterwards."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from colonnade.common.live import LiveLink, LiveTraining, read_live
from colonnade.common.results import CONFIG, read_failures, read_history, read_results
from colonnade.errors import InputError
from colonnade.experiments.table import Plan, bytes_text, short
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

SILENT = 20.0  # seconds without news after which the page says so
FINISHED = 12  # curves of finished runs that are shown


class Simulation:
    def __init__(self, folder: Path) -> None:
        self.folder, self.pace = folder, Pace()
        text = (folder / CONFIG).read_text(encoding="utf-8")
        try:
            self.config: dict[str, Any] = tomllib.loads(text)
            self.plan = Plan.of(self.config)
        except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
            raise InputError(f"{folder / CONFIG}: not a resolved experiment: {error}") from None

    def snapshot(self) -> Snapshot:
        live, results = read_live(self.folder), read_results(self.folder)
        done = list({result.key: result for result in results}.values())
        histories = {r.run: read_history(self.folder, r.run) for r in done[-FINISHED:]}
        metric = chosen_metric(
            self.plan.metric, [*histories.values(), *(one.points for one in live.values())]
        )
        titles = {r.run: f"{r.method} · {r.faults} · seed {r.seed}" for r in done}
        curves = [curve(titles[run], points, metric, True) for run, points in histories.items()]
        curves += [curve(one.title, one.points, metric) for one in live.values()]
        failures = read_failures(self.folder)
        return Snapshot(
            title=str(self.config.get("name", self.folder.name)),
            about=f"simulation in {self.folder}",
            said=self._said(live, len(done), len(failures)),
            facts=self._facts(live, len(done)),
            trainings=[self._training(run, one) for run, one in live.items()],
            metric=titled(metric),
            curves=[one for one in curves if one.x],
            messages=[f"failed: {failed.run}: {failed.reason}" for failed in failures],
        )

    def _said(self, live: dict[str, LiveTraining], done: int, failed: int) -> str:
        planned = self.plan.runs
        if live:
            silent = min(time.time() - one.told for one in live.values())
            if silent > SILENT:
                return (
                    f"No news for {silent:.0f} s: one round takes long, or the process was killed."
                )
            return f"{len(live)} of {planned} runs under way, {done} done."
        if done + failed >= planned:
            page = self.folder / "report.html"
            where = f"{page}" if page.exists() else f"colonnade report {self.folder}"
            return f"All {planned} runs are over. The report: {where}"
        if not done:
            return "Nothing has happened here yet; a run shows up when its training begins."
        return f"Nothing runs now; {done} of {planned} runs are done. The same command goes on."

    def _facts(self, live: dict[str, LiveTraining], done: int) -> list[tuple[str, str]]:
        facts = [("runs done", f"{done} of {self.plan.runs}")]
        rates = [self.pace.rate(run, o.told, o.round, o.began) for run, o in live.items()]
        known = [rate for rate in rates if rate is not None]
        if known:
            facts.append(("rounds per second", short(sum(known))))
        if live:
            sent = sum(link.bytes for one in live.values() for link in one.links)
            facts.append(("sent in training", bytes_text(sent)))
            seconds = time.time() - min(one.began for one in live.values())
            facts.append(("this training runs for", f"{seconds:,.0f} s"))
        return facts

    def _training(self, run: str, one: LiveTraining) -> Training:
        rate = self.pace.rate(run, one.told, one.round, one.began)
        links = [Link(link.sender, link.receiver, link.bytes, link.up) for link in one.links]
        note = "" if links else "Nothing is sent between parties here."
        rounds = max(one.round, one.rounds)
        known = parties(one.links, one.steady)
        return Training(one.title, one.round, rounds, rate, known, links, note)


def parties(links: Sequence[LiveLink], steady: Sequence[str]) -> list[Party]:
    """A party is down if none of its newest messages arrived, neither to it nor from it. `steady`:
    those that no fault strikes."""
    found: dict[str, list[float]] = {}
    for link in links:
        for name in (link.sender, link.receiver):
            found.setdefault(name, []).append(link.up)
    return [Party(name, *_state(ups, name in steady)) for name, ups in found.items()]


def _state(ups: Sequence[float], steady: bool) -> tuple[State, str]:
    share = sum(ups) / len(ups)
    if max(ups) == 0 and not steady:
        return "down", "none of its newest messages arrived"
    return "up", "" if share == 1 else f"{100 * share:.0f} % of its newest messages arrived"
