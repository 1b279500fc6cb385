"""Secret shares: any sufficient answers decode to the same result, and T shares tell nothing."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from colonnade.coding import (
    Field,
    LagrangeCode,
    SeededRandomness,
    SystemRandomness,
    TooFewAnswers,
    WrongAnswers,
)
from colonnade.errors import InputError


def stream(seed: int = 0) -> SeededRandomness:
    return SeededRandomness(np.random.default_rng(seed))


def answered(code: LagrangeCode, seed: int = 0) -> tuple[Tensor, Tensor]:
    """What a server hopes for, the sum over two secrets of segment times weight; and the answers of
    all clients, computed on shares only. [partitions, 3, 2], [clients, 3, 2]"""
    field, source = code.field, stream(seed)
    wanted, answers = [], []
    for _ in range(2):
        x = field.random((code.partitions, 3, 4), source)
        w = field.random((4, 2), source)
        wanted.append(field.matmul(x, w))
        shares = code.share(x, code.masks((3, 4), source))
        weights = code.share_same(w, code.masks((4, 2), source))
        answers.append(field.matmul(shares, weights))
    return field.add(*wanted), field.add(*answers)


CODES = st.tuples(st.integers(1, 12), st.integers(1, 4), st.integers(0, 3))


@given(CODES, st.integers(0, 2**32), st.sampled_from([Field(), Field(65_537), Field(67_108_859)]))
def test_every_sufficient_subset_in_any_order_gives_the_result(
    sizes: tuple[int, int, int], seed: int, field: Field
) -> None:
    clients, partitions, colluders = sizes
    assume(2 * (partitions + colluders - 1) + 1 <= clients)
    code = LagrangeCode(clients, partitions, colluders, field=field)
    wanted, answers = answered(code, seed)
    order = np.random.default_rng(seed).permutation(clients).tolist()
    for size in {code.threshold, clients}:
        who = order[:size]
        assert torch.equal(code.decode(answers[who], who), wanted)


def test_all_subsets_of_threshold_size_agree() -> None:
    code = LagrangeCode(9, 2, 2)
    wanted, answers = answered(code)
    subsets = list(combinations(range(9), code.threshold))
    assert len(subsets) == 36
    for who in subsets:
        assert torch.equal(code.decode(answers[list(who)], who), wanted)


def test_any_of_many_subsets_of_28_clients_gives_the_same_sum() -> None:
    code = LagrangeCode(28, 4, 3)
    wanted, answers = answered(code)
    random = np.random.default_rng(0)
    for _ in range(300):
        who = random.permutation(28)[: code.threshold].tolist()
        assert torch.equal(code.decode(answers[who], who), wanted)


def test_one_answer_too_few_is_an_error_that_says_how_many() -> None:
    code = LagrangeCode(9, 2, 2)
    _, answers = answered(code)
    with pytest.raises(TooFewAnswers, match="K=2, T=2 need 7 of 9 clients, 6 answered"):
        code.decode(answers[:6], range(6))


def shares_of(code: LagrangeCode, secret: int, count: int) -> Tensor:
    """The shares of one number, shared many times with fresh masks. [clients, count]"""
    segments = torch.full((code.partitions, count), secret, dtype=torch.int32)
    shares = code.share(segments, code.masks((count,), SystemRandomness()))
    return shares.long() + code.field.largest


@pytest.mark.parametrize("colluders", [1, 2])
def test_as_many_shares_as_there_may_be_colluders_are_uniform_and_one_more_are_not(
    colluders: int,
) -> None:
    """In a field of seven elements all values of the shares can be counted."""
    code, count = LagrangeCode(3, 1, colluders, degree=1, field=Field(7)), 49 * 400
    for secret in (0, 3):
        shares = shares_of(code, secret, count)
        for who in combinations(range(3), colluders):
            assert chi_square(shares[list(who)]) < 110  # at most 48 degrees of freedom
    together = shares[: colluders + 1]
    assert chi_square(together) > 1000


def chi_square(shares: Tensor) -> float:
    """How far the joint values of some shares are from uniform. [shares, count]"""
    place = torch.zeros(shares.shape[1], dtype=torch.int64)
    for share in shares:
        place = 7 * place + share
    boxes = 7 ** len(shares)
    count = torch.bincount(place, minlength=boxes).double()
    expected = shares.shape[1] / boxes
    return float((count - expected).square().sum() / expected)


@given(st.integers(0, 2**32), st.integers(0, 4), st.data())
def test_wrong_answers_are_named_as_long_as_there_are_two_spare_ones_for_each(
    seed: int, spare: int, data: st.DataObject
) -> None:
    code = LagrangeCode(9, 2, 1)  # needs 5
    _, answers = answered(code, seed)
    who = list(range(code.threshold + spare))
    liars = data.draw(st.sets(st.sampled_from(who), max_size=spare // 2))
    for n in liars:
        answers[n, 0, 0] = code.field.add(answers[n, 0, 0], torch.tensor(1 + n))
    assert code.wrong(answers[who], who, stream(1)) == sorted(liars)


def test_a_wrong_answer_that_cannot_be_traced_is_an_error_and_without_spare_ones_not_seen() -> None:
    code = LagrangeCode(9, 2, 1)
    _, answers = answered(code)
    answers[2] += 1
    with pytest.raises(WrongAnswers, match="6 answers are not enough to tell which"):
        code.wrong(answers[:6], range(6), stream())
    assert code.wrong(answers[:5], range(5), stream()) == []


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((4, 3, 1), "need 7 answers, of 4 clients; possible is K \\+ T ≤ 2"),
        ((2, 1, 1), "that allows K = 1, T = 0 only, which protects nothing"),
        ((5, 0, 1), "partitions = 0: expected 1 or more"),
        ((5, 1, -1), "colluders = -1: expected 0 or more"),
    ],
)
def test_codes_that_cannot_work_are_refused(sizes: tuple[int, int, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LagrangeCode(*sizes)


def test_a_field_with_fewer_elements_than_points_is_refused() -> None:
    with pytest.raises(
        InputError, match="prime = 7: too small for 9 clients; expected at least 12"
    ):
        LagrangeCode(9, 2, 1, field=Field(7))
