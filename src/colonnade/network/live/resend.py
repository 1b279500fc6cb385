"""The resend buffer: the messages of the last exchanges, so that a party can send them again."""

from __future__ import annotations

from colonnade.network.program_counter import ProgramCounter

EXCHANGES = 8  # of each program; the messages of older ones are dropped


class ResendBuffer:
    def __init__(self) -> None:
        # by branch of the program and program counter: receiver and message
        self._sent: dict[ProgramCounter, dict[ProgramCounter, list[tuple[str, bytes]]]] = {}

    def keep(self, counter: ProgramCounter, to: str, data: bytes) -> None:
        exchanges = self._sent.setdefault(counter.branch, {})
        if counter not in exchanges:
            exchanges[counter] = []
            while len(exchanges) > EXCHANGES:
                del exchanges[next(iter(exchanges))]
        exchanges[counter].append((to, data))

    def find(self, counter: ProgramCounter, to: str) -> list[bytes]:
        """The messages to a party in one exchange; none if they were dropped."""
        sent = self._sent.get(counter.branch, {}).get(counter, ())
        return [data for party, data in sent if party == to]

    def clear(self) -> None:
        self._sent.clear()
