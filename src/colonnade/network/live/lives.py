"""Which process speaks for a party.

Each start of a party's process is a *life*, with a number that grows from start to start. Every
message and every liveliness token carries it. Two processes with the certificate of one party, say
on two machines, are two lives at the same time. Of the lives that are there, the one that was seen
first *counts* for as long as it is there: only its messages are used. A party that crashed and was
started again therefore waits until the network has noticed the crash, and no longer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from colonnade.network.quota import Quota, Store, weight
from colonnade.network.wire import Header

MANY = 8  # lives of one party at the same time; further ones are ignored
DIGITS = 14  # of the number of a life: milliseconds since 1970, up to the year 5138
HELD = 256  # messages of one party that are held for lives that do not count yet


def number_of(text: str) -> int | None:
    """The number of a life in a key or a note; None if the text is no such number."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= DIGITS else None


@dataclass
class Lives:
    """The lives of one other party."""

    present: list[int] = field(default_factory=list)  # in the order they came; the first one counts
    newest: int = 0  # the life that counts, or that counted last
    unconfirmed: set[int] = field(default_factory=set)  # came beside another one; checked later
    refused: set[int] = field(default_factory=set)  # that were told to end

    @property
    def current(self) -> int | None:
        return self.present[0] if self.present else None

    def change(self, life: int, there: bool) -> None:
        """A liveliness token of this life came or went."""
        if not there and life in self.present:
            self.present.remove(life)
        elif there and life not in self.present and len(self.present) < MANY:
            self.present.append(life)
        if self.current is not None:
            self.newest = self.current

    def counts(self, life: int) -> bool:
        """Whether a message of this life may be used. A message can overtake the liveliness token:
        while no life is there, a life that is newer than the last one counts."""
        if not self.present:
            self.newest = max(self.newest, life)
        return life == self.newest


class Held:
    """Messages of lives that do not count yet, of all other parties. They count against the quotas
    of their senders."""

    def __init__(self, quota: Quota) -> None:
        self.quota = quota
        self._headers: Store[int, Header] = Store(quota)  # in the order in which they came
        self._came = 0

    def hold(self, sender: str, header: Header, value: Tensor | None) -> None:
        """Hold a message of a life that does not count yet. A message with content is dropped: this
        party asks for it again when it needs it."""
        if value is not None or len(self._headers.of(sender)) >= HELD:
            return
        self._came += 1
        if not self._headers.put(self._came, header, sender, weight(None, header.note)):
            self.quota.drop(sender)

    def release(self, sender: str, life: int) -> list[Header]:
        """The held messages of the life of this party that counts now; its others are dropped."""
        held = [self._headers.pop(number) for number in self._headers.of(sender)]
        return [header for header in held if header is not None and header.life == life]
