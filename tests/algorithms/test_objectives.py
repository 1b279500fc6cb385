"""Learning without labels: losses against what others compute, and what a view of a row is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.algorithms.fedonce import FedOnceSettings
from colonnade.data import DataSpec, load
from colonnade.experiments.run import build
from colonnade.learning.objectives import (
    OFF_DIAGONAL,
    TEMPERATURE,
    BarlowTwins,
    NoiseTargets,
    SimCLR,
    distance,
    shifted,
    view,
)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_simclr_is_the_papers_formula_row_by_row() -> None:
    """Chen et al., equation 1, summed by hand over ordered pairs."""
    z = random(2, 6, 4)
    for member, loss in zip(z, SimCLR.disagreement(z, z), strict=True):
        total = 0.0
        for i in range(6):
            j = (i + 3) % 6
            like = [float(F.cosine_similarity(member[i], member[k], dim=0)) for k in range(6)]
            others = sum(np.exp(like[k] / TEMPERATURE) for k in range(6) if k != i)
            total -= np.log(np.exp(like[j] / TEMPERATURE) / others)
        assert float(loss) == pytest.approx(total / 6, rel=1e-5)


def test_barlow_compares_the_correlations_that_numpy_computes() -> None:
    z = random(2, 40, 3)
    for member, loss in zip(z.numpy(), BarlowTwins.disagreement(z, z), strict=True):
        c = np.corrcoef(member[:20].T, member[20:].T)[:3, 3:]
        off = (c**2).sum() - (np.diag(c) ** 2).sum()
        expected = ((1 - np.diag(c)) ** 2).sum() + OFF_DIAGONAL * off
        assert float(loss) == pytest.approx(expected, rel=1e-3)


def test_equal_views_of_unlike_rows_are_better_than_unequal_ones() -> None:
    x = random(1, 32, 8)
    same, mixed = torch.cat([x, x], 1), torch.cat([x, x.roll(1, 1)], 1)
    for objective in (SimCLR, BarlowTwins):
        agree, differ = (float(objective.disagreement(z, z)) for z in (same, mixed))
        assert agree < differ


@given(st.integers(1, 3), st.integers(2, 9), st.integers(2, 20), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_a_shifted_image_is_a_window_of_the_image_with_a_black_margin(
    channels: int, height: int, width: int, seed: int
) -> None:
    images = random(3, channels, height, width, seed=seed).abs() + 0.1
    moved = shifted(images, torch.Generator().manual_seed(seed))
    reach = [max(1, height // 8), max(1, width // 8)]
    for image, result in zip(images, moved, strict=True):
        windows = []
        for dy, dx in itertools.product(*[range(-r, r + 1) for r in reach]):
            window = torch.zeros_like(image)
            for y, x in itertools.product(range(height), range(width)):
                if 0 <= y + dy < height and 0 <= x + dx < width:
                    window[:, y, x] = image[:, y + dy, x + dx]
            windows.append(window)
        assert any(torch.equal(result, window) for window in windows)


def test_a_view_of_a_table_leaves_entries_out_and_an_image_stays_within_its_range() -> None:
    stream = torch.Generator().manual_seed(0)
    table = view(torch.ones(400, 50), (50,), stream)
    assert float((table == 0).float().mean()) == pytest.approx(0.3, abs=0.02)
    image = view(torch.ones(400, 50), (1, 5, 10), stream)
    assert float(image.min()) >= 0
    assert float(image.max()) <= 1


def test_noise_targets_lie_on_the_sphere_and_are_only_exchanged_within_a_batch() -> None:
    data = load(DataSpec(dataset="digits", rows=200), seed=0)
    chosen = FedOnceSettings(name="f", algorithm="fedonce", objective="noise")
    algorithm, _ = build(chosen, data, seed=0)
    noise: NoiseTargets = algorithm.encoders  # pyright: ignore[reportAttributeAccessIssue]
    before = noise.targets.value.clone()
    assert torch.allclose(before.norm(dim=2), torch.ones(before.shape[:2]))
    rows, up = torch.arange(10, 40), torch.tensor([True, True, True, False])
    h = noise.encoders.predict(algorithm.data.train.x.index_select(1, rows))
    near = [float(distance(noise.helpers.predict(h), t[:, rows])[:3].sum()) for t in [before]]
    noise.reassign(h, up, rows)
    near.append(float(distance(noise.helpers.predict(h), noise.targets.value[:, rows])[:3].sum()))
    assert near[1] < near[0]
    assert torch.equal(noise.targets.value[3], before[3]), "a party that is away keeps its points"
    untouched = [r for r in range(before.shape[1]) if not 10 <= r < 40]
    assert torch.equal(noise.targets.value[:, untouched], before[:, untouched])
    for member in range(3):
        points = {tuple(p.tolist()) for p in noise.targets.value[member, rows]}
        assert points == {tuple(p.tolist()) for p in before[member, rows]}


def test_the_exchange_is_the_best_of_all_permutations() -> None:
    data = load(DataSpec(dataset="digits", rows=200), seed=0)
    chosen = FedOnceSettings(name="f", algorithm="fedonce", objective="noise")
    algorithm, _ = build(chosen, data, seed=0)
    noise: NoiseTargets = algorithm.encoders  # pyright: ignore[reportAttributeAccessIssue]
    rows, up = torch.arange(5), torch.ones(4, dtype=torch.bool)
    h = noise.encoders.predict(algorithm.data.train.x.index_select(1, rows))
    z, points = F.normalize(noise.helpers.predict(h), dim=2), noise.targets.value[:, rows].clone()
    noise.reassign(h, up, rows)
    for i in range(4):
        every = [
            float((z[i] - points[i, list(order)]).square().sum())
            for order in itertools.permutations(range(5))
        ]
        found = float((z[i] - noise.targets.value[i, rows]).square().sum())
        assert found == pytest.approx(min(every), abs=1e-5)
