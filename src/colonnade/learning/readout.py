"""Whether what a party tells of its rows has anything to do with their labels.

A linear model is fitted to the party's embeddings of some rows, by ridge regression, and reads
other rows. If the embeddings have nothing to do with the labels, then the labels of these other
rows could as well be dealt out in any other order: `tells` says by how many standard deviations,
over all such orders, the true order is better than the mean.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

RIDGE = 1e-2  # of the embeddings' mean variance
CONSTANT = 1e-6  # of the largest embedding: numbers that vary less are the same for every row
LEAST = 3.0  # standard deviations; pure noise is above in about 1 of 500 cases


def tells(train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], classes: int) -> float | None:
    """Embeddings [rows, width] and labels [rows], to fit and to read. `classes`: 0 for numbers.
    None: the embeddings are the same for every row."""
    (h, y), (new, truth) = train, test
    h, new = h.double(), new.double()
    if h.std(0, correction=0).max() <= CONSTANT * h.abs().max().clamp(min=1e-30):
        return None
    wanted = F.one_hot(y, classes).double() if classes else y.double()[:, None]
    read = _ridge(h, wanted, new)
    if not classes:
        return _correlated(read[:, 0], truth.double())
    return _scored(read, truth)


def _ridge(h: Tensor, wanted: Tensor, new: Tensor) -> Tensor:
    centre, mean = h.mean(0), wanted.mean(0)
    h, new = h - centre, new - centre
    gram = h.T @ h
    gram.diagonal().add_(RIDGE * gram.diagonal().mean())
    return new @ torch.linalg.solve(gram, h.T @ (wanted - mean)) + mean


def _scored(read: Tensor, truth: Tensor) -> float:
    """Of the sum over rows of what was read for the true class; mean and variance over all orders
    are Hoeffding's (1951). It sees a class that is more likely in some rows, even if another class
    is the likeliest in all of them."""
    rows = len(truth)
    share = torch.bincount(truth, minlength=read.shape[1]).double() / rows  # [classes]
    centred = read - (read @ share)[:, None]  # over the labels, for each row
    centred = centred - centred.mean(0)  # over the rows, for each label
    variance = rows / (rows - 1) * (centred.square() @ share).sum()
    if variance <= 0:
        return 0.0  # every row is read alike, or is of the same class
    return float(centred.gather(1, truth[:, None]).sum() / variance.sqrt())


def _correlated(read: Tensor, truth: Tensor) -> float:
    """Of the covariance, which over all orders has mean 0."""
    read, truth = read - read.mean(), truth - truth.mean()
    length = read.norm() * truth.norm()
    return float(read @ truth / length) * math.sqrt(len(truth) - 1) if length > 0 else 0.0
