"""The delays of section 6.2 as the table `network.delays` of an experiment."""

from __future__ import annotations

import math
from typing import Any

QUICK = 0.1  # seconds by which one half of the clients is late, on average
SLOW = (2.5, 3.0, 3.5, 4.0)  # the other half, in turn: 2 + i/2 for i = 1 … 4
BANDWIDTH = 3e8  # bits per second


def stragglers(clients: int, batch: int, *, share: float = 1.0, **more: Any) -> dict[str, Any]:
    """The last half of the clients are stragglers. `share`: of the paper's delays; `more`: other
    keys, such as `compute`."""
    late = range(clients - clients // 2, clients)
    means = {f"client{n}": SLOW[i % len(SLOW)] for i, n in enumerate(late)}
    lag = {who: {"exponential": share * s} for who, s in {"clients": QUICK, **means}.items()}
    factors = {"model-share": math.log(clients) ** 2 / batch, "data-share": 0.0}
    return {"bandwidth": BANDWIDTH, "lag": lag, "lag_factors": factors, **more}
