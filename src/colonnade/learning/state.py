"""Declared state: what a party must still know after a crash, beside its models and optimisers.

An algorithm declares its state once, in `build`, and uses it like any other object:

self.newest = self.keeps(net, "newest", self.server, Register())

Every checkpoint of a party of the group then holds the state, and a party that starts again has it
back before its first round. State that is `large` is written incrementally: a checkpoint adds the
changes to a journal (journal.py). Small state is written whole with each checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from colonnade.network import ABSENT

Tensors = dict[str, Tensor]


class State(Protocol):
    """State of the members of a group that run here. Lists have one entry per member, in the order
    of the group; an empty list means that there is nothing to write. Tensors that `whole` or
    `changes` returned must not change afterwards."""

    members: int  # here; set by `Algorithm.keeps`

    @property
    def large(self) -> bool: ...

    def whole(self) -> list[Tensors]:
        """All of it."""
        ...

    def changes(self) -> list[Tensors]:
        """What is new since the last call. Called for large state only."""
        ...

    def restore(self, found: Sequence[Tensors]) -> None:
        """Restore what `whole` or `changes` returned; called for several `changes` in their
        order."""
        ...


class Value:
    """One value at each member: [members here, ...]; None before it is set."""

    def __init__(self, *, large: bool = False) -> None:
        self.large, self.members = large, 0
        self.value: Any = None  # ABSENT once it is set, if there is no member here
        self._changed = False

    def set(self, value: Any) -> None:
        self.value, self._changed = value if self.members else ABSENT, True

    def set_once(self, value: Any) -> None:
        """Set the value unless it has one. After a restart, exchanges of past rounds bring nothing,
        so the restored value must stay."""
        if self.value is None:
            self.set(value)

    def read(self, rows: Tensor) -> Tensor:
        """Some rows of a value whose second axis is over rows. [members here, these rows, ...]"""
        return self.value.index_select(1, rows)

    def whole(self) -> list[Tensors]:
        there = isinstance(self.value, Tensor)
        return [{"value": member} for member in self.value] if there else []

    def changes(self) -> list[Tensors]:
        changed, self._changed = self._changed, False
        return self.whole() if changed else []

    def restore(self, found: Sequence[Tensors]) -> None:
        self.value = torch.stack([one["value"] for one in found])


class Numbers(dict[str, int]):
    """Whole numbers by name, the same at every member here."""

    large, members = False, 0

    def whole(self) -> list[Tensors]:
        return [{k: torch.tensor([n]) for k, n in self.items()} for _ in range(self.members)]

    def changes(self) -> list[Tensors]:
        return self.whole()

    def restore(self, found: Sequence[Tensors]) -> None:
        for one in found:
            self |= {name: int(number) for name, number in one.items()}


class Table:
    """A value for each row, at each member: [members here, rows, width]."""

    large = True

    def __init__(self, value: Tensor) -> None:
        self.value, self.members = value, len(value)
        self._changed = torch.zeros(value.shape[1], dtype=torch.bool)

    def read(self, rows: Tensor) -> Tensor:
        """[members here, these rows, width]"""
        return self.value.index_select(1, rows) if self.members else ABSENT  # pyright: ignore[reportReturnType]

    def write(self, member: int, rows: Tensor, value: Tensor) -> None:
        self.value[member, rows] = value
        self._changed[rows] = True

    def write_where(self, rows: Tensor, value: Tensor, where: Tensor) -> None:
        """These rows of the members that are told to. [members here, these rows, width], [members
        here] bool"""
        for member in range(self.members):
            if bool(where[member]):
                self.write(member, rows, value[member])

    def whole(self) -> list[Tensors]:
        return self._of(torch.arange(self.value.shape[1]))

    def changes(self) -> list[Tensors]:
        rows = self._changed.nonzero()[:, 0]
        self._changed.zero_()
        return self._of(rows) if len(rows) else []

    def _of(self, rows: Tensor) -> list[Tensors]:
        return [{"rows": rows, "value": member[rows]} for member in self.value]

    def restore(self, found: Sequence[Tensors]) -> None:
        for member, one in enumerate(found):
            self.value[member, one["rows"]] = one["value"]
