"""A party that answers at once, for tests of what is in front of it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from colonnade.federation.member.prediction_requests import Asked, Predicted
from colonnade.federation.member.stage import Stage
from colonnade.federation.serving.api import NotReady


class FakeParty:
    """Knows whole numbers below a thousand. `takes`: seconds of an answer."""

    def __init__(self, takes: float = 0.0) -> None:
        self.takes = takes
        self.stage = Stage.ANSWERING
        self.absent: dict[str, str] = {}
        self.asked: list[Asked] = []
        self.heard = threading.Event()  # of a request

    async def ask(self, asked: Asked, seconds: float) -> Predicted:
        self.asked.append(asked)
        self.heard.set()
        await asyncio.sleep(self.takes)
        if self.stage != Stage.ANSWERING:
            raise NotReady(f"hospital is not ready: {self.stage}, round 3")
        known = [key for key in asked.ids or [] if key.isdecimal() and len(key) < 4]
        likely = [[int(key) / 1000, 1 - int(key) / 1000] for key in known]
        return Predicted(
            known,
            ["no", "yes"],
            [int(row[1] > row[0]) for row in likely],
            likely,
            [self.absent] * len(known),
            unknown=[key for key in asked.ids or [] if key not in known],
            model="round 3 of training 1",
        )

    async def status(self) -> dict[str, Any]:
        return {"party": "hospital", "stage": self.stage}
