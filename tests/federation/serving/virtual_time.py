"""asyncio in virtual time: when nothing is ready, the clock jumps to the next timer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self.moment = 0.0

    def time(self) -> float:
        return self.moment

    def _run_once(self) -> None:
        ready: Any = getattr(self, "_ready")  # noqa: B009
        timers: Any = getattr(self, "_scheduled")  # noqa: B009
        if not ready and timers:
            self.moment = max(self.moment, timers[0].when())
        super()._run_once()  # pyright: ignore[reportAttributeAccessIssue]


def run(story: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(story)
