"""How much memory one party spends on messages of another party.

Every received message that waits to be read counts against one quota of bytes per sender, wherever
it waits: between the transport's threads and the clock, among unread letters, in registers, among
messages of a generation that is not known yet. A message that exceeds the quota is dropped.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar, overload

from torch import Tensor

from colonnade.network.tally import Tally

log = logging.getLogger(__name__)

DEFAULT = 512 * 2**20  # bytes
ENTRY = 2048  # bytes of an entry beside its content: a long program counter takes 1,600

K = TypeVar("K")
V = TypeVar("V")


def weight(value: Tensor | None, note: str = "") -> int:
    """The bytes of memory that a received message takes."""
    numbers = 0 if value is None else value.numel() * value.element_size()
    return ENTRY + numbers + (sys.getsizeof(note) if note else 0)


class Quota:
    """The bytes held of each sender; `own` are this party's messages to itself, which have no
    limit. Any thread may use it."""

    def __init__(self, bytes: int = DEFAULT, own: str = "") -> None:
        self.bytes, self.own = bytes, own
        self.drops = Tally(log)
        self._held: dict[str, int] = {}
        self._lock = threading.Lock()

    def held(self, sender: str) -> int:
        return self._held.get(sender, 0)

    def take(self, sender: str, size: int) -> bool:
        """Reserve so many bytes for a message; False, and nothing changes, if they exceed the
        quota."""
        with self._lock:
            held = self._held.get(sender, 0) + size
            if held > self.bytes and sender != self.own:
                return False
            self._held[sender] = held
            return True

    def give_back(self, sender: str, size: int) -> None:
        with self._lock:
            self._held[sender] = self._held.get(sender, 0) - size

    def drop(self, sender: str, room: str = "") -> None:
        """Count a message for which there is no room; `room`: the limit, if it is not the quota."""
        room = room or f"network.quota: {self.bytes / 2**20:,.0f} MB"
        self.drops.add(sender, "more of its messages wait here than it may have", room)


class Store(Generic[K, V]):
    """A dictionary whose values count against the quotas of their senders."""

    def __init__(self, quota: Quota) -> None:
        self.quota = quota
        self._entries: dict[K, tuple[V, str, int]] = {}  # value, sender, bytes

    def put(self, key: K, value: V, sender: str, size: int) -> bool:
        """Keep a value in place of what was there; False, and nothing changes, if it does not fit
        into its sender's quota."""
        before = self._entries.get(key)
        mine = before[2] if before is not None and before[1] == sender else 0
        if size > mine and not self.quota.take(sender, size - mine):
            return False
        if size < mine:
            self.quota.give_back(sender, mine - size)
        if before is not None and before[1] != sender:
            self.quota.give_back(before[1], before[2])
        self._entries[key] = (value, sender, size)
        return True

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V) -> V: ...
    def get(self, key: K, default: V | None = None) -> V | None:
        entry = self._entries.get(key)
        return default if entry is None else entry[0]

    def pop(self, key: K) -> V | None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self.quota.give_back(entry[1], entry[2])
        return entry[0]

    def shrink(self, key: K, value: V, size: int) -> None:
        """Replace a value by a smaller one of the same sender."""
        _, sender, before = self._entries[key]
        self._entries[key] = (value, sender, size)
        self.quota.give_back(sender, before - size)

    def clear(self) -> None:
        for key in list(self._entries):
            self.pop(key)

    def of(self, sender: str) -> list[K]:
        return [key for key, entry in self._entries.items() if entry[1] == sender]

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
