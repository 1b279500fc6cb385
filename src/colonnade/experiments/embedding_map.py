"""What parties tell of rows, as places on a map."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from colonnade.experiments.trained_model import TrainedModel

POINTS = 150  # rows on a map

MapKind = Literal["pca", "tsne", "none"]


def points(trained: TrainedModel, how: MapKind) -> dict[str, list[tuple[float, float]]]:
    """By party: the places of its embeddings of some rows on a map."""
    part = trained.part
    few = min(POINTS, part.rows)
    embedded = trained.algorithm.embed(part.only(torch.arange(few)))
    if embedded is None or how == "none" or few < 4:
        return {}
    flat = _principal if how == "pca" else _neighbourly
    found = {}
    for party, h in zip(trained.parties, embedded.double(), strict=True):
        places = flat(h - h.mean(0))
        found[party] = [(round(x, 4), round(y, 4)) for x, y in places.tolist()]
    return found


def _principal(h: Tensor) -> Tensor:
    """The two directions in which the embeddings differ most. [rows, 2]"""
    _, _, directions = torch.linalg.svd(h, full_matrices=False)
    two = torch.zeros(2, h.shape[1], dtype=h.dtype)
    two[: len(directions[:2])] = directions[:2]
    strongest = two.gather(1, two.abs().argmax(1, keepdim=True))
    return h @ (two * strongest.sign()).T  # the sign of a direction is anybody's choice


def _neighbourly(h: Tensor) -> Tensor:
    """By t-SNE, which keeps neighbours near each other, and nothing else. [rows, 2]"""
    from sklearn.manifold import TSNE

    if float(h.abs().max()) == 0:
        return torch.zeros(len(h), 2)
    likely = min(30.0, (len(h) - 1) / 3)
    made: Any = TSNE(perplexity=likely, init="pca", random_state=0).fit_transform(h.numpy())
    return torch.from_numpy(made)
