"""A progress bar over the runs of an experiment; silent unless the output is a terminal."""

from __future__ import annotations

from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Bar:
    """Counts runs, in fractions while they go on."""

    def __init__(self, console: Console, doing: str = "training", unit: str = "runs") -> None:
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[done]}/{task.fields[runs]} " + unit),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self.task = self.progress.add_task(doing, total=None, done=0, runs="?")
        self.shares: dict[str, float] = {}
        self.done = 0

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.progress.stop()

    def begin(self, total: int, done: int) -> None:
        self.done = done
        self.progress.update(self.task, total=total, completed=done, done=done, runs=total)

    def advance(self, run: str, share: float) -> None:
        self.shares[run] = share
        self._show()

    def finish(self, run: str) -> None:
        self.shares.pop(run, None)
        self.done += 1
        self._show()

    def _show(self) -> None:
        under_way = sum(self.shares.values())
        self.progress.update(self.task, completed=self.done + under_way, done=self.done)
