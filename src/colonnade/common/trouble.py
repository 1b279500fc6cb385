"""Something that goes wrong again and again, told in the log without filling it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

SHORTEST, LONGEST = 30.0, 3600.0  # seconds between two lines


class Trouble:
    """Tells that something cannot be written: at once, then after half a minute, a minute, two
    minutes and so on up to an hour; and when it can be written again."""

    def __init__(self, log: logging.Logger, seconds: Callable[[], float] = time.monotonic) -> None:
        self.log, self.seconds = log, seconds
        self.next, self.pause, self.count = 0.0, SHORTEST, 0
        self.lasts = False  # and was told

    def tell(self, text: str) -> None:
        self.count += 1
        if self.seconds() >= self.next:
            self.next, self.lasts = self.seconds() + self.pause, True
            self.pause = min(2 * self.pause, LONGEST)
            self.log.error("%s (%d such errors so far)", text, self.count)

    def over(self, what: str) -> None:
        """Something was written."""
        if self.lasts:
            self.lasts = False
            self.log.info("%s: written again", what)
