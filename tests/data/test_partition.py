"""Who holds which columns."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.data.partition import (
    Partition,
    bands,
    columns,
    columns_by_name,
    flattened,
    patches,
    views,
)
from colonnade.errors import InputError

sides = st.integers(1, 12)


def assert_every_column_has_one_holder(partition: Partition) -> None:
    held = [column for part in partition.parts for column in part.columns]
    assert sorted(held) == list(range(partition.width))
    for part in partition.parts:
        assert math.prod(part.shape) == len(part.columns)


@given(sides, sides, st.sampled_from([1, 3]), st.data())
def test_stacking_the_bands_gives_the_picture_back(
    height: int, width: int, channels: int, data: st.DataObject
) -> None:
    parties = data.draw(st.integers(1, height))
    images = np.random.default_rng(0).integers(0, 256, (2, height, width, channels))
    rows, shape = flattened(images)
    cut = bands(shape, parties)
    assert_every_column_has_one_holder(cut)
    pieces = [part.take(rows).reshape(2, *part.shape) for part in cut.parts]
    assert np.array_equal(np.concatenate(pieces, axis=2), np.moveaxis(images, 3, 1))
    heights = [part.shape[1] for part in cut.parts]
    assert heights == sorted(heights, reverse=True)
    assert heights.count(height // parties + 1) == height % parties


@given(sides, sides, st.data())
def test_laying_out_the_patches_gives_the_picture_back(
    height: int, width: int, data: st.DataObject
) -> None:
    side = data.draw(st.integers(1, min(height, width)))
    images = np.random.default_rng(0).integers(0, 256, (2, height, width))
    rows, shape = flattened(images)
    cut = patches(shape, side * side)
    assert_every_column_has_one_holder(cut)
    pieces = [part.take(rows).reshape(2, *part.shape[1:]) for part in cut.parts]
    lines = [np.concatenate(pieces[n : n + side], axis=2) for n in range(0, side * side, side)]
    assert np.array_equal(np.concatenate(lines, axis=1), images)
    for axis in (1, 2):
        sizes = {part.shape[axis] for part in cut.parts}
        assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 60), st.data())
def test_columns_are_dealt_in_order_and_evenly(width: int, data: st.DataObject) -> None:
    parties = data.draw(st.integers(1, width))
    cut = columns(width, parties)
    assert_every_column_has_one_holder(cut)
    assert [n for part in cut.parts for n in part.columns] == list(range(width))
    sizes = [len(part.columns) for part in cut.parts]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 60), st.data())
def test_columns_that_overlap_cover_all_and_are_as_many_for_each(
    width: int, data: st.DataObject
) -> None:
    parties = data.draw(st.integers(1, 80))
    each = data.draw(st.integers(-(-width // parties), width))
    parts = columns(width, parties, each).parts
    assert all(len(part.columns) == each for part in parts)
    assert {c for part in parts for c in part.columns} == set(range(width))


def test_views_keep_their_shapes_and_names() -> None:
    cut = views([(3,), (1, 2, 2)], 2, ["sound", "picture"])
    assert_every_column_has_one_holder(cut)
    assert cut.clients == ("sound", "picture")
    assert cut.shapes == ((3,), (1, 2, 2))


def test_a_view_name_that_could_be_a_path_is_not_used_as_a_party_name() -> None:
    assert views([(1,), (1,)], 2, ["../x", "y"]).clients == ("client0", "client1")


def test_named_columns_go_where_the_user_says_in_his_order() -> None:
    cut = columns_by_name(["age", "height", "sugar"], {"lab": ["sugar", "age"], "home": ["height"]})
    assert [part.columns for part in cut.parts] == [(2, 0), (1,)]
    assert cut.clients == ("lab", "home")


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        (lambda: bands((1, 8, 8), 9), ["data.parties = 9", "8 rows of pixels", "1 to 8"]),
        (lambda: patches((1, 8, 8), 5), ["data.parties = 5", "perfect square"]),
        (lambda: patches((1, 8, 3), 16), ["data.parties = 16", "3×3"]),
        (lambda: columns(3, 4), ["data.parties = 4", "3 columns", "1 to 3"]),
        (lambda: views([(1,)] * 6, 4), ["data.parties = 4", "6 views", "exactly 6"]),
        (lambda: views([(5,)], 2), ["data.split", "no views", "columns"]),
        (lambda: bands((5,), 2), ["data.split", "bands", "columns"]),
        (lambda: patches((5,), 4), ["data.split", "patches", "columns"]),
    ],
)
def test_an_impossible_split_says_which_key_and_what_would_be_accepted(cut, words) -> None:
    with pytest.raises(InputError) as error:
        cut()
    for word in words:
        assert word in str(error.value)
