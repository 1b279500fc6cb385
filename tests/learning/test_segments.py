"""Rows in segments: every row is behind exactly one place of one coded row, padding behind none."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.learning.segments import CodedBatches, CodedInOrder, Segments
from colonnade.learning.task import Part

SIZES = st.tuples(st.integers(1, 60), st.integers(1, 7), st.integers(1, 9))


@given(SIZES)
def test_an_epoch_has_every_row_once_and_no_padding(sizes: tuple[int, int, int]) -> None:
    rows, count, size = sizes
    segments = Segments(rows, count)
    batches = CodedBatches(segments.length, size, 2, seed=0, segments=segments)
    for epoch in range(2):
        first = epoch * batches.per_epoch
        drawn = [batches[first + i] for i in range(batches.per_epoch)]
        assert sorted(torch.cat([b.rows for b in drawn]).tolist()) == list(range(rows))
        assert [b.last for b in drawn] == [False] * (len(drawn) - 1) + [True]


@given(SIZES)
def test_what_is_computed_on_segments_finds_back_to_its_rows(sizes: tuple[int, int, int]) -> None:
    rows, count, size = sizes
    segments, x = Segments(rows, count), torch.rand(2, rows, 3)
    cut = segments.cut(x)  # [segments, members, length, width]
    found = torch.zeros_like(x)
    batches = CodedInOrder(Part(x, None, rows), segments, size)
    for batch in (batches[i] for i in range(len(batches))):
        opened = cut.index_select(2, batch.coded).transpose(0, 1).flatten(1, 2)
        found[:, batch.rows] = opened.index_select(1, batch.places)
    assert torch.equal(found, x)
