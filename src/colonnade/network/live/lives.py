"""Which process speaks for a party.

Each start of a party's process is a *life*, with a number that grows from start to start. Every
message and every liveliness token carries it. Two processes with the certificate of one party, say
on two machines, are two lives at the same time. Of the lives that are there, the one that was seen
first counts for as long as it is there, and messages of no other life are used. A party that
crashed and was started again is not held up for longer than the network takes to notice the crash.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from colonnade.network.wire import Header

MANY = 8  # lives of one party that are told apart
DIGITS = 14  # of the number of a life: milliseconds since 1970, up to the year 5138
HELD = 256  # messages of lives that do not count yet


def number_of(text: str) -> int | None:
    """The life that a key or a note names; None if it names none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= DIGITS else None


@dataclass
class Lives:
    """The lives of one other party."""

    present: list[int] = field(default_factory=list)  # as they came; the first one counts
    newest: int = 0  # whose messages were used last
    doubted: set[int] = field(default_factory=set)  # those that came while another one counted
    refused: set[int] = field(default_factory=set)  # those that were told to end
    held: list[Header] = field(default_factory=list)  # messages without content, for later

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
        """Whether a message of this life may be used. A message can overtake the token: while no
        life is there, a newer one than before counts."""
        if not self.present:
            self.newest = max(self.newest, life)
        return life == self.newest

    def hold(self, header: Header, value: Tensor | None) -> None:
        """Keep a message of a life that does not count yet. Content is not kept: it is asked for
        again."""
        if value is None and len(self.held) < HELD:
            self.held.append(header)

    def release(self) -> list[Header]:
        """The messages of the life that counts now."""
        held, self.held = self.held, []
        return [header for header in held if header.life == self.current]
