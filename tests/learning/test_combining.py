"""Combined messages: their gradient is shared out as autograd would do it."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import Tensor

from colonnade.learning.combining import How, combine
from colonnade.network import ABSENT, Inbox, is_absent

ARRIVED = torch.tensor([[True, False, True], [True, True, True]])


def in_torch(value: Tensor, how: How) -> Tensor:
    """[receivers, slots, rows, width] → [receivers, rows, width]"""
    joined = []
    for messages, came in zip(value, ARRIVED, strict=True):
        here = messages[came]
        match how:
            case "concat":
                joined.append(torch.cat(list(messages * came[:, None, None]), -1))
            case "sum":
                joined.append(here.sum(0))
            case "mean":
                joined.append(here.mean(0))
            case "max":
                joined.append(here.amax(0))
    return torch.stack(joined)


@pytest.mark.parametrize("how", get_args(How))
def test_values_and_shares_of_the_gradient_are_those_of_autograd(how: How) -> None:
    stream = torch.Generator().manual_seed(0)
    value = torch.randn(2, 3, 4, 5, generator=stream).requires_grad_()
    expected = in_torch(value, how)
    combined = combine(Inbox(value.detach(), ARRIVED, everything=False), how)
    assert torch.allclose(combined.value, expected)
    gradient = torch.randn(expected.shape, generator=stream)
    (wanted,) = torch.autograd.grad(expected, value, gradient)
    shares = combined.share(gradient) * ARRIVED[:, :, None, None]  # nobody else is sent one
    assert torch.allclose(shares, wanted)


def test_where_nothing_is_received_the_combination_is_absent() -> None:
    combined = combine(ABSENT, "max")  # pyright: ignore[reportArgumentType]
    assert is_absent(combined.value)
    assert is_absent(combined.share(torch.zeros(1)))
