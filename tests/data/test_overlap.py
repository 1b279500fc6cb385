"""Parties that have only some of the rows each."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from colonnade.data import DataSpec, VerticalData, load
from colonnade.errors import InputError


def digits(**more: Any) -> VerticalData:
    return load(DataSpec(dataset="digits", parties=4, **more), seed=0)


def test_each_party_has_its_share_and_only_rows_that_all_have_train_unless_partial_is_set() -> None:
    whole, common = digits(), digits(overlap=0.7)
    partly = digits(overlap=0.7, partial=True)
    rows = len(whole.train) + len(whole.validation)
    assert partly.train.held is not None
    assert partly.validation.held is not None
    shares = torch.cat([partly.train.held, partly.validation.held], 1).sum(1) / rows
    assert torch.allclose(shares, torch.tensor(0.7), atol=1 / rows)
    assert partly.train.held.any(0).all()  # a row that nobody has is left out
    assert len(common.train) == int(partly.train.held.all(0).sum())
    assert not common.partial
    assert (common.notes, partly.notes) != ((), ())
    for data in (common, partly):  # so that both are measured on the same rows
        assert torch.equal(data.test.y, whole.test.y)


def test_rows_that_all_have_are_the_same_whether_others_are_used_or_not() -> None:
    common, partly = digits(overlap=0.7), digits(overlap=0.7, partial=True)
    assert partly.train.held is not None
    assert torch.equal(partly.train.y[partly.train.held.all(0)], common.train.y)


def test_a_party_has_nothing_of_a_row_that_it_lacks() -> None:
    data = digits(overlap=0.6, test_overlap=0.5, partial=True, noisy={"client2": 1.0})
    for part in (data.train, data.validation, data.test):
        assert part.held is not None
        assert not part.held.all(1).any()
        for x, held in zip(part.x, part.held, strict=True):
            assert not x[~held].any()


def test_clients_that_learn_alone_have_the_rows_that_were_left_out() -> None:
    common, partly = digits(overlap=0.7), digits(overlap=0.7, partial=True)
    assert partly.train.held is not None
    lone = (partly.train.held & ~partly.train.held.all(0)).sum(1)
    assert [len(x) for x in common.extra] == lone.tolist()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"overlap": 0.0}, r"data.overlap = 0: must be a share above 0, up to 1"),
        ({"overlap": 0.5, "test_overlap": 1.5}, r"data.test_overlap = 1.5: must be a share"),
        ({"partial": True}, r"data.partial: is about rows that some party lacks"),
        ({"overlap": 0.5, "labelled": 10}, r"leave one of the two out"),
        ({"overlap": 0.01}, r"data.overlap = 0.01: leaves no training row that all 4 parties have"),
    ],
)
def test_shares_that_cannot_be_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        digits(**keys)
