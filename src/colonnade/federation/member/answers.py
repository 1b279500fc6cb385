"""Questions to a trained federation, and its answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.network import is_absent


@dataclass(frozen=True)
class Answer:
    """Predictions for some rows, made without those who were absent."""

    logits: Tensor  # [rows, outputs], or absent
    absent: dict[str, str]  # and why
    reason: str = ""  # why there is no answer
    # Parties that do not answer about some of the rows: which ones, by their place in the question.
    refused: dict[str, frozenset[int]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return 0 if is_absent(self.logits) else len(self.logits)


@dataclass(frozen=True)
class Refusal:
    """Why a party does not answer a call. "": it answers."""

    why: str = ""
    rows: tuple[int, ...] = ()  # that it does not answer about, by place; (): the reason is another


@dataclass
class Question:
    ids: list[str] | None  # None: the test rows
    reply: Callable[[Answer], None] = lambda answer: None
    without: frozenset[str] = frozenset()  # column holders that say nothing of their columns
    check: bool = False  # nothing is predicted; the answer tells which rows would be refused
    seconds: float | None = None  # in which the answer is needed; None: `patience`


@dataclass
class Replies:
    """What the others tell about a call of this party, while the call is open."""

    silent: dict[str, str] = field(default_factory=dict)  # who takes no part, and why
    unheard: dict[str, str] = field(default_factory=dict)  # whom one of the others did not hear
    refused: dict[str, frozenset[int]] = field(default_factory=dict)  # rows, by their place


def probabilities(outputs: Sequence[Tensor]) -> list[list[float]]:
    """Row by row, the probability of every class. `outputs`: the logits of each row."""
    if not outputs:
        return []
    return torch.softmax(torch.stack(list(outputs)).double(), 1).round(decimals=6).tolist()
