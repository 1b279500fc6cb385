"""Attacks on what a receiver sees: they find what is there, and nothing where nothing is."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from colonnade.privacy import attacks
from colonnade.privacy.reconstruction import (
    Ridge,
    class_means,
    known_count,
    reconstruction,
    standardised,
)


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
    for network in (False, True):
        told = reconstruction(encoding, columns, 60, network=network)
        nothing = reconstruction(random.permutation(encoding), columns, 60, network=network)
        assert told > 0.85
        assert nothing < 0.05


def test_a_network_reads_what_ridge_regression_cannot(random: np.random.Generator) -> None:
    encoding = random.normal(size=(1200, 2))
    columns = np.stack([encoding[:, 0] ** 2, encoding[:, 0] * encoding[:, 1]], 1)
    by_ridge, by_network = (
        reconstruction(encoding, columns, 200, network=network) for network in (False, True)
    )
    assert by_ridge < 0.1
    assert by_network > 0.5


@pytest.mark.parametrize(
    ("rows", "seen", "known"), [(9000, 3000, 90), (500, 500, 20), (60_000, 700, 350)]
)
def test_one_percent_of_all_training_rows_are_known(rows: int, seen: int, known: int) -> None:
    assert known_count(rows, seen) == known


def test_a_number_is_told_by_how_far_the_model_is_from_it(random: np.random.Generator) -> None:
    """The gradient of a squared loss is (answer − number) times a direction."""
    numbers = random.normal(size=1000)
    off = 0.3 * random.normal(size=1000) - numbers
    seen = off[:, None] * random.normal(size=6) + 0.01 * random.normal(size=(1000, 6))
    for attack in (attacks.number_by_direction, attacks.number_by_few_labels):
        assert attack(seen, numbers) > 0.8
        assert attack(random.permutation(seen), numbers) < 0.05
    away = np.abs(numbers)  # a length tells how far a number is from the mean, not on which side
    assert attacks.number_by_norm(seen, away) > 0.6
    assert attacks.number_by_norm(seen, numbers) < 0.05


def test_class_means_are_what_the_variance_between_classes_is(random: np.random.Generator) -> None:
    labels = np.repeat([0, 1], 500)
    columns = labels[:, None] * 2.0 + random.normal(size=(1000, 1))
    within, whole = 1.0, 1.0 + 1.0  # variances: of a class, and with the distance of the two
    assert class_means(labels, columns) == pytest.approx(1 - within / whole, abs=0.05)


def test_the_area_under_the_curve_counts_ties_as_half_and_takes_either_side(
    random: np.random.Generator,
) -> None:
    from sklearn.metrics import roc_auc_score

    positive, score = random.random(300) < 0.3, random.integers(0, 9, 300).astype(float)
    value = roc_auc_score(positive, score)
    assert attacks.auc(score, positive) == pytest.approx(max(value, 1 - value))
    assert attacks.auc(-score, positive) == pytest.approx(max(value, 1 - value))
    assert attacks.auc(score, positive & False) == 0.5


def test_ridge_regression_is_that_of_a_library_with_few_and_with_many_numbers(
    random: np.random.Generator,
) -> None:
    from sklearn.linear_model import Ridge as Library

    for numbers in (5, 90):
        x, y = random.normal(size=(60, numbers)), random.normal(size=(60, 3))
        new = random.normal(size=(20, numbers))
        a, b = (part / np.sqrt(numbers) for part in standardised(x, new))
        expected = Library(alpha=0.1).fit(a, y).predict(b)
        np.testing.assert_allclose(Ridge(x, y, new).told(0.1), expected, atol=1e-8)


def test_a_quick_attack_tells_where_the_slow_one_does_better(random: np.random.Generator) -> None:
    """Attempts are compared by quick attacks."""
    labels = random.integers(0, 4, 800)
    points = random.normal(size=(4, 12))[labels]
    clear, dim = (points + spread * random.normal(size=(800, 12)) for spread in (0.5, 3.0))
    by_labels = partial(attacks.by_few_labels, labels=labels, binary=False)
    by_clusters = partial(attacks.by_clusters, labels=labels, classes=4, seed=0)
    for attack in (by_labels, by_clusters):
        for quick in (False, True):
            assert attack(clear, quick=quick) > attack(dim, quick=quick) + 0.2
            assert attack(clear, quick=quick) > 0.9


def test_few_labels_are_worth_nothing_where_rows_tell_nothing(random: np.random.Generator) -> None:
    labels = random.integers(0, 2, 1000)
    noise = random.normal(size=(1000, 5))
    assert attacks.by_few_labels(noise, labels, binary=True) < 0.6
    told = noise + labels[:, None] * 3.0
    assert attacks.by_few_labels(told, labels, binary=True) > 0.95
