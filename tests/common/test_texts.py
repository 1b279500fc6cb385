"""Texts in little memory behave as Python's."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.texts import Texts

# Few letters, so that many texts begin alike, are equal, or end with zeros.
CLOSE = st.text("a\0é\U0001f600\ud800", max_size=20)


@given(st.lists(st.text() | CLOSE))
def test_texts_are_sorted_as_python_sorts_them_and_the_first_repeated_one_is_told(
    texts: list[str],
) -> None:
    order, repeated = Texts.of(texts).order()
    assert order.tolist() == sorted(range(len(texts)), key=texts.__getitem__)
    again = [place for place, text in enumerate(texts) if text in texts[:place]]
    assert repeated == (again[0] if again else None)


@given(st.lists(st.text() | CLOSE, min_size=1), st.data())
def test_texts_are_taken_in_any_order(texts: list[str], data: st.DataObject) -> None:
    order = data.draw(st.lists(st.integers(0, len(texts) - 1)))
    taken = Texts.of(texts).take(np.array(order, dtype=np.int64))
    assert list(taken) == [texts[place] for place in order]
    assert taken[1:] == tuple(texts[place] for place in order[1:])
    assert Texts.of(texts)[-1] == texts[-1]
