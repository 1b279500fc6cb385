"""Attacks on what a receiver sees: they find what is there, and nothing where nothing is."""

from __future__ import annotations

import numpy as np
import pytest

from colonnade.privacy import attacks


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def test_gradients_of_two_classes_are_told_apart_by_their_direction(
    random: np.random.Generator,
) -> None:
    """As in split learning: the gradient of a row is (probability − label) times a direction."""
    labels = (random.random(500) < 0.2).astype(np.int64)
    slope = random.random(500) * 0.5 - labels * 0.9
    seen = slope[:, None] * random.normal(size=8) + 0.01 * random.normal(size=(500, 8))
    assert attacks.by_direction(seen, labels) > 0.95
    assert attacks.by_direction(random.permutation(seen), labels) < 0.62


def test_longer_gradients_of_the_rarer_class_tell_the_class(random: np.random.Generator) -> None:
    labels = (random.random(500) < 0.2).astype(np.int64)
    seen = random.normal(size=(500, 4)) * np.where(labels, 5.0, 1.0)[:, None]
    assert attacks.by_norm(seen, labels) > 0.9
    assert attacks.by_norm(random.permutation(seen), labels) < 0.62


def test_clusters_are_classes_up_to_their_names(random: np.random.Generator) -> None:
    labels = random.integers(0, 5, 600)
    directions = np.linalg.qr(random.normal(size=(8, 8)))[0]
    seen = directions[labels] + 0.05 * random.normal(size=(600, 8))
    assert attacks.by_clusters(seen, labels, 5, 0) > 0.99
    assert attacks.by_clusters(random.permutation(seen), labels, 5, 0) < 0.35


def test_columns_are_reconstructed_from_a_linear_encoding_and_not_from_noise(
    random: np.random.Generator,
) -> None:
    columns = random.normal(size=(3000, 6))
    encoding = columns @ random.normal(size=(6, 12))
    assert attacks.reconstruction(encoding, columns, 0) > 0.95
    assert attacks.reconstruction(random.normal(size=(3000, 12)), columns, 0) < 0.05


def test_class_means_are_what_the_variance_between_classes_is(random: np.random.Generator) -> None:
    labels = np.repeat([0, 1], 500)
    columns = labels[:, None] * 2.0 + random.normal(size=(1000, 1))
    within, whole = 1.0, 1.0 + 1.0  # variances: of a class, and with the distance of the two
    assert attacks.class_means(labels, columns) == pytest.approx(1 - within / whole, abs=0.05)


def test_few_labels_are_worth_nothing_where_rows_tell_nothing(random: np.random.Generator) -> None:
    labels = random.integers(0, 2, 1000)
    noise = random.normal(size=(1000, 5))
    assert attacks.by_few_labels(noise, labels, 0, binary=True) < 0.6
    told = noise + labels[:, None] * 3.0
    assert attacks.by_few_labels(told, labels, 0, binary=True) > 0.95
