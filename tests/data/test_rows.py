"""Which rows go where."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from colonnade.data.rows import cut, split_rows

labels = st.lists(st.integers(0, 4), min_size=2, max_size=60).map(lambda y: np.array(y))


@given(labels, st.data())
def test_a_cut_takes_exactly_so_many_rows_and_every_class_in_proportion(
    y: np.ndarray, data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, len(y)))
    chosen, rest = cut(y, np.arange(len(y)), count, np.random.default_rng(0))
    assert len(chosen) == count
    assert sorted([*chosen, *rest]) == list(range(len(y)))
    for label in set(y.tolist()):
        fair = (y == label).sum() * count / len(y)
        assert abs((y[chosen] == label).sum() - fair) < 1


@given(labels, st.integers(0, 2**31), st.integers(1, 5))
def test_every_row_goes_to_exactly_one_place(y: np.ndarray, seed: int, parties: int) -> None:
    split = split_rows(
        y, seed, official=None, test=0.2, validation=0.1, labelled=1, parties=parties
    )
    everything = [split.train, split.validation, split.test, *split.extra]
    assert sorted(np.concatenate(everything).tolist()) == list(range(len(y)))
    sizes = [len(rows) for rows in split.extra]
    assert max(sizes) - min(sizes) <= 1


def test_the_cap_counts_training_rows_with_the_validation_rows_among_them() -> None:
    y = np.arange(1000) % 10
    split = split_rows(y, 0, official=800, test=0.5, validation=0.1, cap=200)
    assert (len(split.train), len(split.validation)) == (180, 20)
    assert split.test.tolist() == list(range(800, 1000))


def test_test_rows_stay_the_same_whatever_else_is_asked_for() -> None:
    y = np.arange(500) % 5
    plain = split_rows(y, 3, official=None, test=0.2, validation=0.1)
    other = split_rows(
        y, 3, official=None, test=0.2, validation=0.3, cap=100, labelled=20, parties=4
    )
    assert np.array_equal(plain.test, other.test)


def test_labelled_rows_and_the_rows_of_each_party_hold_every_class_in_proportion() -> None:
    y = np.arange(6000) % 10
    split = split_rows(y, 0, official=None, test=0.2, validation=0.1, labelled=100, parties=4)
    assert np.bincount(y[split.train]).tolist() == [10] * 10
    for rows in split.extra:
        counts = np.bincount(y[rows], minlength=10)
        assert abs(counts - len(rows) / 10).max() < 5 * (len(rows) * 0.09) ** 0.5


def test_another_process_draws_the_same_rows() -> None:
    code = (
        "import numpy as np; from colonnade.data.rows import split_rows; "
        "s = split_rows(np.arange(50) % 2, 7, official=None, test=0.2, validation=0.1); "
        "print(s.train.tolist())"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    here = split_rows(np.arange(50) % 2, 7, official=None, test=0.2, validation=0.1)
    assert there.stdout.strip() == str(here.train.tolist())
