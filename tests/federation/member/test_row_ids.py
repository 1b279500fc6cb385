"""Ids of many rows: found again, in little memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from colonnade.errors import InputError
from colonnade.federation.member.row_ids import (
    Places,
    RowIds,
    RowNumbers,
    places_of,
    read_ids,
)

TABLE = Path("table.parquet")


def read(ids: list[str], aligned: int) -> tuple[list[int], RowIds]:
    order, found = read_ids({"id": ids}, TABLE, "id", aligned)
    return order.tolist(), found


def test_aligned_rows_are_in_the_order_of_their_ids_and_the_others_in_that_of_the_file() -> None:
    order, ids = read(["p3", " p10 ", "p2", "q9", "b1"], aligned=3)
    assert order == [1, 2, 0, 3, 4]
    assert list(ids) == ["p10", "p2", "p3", "q9", "b1"]
    places = places_of(ids, None)
    assert {one: places[one] for one in ids} == {one: i for i, one in enumerate(ids)}
    assert not {"p1", "p", "z", ""} & places.keys()


def test_rows_that_are_not_there_are_not_found() -> None:
    _, ids = read(["a", "b", "c"], aligned=2)
    assert list(Places(ids, [True, False, True])) == ["a", "c"]
    assert [RowNumbers(range(1, 4)).place(one) for one in ("1", "3", "4", "0", "01", "x")] == [
        *(0, 2),
        *(-1,) * 4,
    ]


def test_the_first_id_that_repeats_is_named() -> None:
    with pytest.raises(InputError, match="holds the id 'b' twice"):
        read(["a", "b", "c", "b", "a"], aligned=2)


def test_a_number_that_is_no_id_is_named_by_its_row_in_the_file() -> None:
    numbers = np.arange(100_000, dtype=np.float64)
    numbers[70_000] = 0.5
    with pytest.raises(InputError, match=r"data row 70001 \(0\.5;"):
        read_ids({"id": numbers}, TABLE, "id", 10)


def test_an_id_of_eight_digits_costs_some_20_bytes_and_less_than_100_while_it_is_read() -> None:
    """By Python strings, as before, it was 109 and 248."""
    numbers = np.random.default_rng(0).permutation(300_000) + 10_000_000
    tracemalloc.start()
    try:
        order, ids = read_ids({"id": numbers}, TABLE, "id", 299_000)
        kept, most = (size / len(numbers) for size in tracemalloc.get_traced_memory())
        assert places_of(ids, None)[str(numbers[5])] == order.tolist().index(5)
    finally:
        tracemalloc.stop()
    assert kept < 26, "8 letters, where they end, and the order of the rows"
    assert most < 100
