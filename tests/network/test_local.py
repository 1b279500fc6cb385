"""Computations of one group: where they run, and what they give elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from colonnade.network import ABSENT, Inbox, is_absent, local


@local
def doubled(x: Tensor) -> Tensor:
    return torch.tensor(2.0 * x.tolist()[0]).reshape(1)


@local(results=2)
def extremes(x: Tensor, *, sign: float = 1.0) -> tuple[Tensor, Tensor]:
    return sign * x.min(), sign * x.max()


@dataclass
class Holder:
    offset: float

    @local
    def shifted(self, parts: list[Tensor]) -> list[float]:
        return [float(part) + self.offset for part in parts]


HERE = torch.tensor([3.0, 1.0])


def test_a_local_function_runs_where_its_arguments_are_and_is_absent_elsewhere() -> None:
    assert doubled(HERE).tolist() == [6.0]
    assert is_absent(doubled(ABSENT))  # pyright: ignore[reportArgumentType]


def test_two_results_can_be_unpacked_here_and_elsewhere() -> None:
    low, high = extremes(HERE, sign=-1.0)
    assert (low.item(), high.item()) == (-1.0, -3.0)
    low, high = extremes(ABSENT)  # pyright: ignore[reportArgumentType]
    assert is_absent(low)
    assert is_absent(high)
    low, high = extremes(HERE, sign=ABSENT)  # pyright: ignore[reportArgumentType]
    assert is_absent(low)
    assert is_absent(high)


def test_a_method_that_takes_a_list_needs_every_element() -> None:
    holder = Holder(10.0)
    assert holder.shifted([HERE[0], HERE[1]]) == [13.0, 11.0]
    assert is_absent(holder.shifted([HERE[0], ABSENT]))  # pyright: ignore[reportArgumentType]


def test_what_cannot_be_unpacked_says_how_to_mend_it() -> None:
    with pytest.raises(TypeError, match=r"@local\(results=\.\.\.\)"):
        _, _ = doubled(ABSENT)  # pyright: ignore[reportArgumentType]


def test_torch_functions_absorb_an_absent_value_without_a_wrapper() -> None:
    absent: Tensor = ABSENT  # pyright: ignore[reportAssignmentType]
    for value in (
        torch.cat([HERE, absent]),
        torch.stack([absent]).sum(0) / 2,
        torch.where(absent[:, None], absent.mean(), HERE),
        torch.bincount(absent, minlength=3) / absent.shape[0],
        F.log_softmax(absent, 2),
    ):
        assert is_absent(value)


def test_joined_messages_say_with_flags_which_of_them_came_and_split_again() -> None:
    value = torch.arange(12.0).view(1, 3, 2, 2)  # [receivers, slots, rows, width]
    inbox = Inbox(value, torch.tensor([[True, False, True]]), everything=False)
    joined = inbox.concat(flags=True)
    assert joined[0, 0].tolist() == [0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 8.0, 9.0, 1.0]
    assert torch.equal(inbox.split(joined, flags=True), inbox.value)
    assert inbox.flags.tolist() == [[[1.0, 0.0, 1.0]] * 2]
