"""Rows for test by time, by group, or as a column says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.data import DataSpec, load
from colonnade.data.row_splits import (
    TEST,
    TRAIN,
    VALIDATION,
    SplitBy,
    packed_parts,
    parts_by,
    unpacked_parts,
)
from colonnade.errors import InputError

SHARES = {"test": 0.2, "validation": 0.1, "seed": 0}


@given(st.lists(st.dates().map(str), min_size=2, max_size=60).filter(lambda d: len(set(d)) > 1))
def test_no_row_of_the_test_is_earlier_than_a_training_row(days: list[str]) -> None:
    parts = parts_by(SplitBy(time="day"), days, "t.csv", **SHARES)
    when = np.array(days, dtype="datetime64[D]")
    for early, late in ((TRAIN, VALIDATION), (TRAIN, TEST), (VALIDATION, TEST)):
        if (parts == early).any() and (parts == late).any():
            assert when[parts == early].max() < when[parts == late].min()
    assert (parts == TRAIN).any()
    assert unpacked_parts(packed_parts(parts), len(parts)).tolist() == parts.tolist()


@given(st.lists(st.sampled_from("abcdefgh"), min_size=8, max_size=60), st.integers(0, 9))
def test_a_group_is_on_one_side(groups: list[str], seed: int) -> None:
    if len(set(groups)) < 2:
        return
    parts = parts_by(SplitBy(group="person"), groups, "t.csv", **{**SHARES, "seed": seed})
    for name in set(groups):
        assert len(set(parts[np.array(groups) == name].tolist())) == 1
    assert (parts == TRAIN).any()


def test_shares_are_about_those_that_were_asked_for() -> None:
    days = [f"2024-{1 + i % 12:02}-{1 + i % 28:02}" for i in range(1000)]
    people = [f"p{i % 200}" for i in range(1000)]
    for by, values in ((SplitBy(time="d"), days), (SplitBy(group="p"), people)):
        parts = parts_by(by, values, "t.csv", **SHARES)
        assert np.mean(parts == TEST) == pytest.approx(0.2, abs=0.02)
        assert np.mean(parts == VALIDATION) == pytest.approx(0.08, abs=0.02)


TABLE = "x,day,person,part,y\n" + "".join(
    f"{i},2024-01-{1 + i // 4:02},p{i // 5},{['train', 'train', 'Validation', 'test', ''][i % 5]},"
    f"{i % 2}\n"
    for i in range(100)
)


def loaded(csv, **keys: object):
    spec = DataSpec(path=csv(TABLE), label="y", parties=1, **keys)  # pyright: ignore
    return load(spec, 0)


def test_an_experiment_is_split_by_time(csv) -> None:
    data = loaded(csv, split_by=SplitBy(time="day"), columns={"a": ["x"]})
    assert float(data.train.x[0].max()) < float(data.validation.x[0].min())
    assert float(data.validation.x[0].max()) < float(data.test.x[0].min())
    assert [len(data.train), len(data.validation), len(data.test)] == [72, 8, 20]


def test_the_column_that_splits_is_no_feature_unless_named(csv) -> None:
    assert loaded(csv, split_by=SplitBy(column="part"), prepare={"person": "drop"}).widths == (6,)
    named = loaded(csv, split_by=SplitBy(time="day"), columns={"a": ["x", "day"]})
    assert named.widths == (6,)


def test_a_column_says_which_rows_are_for_what(csv) -> None:
    data = loaded(csv, split_by=SplitBy(column="part"))
    assert [len(data.train), len(data.validation), len(data.test)] == [40, 20, 20]


@pytest.mark.parametrize(
    ("by", "values", "message"),
    [
        (
            SplitBy(time="c"),
            ["2024-01-01", ""],
            "data row 2 is empty, in all 1 of 2 rows .*needs a time.*data.query.*split_by.column",
        ),
        (SplitBy(group="c"), ["a", "", ""], "data row 2 is empty, in all 2 of 3 .*data.query"),
        (SplitBy(time="c"), ["soon", "later"], "neither numbers nor dates"),
        (SplitBy(time="c"), ["1", "1"], "one time only"),
        (SplitBy(group="c"), ["a", "a"], "one group only"),
        (SplitBy(column="c"), ["train", "tst"], "data row 2 holds 'tst'.*expects train"),
    ],
)
def test_a_column_that_cannot_split_is_named(by: SplitBy, values: list[str], message: str) -> None:
    with pytest.raises(InputError, match=rf"t\.csv: column 'c'.*{message}"):
        parts_by(by, values, "t.csv", **SHARES)


def test_exactly_one_way_to_split_is_given(csv) -> None:
    with pytest.raises(InputError, match="exactly one of time, group and column"):
        SplitBy(time="a", group="b")
    with pytest.raises(InputError, match=r"no column 'dya', which data\.split_by names.*'day'"):
        loaded(csv, split_by=SplitBy(time="dya"))
    with pytest.raises(InputError, match=r"data\.split_by: is for a table"):
        DataSpec(dataset="wine", split_by=SplitBy(time="day"))
    with pytest.raises(InputError, match=r"split_by: leaves no training rows"):
        loaded(csv, split_by=SplitBy(column="y_part"), query="SELECT *, 'test' y_part FROM data")
