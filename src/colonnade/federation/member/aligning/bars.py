"""How far the matching of rows is: bars on a terminal, else a line of the log at each step."""

from __future__ import annotations

import logging
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed

log = logging.getLogger(__name__)

WORDS = {
    "find": "finding common rows with {}",
    "tell": "finding the rows that all parties have, with {}",
    "answer": "answering {}",
}


class Bars:
    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), Elapsed())
        self.progress = Progress(*columns, console=console, transient=True)
        self.shown = console.is_terminal
        self.tasks: dict[str, TaskID] = {}
        self.told: set[str] = set()

    def __enter__(self) -> Bars:
        if self.shown:
            self.progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.shown:
            self.progress.stop()

    def show(self, party: str, what: str, done: int, total: int) -> None:
        """`total` is 0 while a party waits for others."""
        text = WORDS.get(what, what).format(party)
        if not self.shown:
            if text not in self.told and (not total or done == total):
                self.told.add(text)
                log.info("%s", text if not total else f"{text}: done")
            return
        for one, task in self.tasks.items():  # what a party waited for before is over
            if one.startswith("waiting"):
                self.progress.update(task, visible=False)
        if text not in self.tasks:
            self.tasks[text] = self.progress.add_task(text, total=total or None)
        self.progress.update(self.tasks[text], completed=done, total=total or None, visible=True)
