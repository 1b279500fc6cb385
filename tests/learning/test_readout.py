"""Whether embeddings tell anything of the labels."""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.learning.readout import LEAST, tells


def halves(h: Tensor, y: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    half = len(y) // 2
    return (h[:half], y[:half]), (h[half:], y[half:])


def test_pure_noise_hardly_ever_passes_for_more() -> None:
    stream = torch.Generator().manual_seed(0)
    for classes in (0, 2, 10):
        found = []
        for _ in range(600):
            h = torch.randn(300, 8, generator=stream)
            y = torch.randint(classes, (300,), generator=stream) if classes else h.new_empty(300)
            if not classes:
                y = torch.randn(300, generator=stream)
            found.append(tells(*halves(h, y), classes))
        assert sum(one is not None and one >= LEAST for one in found) <= 5, classes  # 1 is expected


def test_a_weak_hint_among_much_noise_is_found() -> None:
    stream = torch.Generator().manual_seed(1)
    y = torch.randint(3, (1200,), generator=stream)
    h = torch.randn(1200, 16, generator=stream)
    h[:, 4] += 0.5 * y
    assert (tells(*halves(h, y), 3) or 0) > LEAST
    assert (tells(*halves(h, y.double()), 0) or 0) > LEAST


def test_embeddings_that_are_the_same_for_every_row_tell_nothing() -> None:
    h, y = torch.ones(40, 3), torch.arange(40) % 2
    assert tells(*halves(h, y), 2) is None


def test_what_makes_a_rare_class_likelier_is_no_noise() -> None:
    """Though the other class is likelier still in all rows."""
    stream = torch.Generator().manual_seed(0)
    told = (torch.rand(1600, generator=stream) < 0.5).double()
    labels = (torch.rand(1600, generator=stream) < 0.05 + 0.3 * told).long()
    noise = torch.rand(1600, generator=stream).double()
    for column, low, high in ((told, 4.0, 100.0), (noise, -4.0, 4.0)):
        h = torch.stack([column, 0.5 * column], 1)
        found = tells((h[:800], labels[:800]), (h[800:], labels[800:]), 2)
        assert found is not None
        assert low < found < high
