"""Attacks of a curious receiver on labels: what can be inferred from what was received, row by row.

Each attack takes what a receiver saw of some rows, [rows, numbers], and says how well the labels
are inferred. They are passive: the attacker follows the protocol and thinks about what it got. An
attacker may know the labels of a few rows. Attacks on columns are in reconstruction.py.

- *Norm* (Li et al., 2022, "Label leakage and protection in two-party split learning"): with two
  classes of unequal size, gradients of the rare class are longer.
- *Direction* (the same): gradients of the two classes point away from each other, so that one sign
  is one class.
- *Clusters*: gradients of one class are alike, so that clusters are classes.
- *Few labels* (Fu et al., 2022, "Label inference attacks against vertical federated learning"): a
  linear model is fitted to the rows whose labels are known; on embeddings of the attacker's own
  trained encoder this is their *model completion*.

Of number labels, norm and direction are correlated with the number: along the direction in which
gradients differ most, a gradient is how far the model is from the label.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from colonnade.privacy.reconstruction import (
    Ridge,
    explained,
    minimised,
    ridge_regression,
    standardised,
)

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

MOST = 3000  # rows that an attack looks at
KNOWN_LABELS = 100
SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")
QUICK_RIDGE = 0.1  # of the linear model by which attempts are compared
LOGISTIC_STEPS = 500
CLUSTER_STARTS = 3  # of k-means, of which the tightest clusters count
QUICK_STEPS = 5  # of k-means, to compare attempts
CLUSTER_STEPS = 30  # of k-means: more change the accuracy by less than 0.01


def auc(score: Floats, positive: NDArray[np.bool_]) -> float:
    """The area under the ROC curve, whichever of the two sides is called positive."""
    if positive.all() or not positive.any():
        return 0.5
    below = np.sort(score[~positive])
    beaten = sum(np.searchsorted(below, score[positive], side).mean() for side in SIDES) / 2
    value = float(beaten / len(below))  # of pairs; a tie is half of one
    return max(value, 1.0 - value)


def by_norm(seen: Floats, labels: Labels) -> float:
    return auc(np.linalg.norm(seen, axis=1), labels == 1)


def by_direction(seen: Floats, labels: Labels) -> float:
    return auc(sides(seen), labels == 1)


def sides(seen: Floats) -> Floats:
    """The side of each row along the direction in which the rows differ most. [rows]"""
    return _along_main_axis(unit_rows(seen))


def by_clusters(
    seen: Floats, labels: Labels, classes: int, seed: int, *, quick: bool = False
) -> float:
    """The share of rows whose cluster is their class, with the best naming of the clusters.
    `quick`: k-means begins once only, and takes fewer steps, to compare attempts."""
    from scipy.optimize import linear_sum_assignment
    from sklearn.cluster import KMeans

    count: int = min(classes, len(seen))
    how = {
        "n_init": 1 if quick else CLUSTER_STARTS,
        "max_iter": QUICK_STEPS if quick else CLUSTER_STEPS,
        "random_state": seed,
    }
    found = KMeans(count, **how).fit_predict(unit_rows(seen))  # pyright: ignore[reportArgumentType]
    table = np.zeros((classes, classes))
    np.add.at(table, (found, labels), 1)
    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / len(labels))


def by_few_labels(seen: Floats, labels: Labels, *, binary: bool, quick: bool = False) -> float:
    """A linear model of the rows with known labels, which are the first ones, on all others: AUC
    for two classes, else the accuracy."""
    known, rest = slice(KNOWN_LABELS), slice(KNOWN_LABELS, None)
    mine, others = (seen[known], labels[known]), (seen[rest], labels[rest])
    return by_own_labels(*mine, *others, binary=binary, quick=quick)


def by_own_labels(
    own: Floats,
    own_labels: Labels,
    seen: Floats,
    labels: Labels,
    *,
    binary: bool,
    quick: bool = False,
) -> float:
    """The same, with a linear model of other rows, of which the attacker holds the labels. `quick`:
    by least squares in place of logistic regression, to compare attempts."""
    if len(np.unique(own_labels)) < 2 or not len(labels):
        return 0.5 if binary else float(np.bincount(labels).max() / len(labels))
    own, seen = _with_directions(own), _with_directions(seen)
    truth = np.eye(own_labels.max() + 1)[own_labels]
    if quick:
        scores = Ridge(own, truth, seen).told(QUICK_RIDGE)
    else:
        scores = _logistic(*standardised(own, seen), truth)
    if binary:
        return auc(scores[:, 1] - scores[:, 0], labels == 1)
    return float((scores.argmax(1) == labels).mean())


def _logistic(known: Floats, new: Floats, truth: Floats) -> Floats:
    """Logistic regression of `truth` [known, classes] with a penalty of half the squared weights:
    the scores of new rows. (That of scikit-learn takes three times as long with 100 rows.)"""
    x = np.concatenate([known, np.ones((len(known), 1))], 1)

    def loss(weights: Floats) -> tuple[float, Floats]:
        scores = x @ weights
        scores -= scores.max(1, keepdims=True)
        odds = np.exp(scores)
        total = odds.sum(1, keepdims=True)
        slope = x.T @ (odds / total - truth)
        slope[:-1] += weights[:-1]
        value = np.log(total).sum() - (scores * truth).sum() + 0.5 * (weights[:-1] ** 2).sum()
        return float(value), slope

    start = np.zeros((x.shape[1], truth.shape[1]))
    [weights] = minimised(loss, [start], LOGISTIC_STEPS, tolerance=1e-3 * len(known))
    return new @ weights[:-1] + weights[-1]


# -- number labels ---------------------------------------------------------------------------------


def number_by_norm(seen: Floats, numbers: Floats) -> float:
    return _squared_correlation(np.linalg.norm(seen, axis=1), numbers)


def number_by_direction(seen: Floats, numbers: Floats) -> float:
    return _squared_correlation(_along_main_axis(seen - seen.mean(0)), numbers)


def number_by_few_labels(seen: Floats, numbers: Floats) -> float:
    """R² of a ridge regression of the rows with known labels, the first ones, on all others."""
    known, rest = slice(KNOWN_LABELS), slice(KNOWN_LABELS, None)
    told = ridge_regression(seen[known], numbers[known, None], seen[rest])
    return explained(told, numbers[rest, None])


def _squared_correlation(score: Floats, numbers: Floats) -> float:
    """R² of the best line through the score."""
    if not score.std() or not numbers.std():
        return 0.0
    return float(np.corrcoef(score, numbers)[0, 1] ** 2)


# -- helpers ---------------------------------------------------------------------------------------


def unit_rows(seen: Floats) -> Floats:
    length = np.linalg.norm(seen, axis=1, keepdims=True)
    return seen / np.where(length > 0, length, 1.0)


def _with_directions(seen: Floats) -> Floats:
    """Gradients of rows that the model is sure of are short, and all lengths differ: their
    directions tell more (MNIST, 100 known labels: 0.87, and 0.55 without)."""
    return np.concatenate([seen, unit_rows(seen)], 1)


def _along_main_axis(rows: Floats) -> Floats:
    _, directions = np.linalg.eigh(rows.T @ rows)
    return rows @ directions[:, -1]
