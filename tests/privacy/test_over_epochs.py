"""Noise on gradients against receivers that remember the gradients of all epochs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from colonnade.common.randomness import HashedRandomness
from colonnade.privacy import attacks
from colonnade.privacy.attacks import Labels, auc
from colonnade.privacy.hiding import ClassPoints, hidden
from colonnade.privacy.noise import gaussian
from colonnade.privacy.over_epochs import (
    Floats,
    by_best_score,
    lines,
    scaled,
    scores,
    together,
    windows,
)
from colonnade.privacy.redrawn import Redrawn
from colonnade.privacy.spec import Hide

ROWS, WIDTH, BATCH = 2000, 4, 100
Drawn = Callable[[int], Tensor]  # of an epoch, [rows, numbers]


def once(epoch: int) -> Tensor:
    return gaussian(HashedRandomness(b"a secret"), ROWS, 2)


def every_epoch(epoch: int) -> Tensor:
    return gaussian(HashedRandomness(b"a secret", epoch), ROWS, 2)


def both(epochs: int) -> Drawn:
    return Redrawn(b"a secret", ROWS, 2, epochs).of


def told(drawn: Drawn, epochs: int) -> tuple[list[Floats], Labels]:
    """What a receiver has of all epochs of a model that learns some rows sooner than others; and
    the labels."""
    stream = torch.Generator().manual_seed(0)
    labels = (torch.rand(ROWS, generator=stream) < 0.4).long()
    easy = torch.randn(ROWS, generator=stream, dtype=torch.float64).mul(0.7).exp()
    axis = torch.randn(WIDTH, generator=stream, dtype=torch.float64)
    share = torch.bincount(labels) / ROWS
    sides, units, batches = (np.zeros((ROWS, epochs)) for _ in range(3))
    for epoch in range(epochs):
        sure = torch.sigmoid(8 * easy * (epoch + 1) / epochs)
        gradient = ((1 - sure) * (2.0 * labels - 1))[:, None] * axis
        order = torch.randperm(ROWS, generator=stream)
        for k, rows in enumerate(order.split(BATCH)):
            points = ClassPoints.of(gradient[rows], labels[rows], 2)
            normal = drawn(epoch)[rows]
            facts = (labels[rows], points, share, normal)
            noisy = hidden(Hide(strength=16.0), gradient[rows], *facts).numpy()
            sides[rows, epoch] = noisy @ axis.numpy()
            units[rows, epoch] = sides[rows, epoch] / np.linalg.norm(noisy, axis=1)
            batches[rows, epoch] = epoch * ROWS + k
    return scaled(sides, units, batches.astype(np.int64)), labels.numpy()


def by_few_labels(values: Floats, labels: Labels, forms: int) -> float:
    found = np.split(values, forms, axis=1)
    return max(attacks.by_few_labels(one, labels, binary=True) for one in found)


@pytest.mark.parametrize("epochs", [12, 60])
def test_noise_of_parts_that_live_differently_long_withstands_a_memory(epochs: int) -> None:
    forms, labels = told(both(epochs), epochs)
    in_one = max(auc(column, labels == 1) for column in forms[1].T)
    assert in_one < 0.67
    assert by_best_score(scores(forms), labels) < 0.69
    assert by_few_labels(windows(forms), labels, len(forms)) < 0.66


def test_noise_that_never_changes_cancels_in_a_difference() -> None:
    forms, labels = told(once, 12)
    assert auc(forms[2].sum(1), labels == 1) < 0.68
    assert auc(forms[2][:, -1] - forms[2][:, 0], labels == 1) > 0.73
    assert by_best_score(scores(forms), labels) > 0.73
    assert by_few_labels(windows(forms), labels, len(forms)) > 0.75


def test_noise_that_is_drawn_anew_averages_out() -> None:
    forms, labels = told(every_epoch, 12)
    assert by_best_score(scores(forms), labels) > 0.75


def test_an_attack_on_rows_out_of_order_finds_nothing() -> None:
    forms, labels = told(once, 12)
    others = np.roll(labels, ROWS // 2)
    assert by_best_score(scores(forms), others) < 0.55
    assert by_few_labels(windows(forms), others, len(forms)) < 0.55


def test_rows_of_which_something_was_lost_are_attacked_with_the_rest() -> None:
    forms, labels = told(once, 12)
    lost = np.random.default_rng(0).random(forms[0].shape) < 0.2
    batches = np.where(lost, -1, np.arange(12))
    sides, units = (np.where(lost, 0.0, form) for form in (forms[2], forms[0]))
    again = scaled(sides, units, batches)
    assert all(np.isfinite(one).all() for one in again)
    assert by_best_score(scores(again), labels) > 0.7


CLASSES = 5


def many_classes(noise: float, *, fixed: bool) -> tuple[list[Floats], Labels]:
    """Gradients of five classes in six epochs, whose coordinates differ from epoch to epoch, with
    noise that is drawn once (`fixed`) or anew. Half of the rows are learnt after three epochs."""
    stream = np.random.default_rng(0)
    labels = stream.integers(0, CLASSES, ROWS)
    learnt = stream.random(ROWS) < 0.5
    always, pages = stream.normal(size=(ROWS, CLASSES)), []
    for epoch in range(6):
        drawn = always if fixed else stream.normal(size=(ROWS, CLASSES))
        left = np.where(learnt & (epoch >= 3), 0.0, 1.0)[:, None]
        points = stream.normal(size=(CLASSES, 12))
        pages.append(((left * np.eye(CLASSES)[labels] + noise * drawn) @ points).astype(np.float32))
    return together(pages, np.ones(ROWS, dtype=bool), CLASSES), labels


def by_clusters(seen: Floats, labels: Labels) -> float:
    return attacks.by_clusters(seen, labels, CLASSES, 0)


def test_of_many_classes_noise_that_is_drawn_anew_averages_out() -> None:
    (beside, _), labels = many_classes(0.7, fixed=False)
    (once, _), _ = many_classes(0.7, fixed=True)
    assert by_clusters(beside, labels) > 0.7
    assert by_clusters(once, labels) < 0.5
    assert by_clusters(beside, np.roll(labels, ROWS // 2)) < 0.25


def test_of_many_classes_noise_that_never_changes_cancels_in_what_changes() -> None:
    """Whether a row was learnt, and of which class it was then, is left."""
    (beside, changed), labels = many_classes(4.0, fixed=True)
    by_few = [attacks.by_few_labels(one, labels, binary=False) for one in (beside, changed)]
    assert by_few[1] > by_few[0] + 0.08


def test_rows_of_which_nothing_came_in_some_epoch_are_left_out() -> None:
    there = np.arange(ROWS) % 3 > 0
    pages = [np.random.default_rng(k).normal(size=(ROWS, 4)).astype(np.float32) for k in range(3)]
    for form in together(pages, there, 3):
        assert form[there].any(1).all()
        assert not form[~there].any()


def test_lines_that_move_with_the_rows_of_a_batch_tell_the_rarer_class() -> None:
    """A row of the rarer class moves the mean of its class, in much the same direction in every
    epoch; the other rows do not, and what leaves in fixed directions tells nothing."""
    stream, epochs, size = np.random.default_rng(0), 20, 50
    labels = (stream.random(ROWS) < 0.2).astype(np.int64)
    own = stream.normal(size=(ROWS, 8)) * labels[:, None]
    batches = np.zeros((ROWS, epochs), dtype=np.int64)
    along = np.zeros((epochs * ROWS // size, 8))
    for epoch in range(epochs):
        order = stream.permutation(ROWS).reshape(-1, size)
        for k, rows in enumerate(order):
            number = epoch * len(order) + k
            batches[rows, epoch] = number
            moved = np.eye(8)[0] + own[rows].sum(0) / max(1, labels[rows].sum())
            along[number] = moved / np.linalg.norm(moved)
    feet = stream.normal(size=along.shape)
    assert by_best_score(lines(along, feet, batches), labels) > 0.8
    fixed = np.tile(np.eye(8)[0], (len(along), 1))
    assert by_best_score(lines(fixed, feet, batches), labels) < 0.56
