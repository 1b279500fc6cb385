"""Questions to a trained federation, and its answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.network import is_absent


@dataclass(frozen=True)
class Answer:
    """Predictions for some rows, made without those who were absent."""

    logits: Tensor  # [rows, outputs], or absent
    absent: dict[str, str]  # and why
    reason: str = ""  # why there is no answer

    @property
    def rows(self) -> int:
        return 0 if is_absent(self.logits) else len(self.logits)


@dataclass
class Question:
    ids: list[str] | None  # None: the test rows
    reply: Callable[[Answer], None]
    without: frozenset[str] = frozenset()  # column holders that say nothing of their columns


def predictions(answer: Answer) -> tuple[list[int], Tensor]:
    """Classes and probabilities."""
    if is_absent(answer.logits):
        return [], torch.zeros(0)
    return answer.logits.argmax(1).tolist(), torch.softmax(answer.logits, 1)
