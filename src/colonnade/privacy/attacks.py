"""Attacks of a curious receiver: what can be inferred from what was received, row by row.

Each attack takes what a receiver saw of some rows, [rows, numbers], and says how well a secret is
inferred: labels, or another party's columns. They are passive: the attacker follows the protocol
and thinks about what it got. An attacker may know the secret of a few rows.

- *Norm* (Li et al., 2022, "Label leakage and protection in two-party split learning"): with two
  classes of unequal size, gradients of the rare class are longer.
- *Direction* (the same): gradients of the two classes point away from each other, so that one sign
  is one class.
- *Clusters*: gradients of one class are alike, so that clusters are classes.
- *Few labels* (Fu et al., 2022, "Label inference attacks against vertical federated learning"): a
  linear model is fitted to the rows whose labels are known; on embeddings of the attacker's own
  trained encoder this is their *model completion*.
- *Reconstruction*: columns are regressed on what was received, with few known rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

MOST = 3000  # rows that an attack looks at
KNOWN_LABELS = 100
KNOWN_ROWS = 0.01  # share of the rows whose columns are known
LEAST_KNOWN = 20
RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)  # tried on a fifth of the known rows


def auc(score: Floats, positive: NDArray[np.bool_]) -> float:
    """The area under the ROC curve, whichever of the two sides is called positive."""
    from sklearn.metrics import roc_auc_score

    if positive.all() or not positive.any():
        return 0.5
    value = float(roc_auc_score(positive, score))
    return max(value, 1.0 - value)


def by_norm(seen: Floats, labels: Labels) -> float:
    return auc(np.linalg.norm(seen, axis=1), labels == 1)


def by_direction(seen: Floats, labels: Labels) -> float:
    return auc(sides(seen), labels == 1)


def sides(seen: Floats) -> Floats:
    """The side of each row along the direction in which the rows differ most. [rows]"""
    unit = unit_rows(seen)
    _, directions = np.linalg.eigh(unit.T @ unit)
    return unit @ directions[:, -1]


def by_clusters(seen: Floats, labels: Labels, classes: int, seed: int) -> float:
    """The share of rows whose cluster is their class, with the best naming of the clusters."""
    from scipy.optimize import linear_sum_assignment
    from sklearn.cluster import KMeans

    means = KMeans(classes, n_init=2, random_state=seed)  # pyright: ignore[reportArgumentType]
    found = means.fit_predict(unit_rows(seen))
    table = np.zeros((classes, classes))
    np.add.at(table, (found, labels), 1)
    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / len(labels))


def by_few_labels(seen: Floats, labels: Labels, seed: int, *, binary: bool) -> float:
    """A linear model of the rows with known labels, on all others: AUC for two classes, else the
    accuracy."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    order = np.random.default_rng(seed).permutation(len(labels))
    known, rest = order[:KNOWN_LABELS], order[KNOWN_LABELS:]
    if len(np.unique(labels[known])) < 2 or not len(rest):
        return 0.5 if binary else float(np.bincount(labels).max() / len(labels))
    scaled = StandardScaler().fit(seen[known])
    model = LogisticRegression(max_iter=200).fit(scaled.transform(seen[known]), labels[known])
    told = scaled.transform(seen[rest])
    if binary:
        return auc(model.decision_function(told), labels[rest] == 1)
    return float((model.predict(told) == labels[rest]).mean())


def reconstruction(seen: Floats, columns: Floats, seed: int) -> float:
    """R² of the columns of unknown rows, by ridge regression; 0 is what their means give. Not
    below 0: an attacker can fall back on the means."""
    order = np.random.default_rng(seed).permutation(len(columns))
    count = max(LEAST_KNOWN, round(KNOWN_ROWS * len(columns)))
    known, rest = order[:count], order[count:]
    tried, fitted = known[: count // 5], known[count // 5 :]

    def score(ridge: float) -> float:
        told = _ridge(seen[fitted], columns[fitted], ridge, seen[tried])
        return _r2(told, columns[tried])

    best = max(RIDGES, key=score)
    return max(0.0, _r2(_ridge(seen[known], columns[known], best, seen[rest]), columns[rest]))


def class_means(labels: Labels, columns: Floats) -> float:
    """R² of an attacker that knows all labels and the mean columns of each class, and nothing
    else."""
    told = np.zeros_like(columns)
    for label in np.unique(labels):
        told[labels == label] = columns[labels == label].mean(0)
    return max(0.0, _r2(told, columns))


def unit_rows(seen: Floats) -> Floats:
    length = np.linalg.norm(seen, axis=1, keepdims=True)
    return seen / np.where(length > 0, length, 1.0)


def _ridge(x: Floats, y: Floats, ridge: float, new: Floats) -> Floats:
    """In the dual form: there are few known rows."""
    centre, spread, mean = x.mean(0), x.std(0) + 1e-12, y.mean(0)
    a, b = (x - centre) / spread, (new - centre) / spread
    a, b = a / np.sqrt(x.shape[1]), b / np.sqrt(x.shape[1])
    weights = np.linalg.solve(a @ a.T + ridge * np.eye(len(a)), y - mean)
    return mean + b @ (a.T @ weights)


def _r2(told: Floats, truth: Floats) -> float:
    """Over all columns together, by the share of their variance."""
    left, whole = ((truth - told) ** 2).sum(), ((truth - truth.mean(0)) ** 2).sum()
    return float(1.0 - left / whole) if whole > 0 else 0.0
