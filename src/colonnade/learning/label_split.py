"""Which rows each of several label holders has labels of, in a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from colonnade.common.devices import to_device
from colonnade.common.seeds import torch_stream
from colonnade.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

LabelSplit = Literal["iid", "classes"] | list[list[int]]


def split_labels(
    y: Tensor, classes: int, holders: Sequence[str], how: LabelSplit, seed: int
) -> list[Tensor]:
    """Disjoint rows by holder, drawn from the seed; together all rows. `how`: "iid", any rows;
    "classes", neighbouring classes; a list, the classes of each holder."""
    import torch

    stream = torch_stream(seed, "labels")
    if how == "iid":
        order = to_device(torch.randperm(len(y), generator=stream, device="cpu"))
        parts = list(order.tensor_split(len(holders)))
    else:
        owned = neighbouring(classes, len(holders)) if how == "classes" else how
        _check(owned, classes, holders)
        parts = _by_class(y, owned, classes, stream)
    for holder, rows in zip(holders, parts, strict=True):
        if not len(rows):
            raise InputError(
                f"label_split = {how!r}: {holder} has no labelled rows; give it other classes, or "
                "lower active"
            )
    return [rows.sort().values for rows in parts]


def neighbouring(classes: int, holders: int) -> list[list[int]]:
    """Equally many classes for each holder, with as few in common as possible: of ten classes four
    holders have 0–2, 2–4, 4–6 and 7–9, as in CVFL."""
    width = -(-classes // holders)
    starts = [k * (classes - width) // max(1, holders - 1) for k in range(holders)]
    return [list(range(start, start + width)) for start in starts]


def _by_class(
    y: Tensor, owned: Sequence[Sequence[int]], classes: int, stream: torch.Generator
) -> list[Tensor]:
    """The rows of a class in equal parts for those who have it."""
    import torch

    parts: list[list[Tensor]] = [[torch.zeros(0, dtype=torch.int64)] for _ in owned]
    for label in range(classes):
        rows = (y == label).nonzero()[:, 0]
        rows = rows[to_device(torch.randperm(len(rows), generator=stream, device="cpu"))]
        having = [k for k, labels in enumerate(owned) if label in labels]
        for k, part in zip(having, rows.tensor_split(len(having)), strict=True):
            parts[k].append(part)
    return [torch.cat(part) for part in parts]


def _check(owned: Sequence[Sequence[int]], classes: int, holders: Sequence[str]) -> None:
    if len(owned) != len(holders):
        raise InputError(
            f"label_split: has classes for {len(owned)} parties, but {len(holders)} are active: "
            f"{', '.join(holders)}"
        )
    known = {label for labels in owned for label in labels}
    if strange := sorted(known - set(range(classes))):
        raise InputError(f"label_split: there is no class {strange[0]}, only 0 to {classes - 1}")
    if missing := sorted(set(range(classes)) - known):
        raise InputError(
            f"label_split: no active party has class {missing[0]}; the model could not learn it"
        )
