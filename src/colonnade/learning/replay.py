"""A replay buffer: batches that a party may train on again. It is declared state (state.py)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Literal, cast

import torch
from torch import Tensor

from colonnade.network import ABSENT


class Replay:
    """The newest `most` batches of each member, or all of them. A short last batch is not kept."""

    large = True

    def __init__(self, most: int | Literal["all"], rows: int, width: int) -> None:
        self.most, self.rows, self.width = most, rows, width
        self.members = 0
        self._batches: defaultdict[int, list[Tensor]] = defaultdict(list)  # by member
        self._new: Counter[int] = Counter()  # by member: batches since the last call of `changes`

    @property
    def kept(self) -> list[list[Tensor]]:
        """The batches of each member here, the oldest first."""
        return [self._batches[i] for i in range(self.members)]

    def append(self, b: Tensor, up: Tensor) -> None:
        """Add a batch: b is [members here, rows, width]. Members that are not `up` do not keep
        theirs."""
        if self.most == 0 or b.shape[1] < self.rows:
            return
        for i, (kept, batch, alive) in enumerate(zip(self.kept, b, up.tolist(), strict=True)):
            if alive:
                self._new[i] += 1
                kept.append(batch)
                self._drop_the_oldest(kept)

    def _drop_the_oldest(self, kept: list[Tensor]) -> None:
        if isinstance(self.most, int):
            del kept[: -self.most]

    def forget(self) -> None:
        """Drop all batches, which may take gigabytes, when they will not be read again."""
        for kept in self._batches.values():
            kept.clear()
        self._new.clear()

    # -- as state ---------------------------------------------------------------------------------

    def whole(self) -> list[dict[str, Tensor]]:
        return self._of([len(kept) for kept in self.kept])

    def changes(self) -> list[dict[str, Tensor]]:
        new = [min(self._new[i], len(kept)) for i, kept in enumerate(self.kept)]
        self._new.clear()
        return self._of(new) if any(new) else []

    def _of(self, newest: Sequence[int]) -> list[dict[str, Tensor]]:
        """The newest batches of each member here."""
        empty = torch.zeros(0, self.rows, self.width)
        pairs = zip(self.kept, newest, strict=True)
        return [{"batches": torch.stack(kept[-n:]) if n else empty} for kept, n in pairs]

    def restore(self, found: Sequence[dict[str, Tensor]]) -> None:
        for kept, one in zip(self.kept, found, strict=True):
            kept.extend(one["batches"])
            self._drop_the_oldest(kept)

    @property
    def filled(self) -> Tensor:
        """Which members have a batch. [members here] bool"""
        return torch.tensor([bool(kept) for kept in self.kept], dtype=torch.bool)

    def read(self, t: int) -> Tensor:
        """Each member's t-th batch, modulo the number of its batches; -1 is the newest."""
        if not self.members:
            return cast(Tensor, ABSENT)
        empty = torch.zeros(self.rows, self.width)
        return torch.stack([kept[t % len(kept)] if kept else empty for kept in self.kept])
