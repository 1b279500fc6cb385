"""VAFL: each visit against a plain loop, and how embeddings may be joined."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from colonnade.algorithms.splitnn import SplitNNSettings
from colonnade.algorithms.vafl import VAFLSettings
from colonnade.data import DataSpec, VerticalData, load
from colonnade.errors import InputError
from colonnade.experiments.run import build, drive
from colonnade.learning.models import make_encoder, make_head
from colonnade.learning.settings import Polynomial, Settings
from colonnade.testing.engines import difference, live, over_zenoh, projected, stacked
from colonnade.testing.kit import same_run

RATE = 0.1
CUBIC = Polynomial(degree=3, width=8)


@pytest.fixture(scope="module")
def digits() -> VerticalData:
    return load(DataSpec(dataset="digits", rows=200), seed=0)


def vafl(**more: Any) -> VAFLSettings:
    return VAFLSettings(**{"name": "v", "algorithm": "vafl", "epochs": 1, **more})


@pytest.mark.parametrize("combine", ["concat", "mean", "sum"])
def test_a_visit_is_a_step_with_one_new_embedding_and_the_stored_ones_of_the_others(
    digits: VerticalData, combine: str
) -> None:
    """Of four clients that visit in turn, with all rows; who has not come yet counts as zeros, but
    a mean is over those that have."""
    rows, clients = len(digits.train), len(digits.widths)
    settings = vafl(combine=combine, batch=rows, encoder=CUBIC, optimizer="sgd", lr=RATE)
    algorithm, net = build(settings, digits, seed=0)
    encoders = [
        make_encoder(CUBIC, width, shape)
        for width, shape in zip(digits.widths, digits.shapes, strict=True)
    ]
    head = make_head(None, 8 * clients if combine == "concat" else 8, digits.classes)
    for i, encoder in enumerate(encoders):
        encoder.load_state_dict(copy.deepcopy(algorithm.stacks["encoder"][1].member_state(i)))
    head.load_state_dict(copy.deepcopy(algorithm.stacks["head"][1].member_state(0)))

    stored = [torch.zeros(rows, 8)] * clients
    for i, encoder in enumerate(encoders):
        stored[i] = encoder(digits.train.x[i][:, : digits.widths[i]])
        joined = {
            "concat": lambda: torch.cat(stored, 1),
            "sum": lambda: torch.stack(stored).sum(0),
            "mean": lambda known=i + 1: torch.stack(stored[:known]).mean(0),
        }[combine]()
        loss = F.cross_entropy(head(joined), digits.train.y)
        learnt = [*head.parameters(), *encoder.parameters()]
        with torch.no_grad():
            for weight, slope in zip(learnt, torch.autograd.grad(loss, learnt), strict=True):
                weight -= RATE * slope
        stored[i] = stored[i].detach()

    drive(algorithm.train(net))
    for i, encoder in enumerate(encoders):
        assert_same(algorithm.stacks["encoder"][1].member_state(i), encoder.state_dict())
    assert_same(algorithm.stacks["head"][1].member_state(0), head.state_dict())


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    for key, value in theirs.items():
        assert torch.allclose(ours[key], value, atol=1e-5), key


def test_with_one_client_all_engines_train_the_very_same_model(tmp_path: Path) -> None:
    """Of several, whoever is ready first comes first."""
    data = load(DataSpec(dataset="digits", rows=200, parties=1), seed=0)
    one = stacked(vafl(), data)
    assert difference(one, projected(vafl(), data)) < 1e-6
    same_run(one, live(vafl(), data))
    same_run(one, over_zenoh(vafl(), data, tmp_path))


def test_a_mean_needs_embeddings_of_one_width() -> None:
    wine = load(DataSpec(dataset="wine", parties=3), seed=0)
    with pytest.raises(InputError, match="combine = 'mean': needs embeddings of one width"):
        build(vafl(combine="mean", encoder=[0.6]), wine, 0)


def test_vfb2_with_one_label_holder_trains_what_split_learning_with_a_sum_trains() -> None:
    data = load(DataSpec(dataset="digits", rows=200), seed=0)
    one = stacked(Settings(name="vfb2", algorithm="vfb2", epochs=2), data)
    sums = SplitNNSettings(name="sum", algorithm="splitnn", combine="sum", epochs=2)
    other = stacked(sums, data)
    assert difference(one, dict.fromkeys(one.weights, other)) == 0
    assert one.metrics == other.metrics
