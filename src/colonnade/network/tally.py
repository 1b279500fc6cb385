"""Counts events that other parties cause, and logs few of them, however many there are."""

from __future__ import annotations

import logging
import threading

from colonnade.common.text import printable

MANY = 10_000  # pairs of sender and kind that are counted separately


class Tally:
    """Counts events by sender and kind. The `first` ones of each are logged, then the tenth, the
    hundredth and so on, with the count. Any thread may use it."""

    def __init__(self, log: logging.Logger, first: int = 1) -> None:
        self.log, self.first, self.total = log, first, 0
        self._counts: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def add(
        self, sender: str, kind: str, detail: object = "", *, level: int = logging.WARNING
    ) -> None:
        """Count an event. `kind` is a text of our own, the same for all events of a kind; `detail`
        may hold a text of the sender's: it is escaped."""
        with self._lock:
            self.total += 1
            key = (sender, kind)
            if key not in self._counts and len(self._counts) >= MANY:
                key = ("", "")
            count = self._counts[key] = self._counts.get(key, 0) + 1
        if count <= self.first or str(count).strip("0") == "1":
            text = f"{printable(sender, 64)}: {kind}"
            text += f" ({printable(detail)})" if detail else ""
            self.log.log(
                level, "%s%s", text, f"; {count:,} times so far" if count > self.first else ""
            )
