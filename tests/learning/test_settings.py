"""Limits of settings stand at their keys and are told to the person who wrote the file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest

from colonnade.data import DataSpec, load
from colonnade.errors import InputError
from colonnade.learning import PROBABILITY, SHARE, WIDTHS, Settings, Task, at_least


class Own(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    steps: Annotated[int, at_least(1, "steps")] = 5
    keep: Annotated[int | Literal["all"], at_least(0, "batches")] = "all"
    share: Annotated[float, SHARE] = 0.0
    chance: Annotated[float | None, PROBABILITY] = None
    layers: Annotated[list[int] | None, WIDTHS] = None


TASK = Task.of(load(DataSpec(dataset="digits", rows=100), seed=0), seed=0)


def checked(**keys: Any) -> Own:
    own = msgspec.convert({"name": "o", "algorithm": "own", **keys}, Own)
    own.check(TASK)
    return own


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"steps": 0}, "steps = 0: expected 1 or more steps"),
        ({"keep": -1}, "keep = -1: expected 0 or more batches"),
        ({"share": 1.0}, "share = 1: expected 0 or more, below 1"),
        ({"share": float("nan")}, "share = nan: expected 0 or more, below 1"),
        ({"chance": 1.5}, "chance = 1.5: expected a probability, 0 to 1"),
        ({"layers": [8, 0]}, "layers = [8, 0]: expected widths of 1 or more"),
        ({"batch": 0}, "batch = 0: expected 1 or more"),
        ({"patience": 0}, "patience = 0: expected 1 or more epochs"),
        ({"momentum": float("inf")}, "momentum = inf: expected 0 or more"),
        (
            {"encoder": [1.5]},
            "encoder = [1.5]: expected widths of 1 or more, or shares of the columns below 1",
        ),
    ],
)
def test_a_value_outside_its_limits_is_an_error_that_names_the_key(
    keys: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError) as caught:
        checked(**keys)
    assert str(caught.value) == says


def test_words_and_nothing_in_place_of_a_number_are_left_alone() -> None:
    assert checked(keep="all").keep == "all"
    assert checked(keep=0, chance=0.0, share=0.99, layers=[], encoder=[0.5, 8]).layers == []
