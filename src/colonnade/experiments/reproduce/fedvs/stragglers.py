"""The delays of section 6.2 as the table `network.delays` of an experiment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

QUICK = 0.1  # seconds by which one half of the clients is late, on average
SLOW = (2.5, 3.0, 3.5, 4.0)  # the other half, in turn: 2 + i/2 for i = 1 … 4
BANDWIDTH = 3e8  # bits per second


def numbered(clients: int) -> list[str]:
    """The names of so many clients, where the data have none for them."""
    return [f"client{n}" for n in range(clients)]


def stragglers(
    clients: Sequence[str], batch: int, *, share: float = 1.0, **more: Any
) -> dict[str, Any]:
    """The last half of the clients are stragglers. `share`: of the paper's delays; `more`: other
    keys, such as `compute`."""
    late = clients[len(clients) - len(clients) // 2 :]
    means = {name: SLOW[i % len(SLOW)] for i, name in enumerate(late)}
    lag = {who: {"exponential": share * s} for who, s in {"clients": QUICK, **means}.items()}
    factors = {"model-share": math.log(len(clients)) ** 2 / batch, "data-share": 0.0}
    return {"bandwidth": BANDWIDTH, "lag": lag, "lag_factors": factors, **more}
