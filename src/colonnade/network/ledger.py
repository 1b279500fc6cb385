"""What left each party: messages and bytes per sender, receiver and kind of content.

Bytes are those of the content itself, without headers, so that they can be compared with a paper's
formula. A message that a party sends to itself is not counted, because it does not leave the party.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from colonnade.network.topology import Links


@dataclass
class Account:
    """One kind of content over the links between two groups in one phase."""

    links: Links
    countable: np.ndarray  # real links between different parties
    messages: np.ndarray  # [receivers, slots]
    bytes: np.ndarray  # [receivers, slots]
    # Exchanges that used every link, not yet spread over the arrays: {bytes per message: how
    # often}. One dictionary entry costs far less than two array additions in the hot path.
    full: dict[int, int] = field(default_factory=dict)

    def settle(self) -> None:
        """Add what is in `full` to the arrays."""
        for size, times in self.full.items():
            self.messages += times * self.countable
            self.bytes += times * size * self.countable
        self.full.clear()


class Ledger:
    def __init__(self) -> None:
        self._accounts: dict[tuple[str, str, str, str], Account] = {}
        # Phase → failed attempts at exchanges that insist on their messages.
        self.repeated: Counter[str] = Counter()

    def copy(self) -> Ledger:
        """A copy that can be continued independently."""
        one = Ledger()
        one.repeated = self.repeated.copy()
        for key, a in self._accounts.items():
            numbers = (a.messages.copy(), a.bytes.copy(), dict(a.full))
            one._accounts[key] = Account(a.links, a.countable, *numbers)
        return one

    def add(
        self, phase: str, kind: str, links: Links, sent: np.ndarray | None, size: int | np.ndarray
    ) -> None:
        """Count one exchange. `sent`: over which links, None for all; `size`: bytes per message, or
        per [receiver, slot]."""
        key = (phase, kind, links.src.name, links.dst.name)
        account = self._accounts.get(key)
        if account is None:
            zeros = np.zeros(links.shape, dtype=np.int64)
            account = Account(links, links.real & ~links.own, zeros, zeros.copy())
            self._accounts[key] = account
        if sent is None and isinstance(size, int):
            account.full[size] = account.full.get(size, 0) + 1
            return
        counted = account.countable if sent is None else sent & account.countable
        account.messages += counted
        account.bytes += counted * size

    def accounts(self) -> Iterator[tuple[str, str, Account]]:
        for (phase, kind, _, _), account in self._accounts.items():
            account.settle()
            yield phase, kind, account

    def total(self, *phases: str, leave_out: Sequence[str] = ()) -> tuple[int, int]:
        """Messages and bytes in the given phases (all if none is given), without those to the
        groups in `leave_out`."""
        messages = bytes = 0
        for phase, _, account in self.accounts():
            if account.links.dst.declared in leave_out:
                continue
            if not phases or phase in phases:
                messages += int(account.messages.sum())
                bytes += int(account.bytes.sum())
        return messages, bytes

    def rows(self) -> Iterator[tuple[str, str, str, str, int, int]]:
        """(phase, sender, receiver, kind, messages, bytes) for every link that carried
        something."""
        sums: dict[tuple[str, str, str, str], tuple[int, int]] = {}
        for phase, kind, account in self.accounts():
            links = account.links
            for r, j in zip(*np.nonzero(account.messages), strict=True):
                key = (phase, links.src.parties[links.senders[r, j]], links.dst.parties[r], kind)
                # `clients` and `clients[2]` have separate accounts of the same link.
                messages, bytes = sums.get(key, (0, 0))
                messages += int(account.messages[r, j])
                sums[key] = messages, bytes + int(account.bytes[r, j])
        for key, total in sums.items():
            yield (*key, *total)

    def kinds(self) -> set[tuple[str, str, str]]:
        """(kind, source group, destination group) of everything that has left a party."""
        return {
            (kind, account.links.src.declared, account.links.dst.declared)
            for _, kind, account in self.accounts()
            if account.messages.any()
        }
