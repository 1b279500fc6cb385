"""The step of ADMM on the cross entropy (VIM, equation 6): all rows of a batch at once, beside
L-BFGS-B of scipy, row by row, as the paper has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits
from torch import Tensor

from bench.timing import Figure, Target, Variant, compare, milliseconds, take_turns
from colonnade.models.proximal import nearest_logits

ROWS, CLASSES = 1024, 10
ROWS_OF_SCIPY = 64
RHO = 1.0
PLAIN, OURS = "L-BFGS-B", "batched Newton"
REPEATS = 15
FACTOR = 80.0  # times as fast, per row


def run() -> list[Figure]:
    stream = torch.Generator().manual_seed(0)
    v = 3 * torch.randn(1, ROWS, CLASSES, generator=stream)
    y, begin = torch.randint(CLASSES, (ROWS,), generator=stream), torch.zeros_like(v)
    few = slice(0, ROWS_OF_SCIPY)
    ours = Variant(lambda n: [nearest_logits(v, y, RHO, begin) for _ in range(n)], 10)
    theirs = Variant(lambda n: by_scipy(v[:, few], y[few], RHO, begin[:, few]), 1)
    with threadpool_limits(1):  # more threads make scipy slower, many times on a busy machine
        turns = take_turns({PLAIN: theirs, OURS: ours}, REPEATS)
    by_row = lambda own, plain: (plain / ROWS_OF_SCIPY) / (own / ROWS)  # noqa: E731
    result = compare(turns, OURS, PLAIN, by_row)
    found = nearest_logits(v, y, RHO, begin)[:, few]
    difference = float((found - by_scipy(v[:, few], y[few], RHO, begin[:, few])).abs().max())
    return [
        Figure("proximal", f"{PLAIN}, {ROWS_OF_SCIPY} rows", milliseconds(turns, PLAIN)),
        Figure(
            "proximal",
            f"{OURS}, {ROWS} rows",
            milliseconds(turns, OURS),
            "times as fast per row",
            result,
            Target(FACTOR),
            difference=difference,
        ),
    ]


def by_scipy(v: Tensor, labels: Tensor, rho: float, begin: Tensor) -> Tensor:
    """[1, rows, classes], labels [rows] → [1, rows, classes]"""
    rows = zip(v[0].double().numpy(), labels.tolist(), begin[0].double().numpy(), strict=True)
    return torch.from_numpy(np.stack([_row(*one, rho) for one in rows]))[None]


def _row(v: Any, label: int, begin: Any, rho: float) -> Any:
    def objective(z: Any) -> tuple[float, Any]:
        top = z.max()
        powers = np.exp(z - top)
        total = powers.sum()
        gradient = powers / total + rho * (z - v)
        gradient[label] -= 1
        return top + np.log(total) - z[label] + rho / 2 * ((z - v) ** 2).sum(), gradient

    exact = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-16, "gtol": 1e-10}
    return minimize(objective, begin, jac=True, method="L-BFGS-B", options=exact).x
