"""The labels of a party that has them for some of the rows: an empty cell is a row of another
party."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from colonnade.common.text import nearest
from colonnade.data.preprocessing import Column
from colonnade.data.raw import COUNTING
from colonnade.data.rows import Indices
from colonnade.errors import InputError
from colonnade.federation.agreement.specs import RowsSpec

NOBODYS = -1  # the label of a row that this party has none of


def own_labels(
    values: Column, path: Path, column: str, rows: RowsSpec, order: Indices, train: Indices
) -> tuple[Tensor, tuple[str, ...]]:
    """Labels of the aligned rows in their order, `NOBODYS` where there is none, and the names of
    the classes. `train`: which of the ordered rows are for training."""
    first, places = in_file_order(order[: rows.size])
    words = [_word(value) for value in np.asarray(values)[first].tolist()]
    names = rows.names or tuple(sorted({word for word in words if word}))
    if len(names) != rows.count:
        raise InputError(
            f"{path}: column {column!r} holds {len(names)} classes ({', '.join(names[:6])}), but "
            f"the federation file says rows.classes = {rows.count}."
        )
    pairs = zip(first.tolist(), words, strict=True)
    y = np.array([_number(word, names, row, path, column) for row, word in pairs])[places]
    if not (y[train] != NOBODYS).any():
        raise InputError(
            f"{path}: column {column!r} has no label for any of the {len(train)} training rows; a "
            "party that holds labels needs labelled rows of its own."
        )
    return torch.from_numpy(y), names


def in_file_order(rows: Indices) -> tuple[Indices, Indices]:
    """Some rows in the order of the file, and where each is among them."""
    first = np.sort(rows)
    return first, np.searchsorted(first, rows)


def _word(value: object) -> str:
    """As text, so that a number in one file is the same number in another kind of file."""
    if isinstance(value, float):
        return "" if np.isnan(value) else str(int(value)) if value.is_integer() else str(value)
    return str(value).strip()


def _number(word: str, names: Sequence[str], row: int, path: Path, column: str) -> int:
    if not word:
        return NOBODYS
    if word not in names:
        raise InputError(
            f"{path}: label column {column!r}, data row {row + 1} holds {word!r} ({COUNTING}), "
            f"which is not among rows.classes of the federation file{nearest(word, names)}."
        )
    return names.index(word)
