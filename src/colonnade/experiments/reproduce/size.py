"""A data set at one scale: so many rows, seeds and epochs, and the words for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from colonnade.experiments.reproduce.study import Column, Part

FEW_ROWS = 2_000
VALIDATION = 0.1  # share of the rows, unless the data say otherwise


@dataclass(frozen=True)
class Size:
    """The data of a paper, or what stands in for them, at one scale."""

    data: Mapping[str, Any]
    words: str
    seeds: int
    share: float  # of the paper's epochs
    rows: int  # with those set aside for validation
    substitute: bool = False  # other data than the paper's

    def batch(self, paper: int) -> int:
        """Rows per batch: where rows are few, smaller ones, to learn anything at all."""
        return paper // 4 if self.rows < FEW_ROWS else paper

    def epochs(self, paper: int) -> int:
        return max(1, round(self.share * paper))

    @property
    def training_rows(self) -> int:
        return self.rows - round(self.data.get("validation", VALIDATION) * self.rows)

    def part(self, name: str, title: str, **more: Any) -> Part:
        data = {**self.data, **more.pop("data", {})}
        seeds = list(range(self.seeds))
        title = f"{title} ({self.words})"
        return Part(name, {"name": title, "seeds": seeds, "data": data, **more})

    def column(self, name: str, words: str, metric: str = "") -> Column:
        return Column(name, words, self.substitute, metric)
