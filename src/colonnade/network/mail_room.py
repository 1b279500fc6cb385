"""The messages that have arrived for one party in one program and are not read yet.

A *letter* belongs to one exchange: it is read at its program counter or never. A *register* holds
the newest message of its sender, whichever exchange it was sent for; each of the programs that run
side by side has registers of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from torch import Tensor

from colonnade.network.program_counter import MAIN, ProgramCounter
from colonnade.network.quota import Quota, Store, weight
from colonnade.network.wire import Header

UNLIMITED = sys.maxsize

# program counter, source, sender, destination, receiver
LetterKey = tuple[ProgramCounter, str, int, str, int]
# branch of the program, source, sender, destination, receiver, kind
RegisterKey = tuple[ProgramCounter, str, int, str, int, str]


class MailRoom:
    def __init__(
        self,
        quota: Quota | None = None,
        *,
        unread: int = UNLIMITED,
        registers: int = UNLIMITED,
        versions: int = 1,
    ) -> None:
        """`unread`: letters of one sender that are held for exchanges to come. `registers`: of one
        sender in one program. `versions`: of a register, so that a sender may be a little ahead."""
        self.quota = quota or Quota(UNLIMITED)
        self.unread, self.most_registers, self.versions = unread, registers, versions
        self.letters: Store[LetterKey, Tensor | None] = Store(self.quota)  # None: without content
        self.registers: Store[RegisterKey, list[tuple[ProgramCounter, Tensor]]] = Store(self.quota)
        self.written: dict[RegisterKey, ProgramCounter] = {}  # of the newest message of a register
        self.passed: dict[ProgramCounter, ProgramCounter] = {}  # by branch: the last exchange read

    def put(self, sender: str, header: Header, value: Tensor | None) -> None:
        """Hold a message until it is read, unless it is too late or there is no room."""
        counter, ends = header.counter, (header.src, header.sender, header.dst, header.receiver)
        if header.register:
            self._put_register(sender, (counter.branch, *ends, header.kind), counter, value)
        elif not any(passed.reached(counter) for passed in self.passed.values()):
            self._put_letter(sender, (counter, *ends), value)

    def _put_register(
        self, sender: str, key: RegisterKey, counter: ProgramCounter, value: Tensor | None
    ) -> None:
        if value is None or counter <= self.written.get(key, MAIN):  # an older one came later
            return
        if key not in self.registers and self._registers_beside(key) >= self.most_registers:
            return
        versions = [*self.registers.get(key, []), (counter, value)][-self.versions :]
        if self.registers.put(key, versions, sender, _sizes(versions)):
            self.written[key] = counter
        else:
            self.quota.drop(sender)

    def _registers_beside(self, key: RegisterKey) -> int:
        return sum(other[:3] == key[:3] for other in self.registers)

    def _put_letter(self, sender: str, key: LetterKey, value: Tensor | None) -> None:
        """Where the sender has no room left, its letters for the exchanges furthest ahead are
        dropped: no sender fills the memory with letters for exchanges to come."""
        size = weight(value)
        while not self.letters.put(key, value, sender, size):
            self.quota.drop(sender)
            furthest = max(self.letters.of(sender), default=key)
            if furthest <= key:
                return
            self.letters.pop(furthest)
        if len(self.letters) > self.unread:
            mine = [other for other in self.letters if other[1:3] == key[1:3]]
            if len(mine) > self.unread:
                self.letters.pop(max(mine))

    def passes(self, counter: ProgramCounter, forget: bool = False) -> None:
        """Letters for this exchange, or an earlier one, that come from now on are dropped.
        `forget`: letters for earlier exchanges that came before are dropped, too."""
        self.passed[counter.branch] = counter
        if forget or len(self.letters) > self.unread:
            # The letters of this very exchange stay: they are about to be read.
            old = [key for key in self.letters if key[0] != counter and counter.reached(key[0])]
            for key in old:
                self.letters.pop(key)

    def read_register(self, key: RegisterKey, counter: ProgramCounter) -> Tensor | None:
        """The newest value that was written for this exchange or an earlier one; if there is none,
        the newest value. It and what was written before it are removed."""
        versions = self.registers.get(key, [])
        if not versions:
            return None
        ready = [i for i, (written, _) in enumerate(versions) if written <= counter]
        chosen = ready[-1] if ready else len(versions) - 1
        value = versions[chosen][1]
        self.registers.shrink(key, versions[chosen + 1 :], _sizes(versions[chosen + 1 :]))
        return value

    def begin_anew(self) -> None:
        """A new generation begins: drop everything except for the newest value of each register."""
        self.letters.clear()
        self.written.clear()
        self.passed.clear()
        for key in self.registers:
            newest = [(MAIN, value) for _, value in self.registers.get(key, [])[-1:]]
            self.registers.shrink(key, newest, _sizes(newest))

    def clear(self) -> None:
        self.begin_anew()
        self.registers.clear()


def _sizes(versions: Sequence[tuple[ProgramCounter, Tensor]]) -> int:
    return sum(weight(value) for _, value in versions)
