"""Attacks of a receiver with a memory on labels: from the gradients of the same rows in several
epochs.

Two classes. Of each row and epoch there is one number: its side along the direction in which the
gradients of its batch differ most. Noise on gradients is as large as the classes of a batch are
apart, so that the sides of each batch are first put on one scale, in three ways:

- *direction*: the sides of gradients of length 1;
- *size*: the root mean square of a batch becomes 1;
- *row*: a batch is scaled so that its rows agree best with themselves in the other epochs. Whatever
  stays the same from epoch to epoch then cancels in a difference.

From each of the three the attacker makes one score per row: the sum over the epochs, in which noise
drawn anew averages out; the last epoch minus the first, and the later half minus the earlier half,
in which noise that never changes cancels; and the main axes of what changes. Apart from that, noise
along a few directions leaves the length of a gradient in the others as it is: see `lengths`.

More classes. There is no common scale, so the directions of whole gradients of some epochs are put
side by side, in two forms; see `together`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from colonnade.privacy import attacks
from colonnade.privacy.attacks import Floats, Labels

SCALINGS = 3  # times that batches are scaled, and the rows' means found anew
CHANGES = 3  # main axes of what changes
WINDOWS = 16  # means of several epochs stand for all of a longer training, where labels are known
PAGES = 8  # epochs at most that are put side by side
AXES = 4  # of them, times the number of classes, are kept

Page = TypeVar("Page")


def scaled(sides: Floats, units: Floats, batches: NDArray[np.int64]) -> list[Floats]:
    """The sides in the three ways. All [rows, epochs]: sides of gradients, of gradients of length
    1, and the number of the batch; below 0 where nothing came, and for the side there 0."""
    there = batches >= 0
    rms = _by_batch(sides**2, np.ones_like(sides), batches, there) ** 0.5
    size = _agreeing(sides / rms, there)
    row = size
    for _ in range(SCALINGS):
        mean = np.broadcast_to(_row_means(row, there)[:, None], sides.shape)
        scale = _by_batch(size * mean, mean**2, batches, there)
        typical = np.median(np.abs(scale[there])) or 1.0
        # A batch of which little agrees tells no scale.
        scale = np.clip(np.abs(scale) / typical, 0.5, 2.0)
        row = size / scale
    return [_filled(one, there) for one in (_agreeing(units, there), size, row)]


def scores(forms: list[Floats]) -> Floats:
    """All that an attacker makes of them that knows no label. [rows, scores]"""
    return np.concatenate([_scores_of(one) for one in forms], 1)


def _scores_of(sides: Floats) -> Floats:
    epochs = sides.shape[1]
    half = epochs // 2
    plain = [
        sides.sum(1),
        sides[:, -1] - sides[:, 0],
        sides[:, epochs - half :].mean(1) - sides[:, :half].mean(1),
    ]
    change = sides - sides.mean(1, keepdims=True)
    change = change - change.mean(0)
    _, axes = np.linalg.eigh(change.T @ change)
    return np.concatenate([np.stack(plain, 1), change @ axes[:, -CHANGES:]], 1)


def lengths(beside: Floats, batches: NDArray[np.int64]) -> Floats:
    """The length beside the main axis by its rank in the batch: the mean over all epochs, and in
    the first, the middle and the last one. [rows, scores]"""
    ranks = np.zeros_like(beside)
    for epoch, (values, which) in enumerate(zip(beside.T, batches.T, strict=True)):
        order = np.lexsort((values, which))
        first = np.searchsorted(which[order], which[order])
        count = np.bincount(which[which >= 0], minlength=which.max(initial=0) + 1)
        ranks[order, epoch] = (np.arange(len(order)) - first) / count[which[order]]
    known = _filled(ranks, batches >= 0)
    epochs = known.shape[1]
    return np.stack([known.mean(1), *(known[:, k] for k in (0, epochs // 2, epochs - 1))], 1)


def lines(along: Floats, feet: Floats, batches: NDArray[np.int64]) -> Floats:
    """What the batches of a row tell that is said without noise: of two classes, gradients may
    leave on a line, towards which a row has moved the mean of its class. Rows of the rarer class
    move it more: the products of the lines of their batches, in pairs of epochs, are larger; so are
    those of the lines and of their feet. `along` and `feet`: of each batch, [batches, numbers].
    [rows, scores]"""
    along, feet = along.copy(), feet.copy()
    last: Floats | None = None
    for column in batches.T:  # an epoch
        mine = np.unique(column[column >= 0])
        axis = np.linalg.eigh(along[mine].T @ along[mine])[1][:, -1]
        last = axis if last is None or axis @ last > 0 else -axis
        along[mine] *= np.where(along[mine] @ last < 0, -1.0, 1.0)[:, None]
        order = np.stack([np.ones(len(mine)), np.arange(len(mine))], 1)
        for values in (along, feet):  # without the mean of the epoch, and its trend
            values[mine] -= order @ np.linalg.lstsq(order, values[mine], rcond=None)[0]
    white = _whitened(along)
    pairs, mixed = (
        _ranks(_in_pairs(one, two, batches)) for one, two in ((white, white), (along, feet))
    )
    agree = np.sign(np.corrcoef(pairs, mixed)[0, 1])
    return np.stack([pairs, mixed, pairs + agree * mixed], 1)


def _in_pairs(one: Floats, other: Floats, batches: NDArray[np.int64]) -> Floats:
    """Of each row, the sum of products of its batches in different epochs. [rows]"""
    sums = [np.zeros((len(batches), one.shape[1])) for _ in range(2)]
    same = np.zeros(len(batches))
    for column in batches.T:
        there = column >= 0
        mine = [values[column[there]] for values in (one, other)]
        for total, values in zip(sums, mine, strict=True):
            total[there] += values
        same[there] += (mine[0] * mine[1]).sum(1)
    return (sums[0] * sums[1]).sum(1) - same


def _whitened(values: Floats) -> Floats:
    left, sizes, _ = np.linalg.svd(values, full_matrices=False)
    return left[:, sizes > 1e-3 * max(sizes[0], 1e-30)] * len(values) ** 0.5


def _ranks(values: Floats) -> Floats:
    return np.argsort(np.argsort(values)) / len(values)


def by_best_score(seen: Floats, labels: Labels) -> float:
    """With rows out of order, it is the best of as many scores, too."""
    return max(attacks.auc(score, labels == 1) for score in seen.T)


def windows(forms: list[Floats]) -> Floats:
    """What a linear model is fitted to: of each form the sides of all epochs, or means of several.
    [rows, forms · epochs]"""
    parts = np.array_split(np.arange(forms[0].shape[1]), min(WINDOWS, forms[0].shape[1]))
    return np.concatenate([one[:, part].mean(1)[:, None] for one in forms for part in parts], 1)


# -- more classes ----------------------------------------------------------------------------------


def together(
    pages: Sequence[NDArray[np.float32]], there: NDArray[np.bool_], classes: int
) -> list[Floats]:
    """The directions of the gradients of several epochs in two forms: side by side, so that noise
    drawn anew averages out; and what the earlier half of the epochs does not tell of the later
    half, in which noise that never changes cancels. Rows that are not `there` are 0.
    pages: [rows, numbers] of each epoch. Each form [rows, numbers]"""
    units = [attacks.unit_rows(page[there].astype(np.float64)) for page in spread(pages)]
    half = len(units) // 2
    early, late = (np.concatenate(part, 1) for part in (units[:half], units[-half:]))
    forms = [np.concatenate(units, 1), late - _told_by(early, late)]
    axes = min(AXES * classes, *(form.shape[1] for form in forms))
    return [_placed(_main_axes(form, axes), there) for form in forms]


def _told_by(known: Floats, other: Floats) -> Floats:
    """The linear map of `known` that comes nearest to `other`."""
    known = known - known.mean(0)
    products = known.T @ known
    products += 1e-3 * np.trace(products) / len(products) * np.eye(len(products))
    return other.mean(0) + known @ np.linalg.solve(products, known.T @ (other - other.mean(0)))


def _main_axes(rows: Floats, count: int) -> Floats:
    centred = rows - rows.mean(0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    return centred @ directions[:, -count:]


def _placed(found: Floats, there: NDArray[np.bool_]) -> Floats:
    whole = np.zeros((len(there), found.shape[1]))
    whole[there] = found
    return whole


def spread(pages: Sequence[Page]) -> list[Page]:
    """Of several epochs the first, the newest, and some between them at even distances."""
    count = min(PAGES, len(pages))
    return [pages[round(k * (len(pages) - 1) / max(1, count - 1))] for k in range(count)]


# -- helpers ---------------------------------------------------------------------------------------


def _by_batch(
    above: Floats, below: Floats, batches: NDArray[np.int64], there: NDArray[np.bool_]
) -> Floats:
    """Of each number, the sum of `above` over its batch, over that of `below`. [rows, epochs]"""
    which, count = batches[there], int(batches.max(initial=0)) + 1
    sums = [np.bincount(which, one[there], count) for one in (above, below)]
    ratio = sums[0] / np.where(sums[1] > 0, sums[1], 1.0)
    ratio = np.where(ratio != 0, ratio, 1.0)
    return np.where(there, ratio[batches], 1.0)


def _agreeing(sides: Floats, there: NDArray[np.bool_]) -> Floats:
    """Which side is which is not known: in each epoch, the one that agrees with the epochs
    before."""
    sides, total = np.where(there, sides, 0.0), np.zeros(len(sides))
    for column in sides.T:
        if column @ total < 0:
            column *= -1
        total += column
    return sides


def _row_means(sides: Floats, there: NDArray[np.bool_]) -> Floats:
    return np.where(there, sides, 0.0).sum(1) / np.maximum(there.sum(1), 1)


def _filled(sides: Floats, there: NDArray[np.bool_]) -> Floats:
    """Where nothing came, the mean of the row."""
    return np.where(there, sides, _row_means(sides, there)[:, None])
