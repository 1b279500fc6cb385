"""What a result says about the rows that it was measured on."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from colonnade.federation.member.measuring import FEW, cautions
from colonnade.learning.task import Holding, Part
from colonnade.network import ABSENT


def part(*classes: int) -> Part:
    return Part(ABSENT, torch.tensor(classes), len(classes))


ENOUGH = part(*[0, 1] * FEW)
DATA = Holding(ENOUGH, ENOUGH, ENOUGH, part())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (DATA, []),
        (replace(DATA, test=part(1)), ["bank has labels of 1 test row only"]),
        (replace(DATA, validation=part(0, 1, 1)), ["bank has labels of 3 validation rows only"]),
        (
            replace(DATA, test=part(*[1] * FEW)),
            ["test rows that bank has labels of are all of one"],
        ),
        (replace(DATA, validation=part()), ["bank has no labels of validation rows"]),
        (replace(DATA, test=part()), []),  # the table says that nothing was measured
    ],
)
def test_figures_of_few_rows_or_of_one_class_come_with_a_warning(
    data: Holding, said: list[str]
) -> None:
    found = cautions(data, 2, "bank")
    assert len(found) == len(said)
    assert all(text in line for text, line in zip(said, found, strict=True))


def test_numbers_have_no_classes() -> None:
    assert cautions(replace(DATA, test=part(*[1] * FEW)), 0, "bank") == []
