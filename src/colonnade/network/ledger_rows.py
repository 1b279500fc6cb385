"""The ledger as the rows that an output folder holds."""

from __future__ import annotations

from colonnade.common.results import LedgerRow
from colonnade.network.ledger import Ledger

LEARNING = ("training", "supervision")  # what a model costs; looking at it and using it do not
MOST = 5000  # rows; beyond that they are summed over the members of a group


def ledger_rows(ledger: Ledger) -> list[LedgerRow]:
    """By phase, sender, receiver and kind of content."""
    rows = [LedgerRow(*row) for row in ledger.rows()]
    if len(rows) <= MOST:
        return rows
    sums: dict[tuple[str, str, str, str], list[int]] = {}
    for phase, kind, account in ledger.accounts():
        key = (phase, account.links.src.declared, account.links.dst.declared, kind)
        total = sums.setdefault(key, [0, 0])
        total[0] += int(account.messages.sum())
        total[1] += int(account.bytes.sum())
    return [LedgerRow(*key, *total) for key, total in sums.items()]
