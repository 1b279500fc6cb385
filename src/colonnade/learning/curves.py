"""Sums over test rows from which the pictures of a test are drawn; see common/curves.py.

`answers` are [rows, classes] logits or log-probabilities, or [rows, 1] numbers in the unit of the
label; `y` is [rows].
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from colonnade.common.curves import (
    BINS,
    CELLS,
    FALSE_POSITIVE_RATES,
    MOST_CLASSES,
    Bin,
    Cloud,
    Curves,
)

ROOM = 0.25  # of the range of true numbers, on both sides, for predicted ones


def curves_of(answers: Tensor, y: Tensor, classes: int, names: Sequence[str] = ()) -> Curves | None:
    """The curves of a test; None where an answer is not a finite number, or there are no rows."""
    if not len(y) or not bool(torch.isfinite(answers).all()):
        return None
    if not classes:
        return Curves(len(y), 0, cloud=_cloud(answers[:, 0].double(), y.double()))
    probabilities = F.softmax(answers.double(), -1)
    return Curves(
        len(y),
        classes,
        list(names),
        _confusion(answers.argmax(-1), y, classes) if classes <= MOST_CLASSES else [],
        _mean_roc(answers.double(), y) if classes <= MOST_CLASSES else [],
        _calibration(probabilities, y),
    )


def _confusion(chosen: Tensor, y: Tensor, classes: int) -> list[list[int]]:
    counts = torch.bincount(classes * y + chosen, minlength=classes**2)
    return counts.reshape(classes, classes).tolist()


def _mean_roc(answers: Tensor, y: Tensor) -> list[float]:
    """Empty where no class has both rows of it and rows of others."""
    if answers.shape[1] == 2:
        pairs = [(answers[:, 1] - answers[:, 0], y == 1)]
    else:
        log_p = F.log_softmax(answers, -1)
        pairs = [(log_p[:, c], y == c) for c in y.unique().tolist()]
    found = [roc(score, true) for score, true in pairs if 0 < int(true.sum()) < len(y)]
    return [round(value, 5) for value in torch.stack(found).mean(0).tolist()] if found else []


def roc(score: Tensor, true: Tensor) -> Tensor:
    """True positive rates at `FALSE_POSITIVE_RATES`. Rows of equal score are accepted together, so
    that the curve is straight over them. [rates]"""
    _, which = score.unique(return_inverse=True)  # ascending
    levels = int(which.max()) + 1
    found = torch.bincount(which[true], minlength=levels).flip(0).cumsum(0).double()
    false = torch.bincount(which[~true], minlength=levels).flip(0).cumsum(0).double()
    zero = torch.zeros(1, dtype=torch.float64)
    x, y = torch.cat([zero, false / false[-1]]), torch.cat([zero, found / found[-1]])
    at = torch.tensor(FALSE_POSITIVE_RATES, dtype=torch.float64)
    left = torch.searchsorted(x, at, right=True) - 1
    right = (left + 1).clamp(max=levels)
    width = (x[right] - x[left]).clamp(min=1e-300)
    return y[left] + (y[right] - y[left]) * ((at - x[left]) / width).clamp(0, 1)


def _calibration(probabilities: Tensor, y: Tensor) -> list[Bin]:
    """Bins without rows are left out."""
    if probabilities.shape[1] == 2:
        p, hit = probabilities[:, 1], y == 1
    else:
        p, chosen = probabilities.max(-1)
        hit = chosen == y
    edges = torch.linspace(0, 1, BINS + 1, dtype=torch.float64)[1:-1]
    which = torch.bucketize(p.contiguous(), edges)
    rows = torch.bincount(which, minlength=BINS)
    sums = torch.zeros(BINS, dtype=torch.float64).index_add_(0, which, p)
    hits = torch.bincount(which[hit], minlength=BINS)
    together = zip(rows.tolist(), sums.tolist(), hits.tolist(), strict=True)
    return [Bin(n, round(s, 6), h) for n, s, h in together if n]


def _cloud(predicted: Tensor, y: Tensor) -> Cloud:
    low, high = float(y.min()), float(y.max())
    room = ROOM * (high - low) or 1.0
    edges = torch.linspace(low - room, high + room, CELLS + 1, dtype=torch.float64)
    cells = torch.bucketize(torch.stack([y, predicted]), edges[1:-1])
    counts = torch.bincount(CELLS * cells[0] + cells[1], minlength=CELLS**2)
    errors = predicted - y
    most = float(errors.abs().max()) or 1.0
    error_edges = torch.linspace(-most, most, CELLS + 2, dtype=torch.float64)  # 0 in the middle
    how_many = torch.bincount(torch.bucketize(errors, error_edges[1:-1]), minlength=CELLS + 1)
    return Cloud(
        edges.tolist(),
        counts.reshape(CELLS, CELLS).tolist(),
        error_edges.tolist(),
        how_many.tolist(),
    )
