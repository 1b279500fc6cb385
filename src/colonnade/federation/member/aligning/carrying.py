"""A protocol that another package runs: as a process of its own at each party, with connections
that are carried to the other party by our messages.

So the package needs no port and no certificates: what it sends goes through the same authenticated
connections as everything else. Its process listens at a socket in a private folder (`here`), and
connects to another one (`there`), which is ours. It may fail or be killed by what the other side
sends; then the run fails, and nothing else.
"""

from __future__ import annotations

import hashlib
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from colonnade.common.text import printable
from colonnade.federation.member.aligning.messages import CHUNK, Carried, Carry, Stage
from colonnade.network.clock import SECOND

CONNECTIONS = 64
WINDOW = 64  # messages that are carried and not handed on yet
SILENCE = 600.0  # seconds without anything, after which the run has failed: it may compute so long
PAUSE = SECOND // 500  # between two looks at the sockets
PER_KEY, BESIDE = 256, 2**26  # bytes that are taken for the keys of both, and beside them

Send = Callable[[Carry | Carried], None]


class Failed(Exception):
    """The protocol did not come to its end."""


class Connection:
    """One connection of the process here, or to it."""

    def __init__(self, end: socket.socket | None) -> None:
        self.end = end  # None: the process here does not listen yet
        self.waiting: deque[Carry] = deque()  # to be handed on
        self.written = 0  # bytes of the first of them
        self.read_all = False

    def hand_on(self) -> list[int]:
        """Write what can be written; the numbers of messages that are done with."""
        done: list[int] = []
        while self.waiting and self.end is not None:
            first = self.waiting[0]
            try:
                while self.written < len(first.data):
                    self.written += self.end.send(first.data[self.written :])
                if first.last:
                    self.end.shutdown(socket.SHUT_WR)
            except BlockingIOError:
                return done
            except OSError:
                pass  # the process has closed it; what it says counts
            self.waiting.popleft()
            self.written = 0
            done.append(first.number)
        return done

    @property
    def over(self) -> bool:
        """Whether there is nothing more to carry in either direction."""
        return self.end is None or (self.read_all and not self.waiting)

    def read(self) -> bytes | None:
        """What has come; None if nothing, b"" at the end."""
        if self.end is None or self.read_all:
            return None
        try:
            data = self.end.recv(CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        self.read_all = not data
        return data


class Carrier:
    """One stage with one party. `asks`: this party finds which of its keys the other one has."""

    def __init__(
        self, run: bytes, stage: Stage, worker: Sequence[str], send: Send, *, asks: bool, most: int
    ) -> None:
        self.run, self.worker, self.send = run, worker, send
        self.stage: Stage = stage
        self.asks, self.left = asks, BESIDE + PER_KEY * most
        self.connections: dict[int, Connection] = {}
        self.made = 0  # connections of the process here
        self.listens = False  # the process here; the other side has been told
        self.opened = False  # for the process here to connect to the other side's
        self.told = False  # that the process here has ended
        self.sent = self.expected = self.acknowledged = 0  # numbers of messages
        self.ended = False  # the other side's process
        self.moved = time.monotonic()
        self.open = ExitStack()

    # -- the process here ------------------------------------------------------------------------

    def start(self, tokens: Sequence[str]) -> None:
        self.folder = Path(self.open.enter_context(TemporaryDirectory(prefix="match")))
        self.tokens = [self._salted(token) for token in tokens]
        (self.folder / "keys.csv").write_text("\n".join(["key", *self.tokens, ""]))
        self.door = self.open.enter_context(socket.socket(socket.AF_UNIX))
        self.door.setblocking(False)
        numbers = [str(int(self.asks)), "1"]  # its own, and that of the side that finds
        log = self.open.enter_context((self.folder / "log").open("wb"))
        here = str(self.folder)
        try:
            self.process = subprocess.Popen(
                [*self.worker, here, *numbers],
                cwd=here,
                env={"TMPDIR": here, "HOME": here, "PATH": "/usr/bin:/bin"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        except OSError as error:
            raise Failed(f"the process of the protocol cannot be started ({error})") from error
        self.open.callback(self._stop)

    def _salted(self, token: str) -> str:
        """No hash that could be compared with another run's lies on the disk."""
        return hashlib.blake2b(token.encode(), digest_size=32, key=self.run).hexdigest()

    def _stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for one in self.connections.values():
            if one.end is not None:
                one.end.close()

    def last_words(self) -> str:
        """What the process here has written last, for the log of this party."""
        lines = (self.folder / "log").read_text(errors="replace").splitlines()
        return printable(" ".join(lines[-3:]), 800)

    def close(self) -> None:
        self.open.close()

    # -- carrying --------------------------------------------------------------------------------

    def pump(self) -> bool:
        """Do what can be done now; whether the protocol is over at both sides."""
        if not self.listens and (self.folder / "here").exists():
            self.listens = True
            self._carry(0, b"", last=False)
        while self.opened and self._accept():
            continue
        for number, one in list(self.connections.items()):
            if one.end is None:
                one.end = self._reach()
            for done in one.hand_on():
                self.moved = time.monotonic()
                self.send(Carried(self.run, self.stage, done))
            while self.sent - self.acknowledged < WINDOW and (data := one.read()) is not None:
                self._carry(number, data, last=not data)
        over = self.process.poll() is not None
        if over and self.process.returncode:
            raise Failed(f"the process of the protocol ended with {self.process.returncode}")
        if over and not self.told and all(one.over for one in self.connections.values()):
            self._carry(0, b"", last=True)
            self.told = True
        if time.monotonic() - self.moved > SILENCE:
            raise Failed(f"nothing came for {SILENCE:.0f} s")
        return self.told and self.ended

    def _accept(self) -> bool:
        try:
            end, _ = self.door.accept()
        except BlockingIOError:
            return False
        end.setblocking(False)
        self.made += 1
        number = 2 * self.made - int(self.asks)
        self.connections[number] = Connection(end)
        self._carry(number, b"", last=False)  # the other side connects, too
        return True

    def _open(self) -> None:
        """The other side's process listens: only now can the process here connect to it, as if both
        were on one machine. If it connected before and got no answer for some seconds, it would
        greet again, and both greetings would arrive: spu then waits for ever."""
        if not self.opened:
            self.door.bind(str(self.folder / "there"))
            self.door.listen()
            self.opened = True

    def _reach(self) -> socket.socket | None:
        end = socket.socket(socket.AF_UNIX)
        try:
            end.connect(str(self.folder / "here"))
        except OSError:
            end.close()
            return None
        end.setblocking(False)
        return end

    def _carry(self, connection: int, data: bytes, last: bool) -> None:
        self.send(Carry(self.run, self.stage, self.sent, connection, data, last))
        self.sent += 1
        self.moved = time.monotonic()

    def take(self, message: Carry | Carried) -> None:
        """A message of the other side."""
        if message.stage != self.stage:
            return
        self.moved = time.monotonic()
        if isinstance(message, Carried):
            self.acknowledged += 1
            return
        self.left -= len(message.data)
        if message.number != self.expected or self.left < 0:
            raise Failed("messages that are no part of the protocol")
        self.expected += 1
        if message.connection == 0:
            self.ended |= message.last
            self._open()
            self.send(Carried(self.run, self.stage, message.number))
            return
        if message.connection not in self.connections:
            if message.connection % 2 == int(self.asks) or len(self.connections) >= CONNECTIONS:
                raise Failed("connections that are no part of the protocol")
            self.connections[message.connection] = Connection(None)
        self.connections[message.connection].waiting.append(message)

    # -- what came of it -------------------------------------------------------------------------

    def found(self) -> list[int]:
        """Places of the keys that both have."""
        place = {token: i for i, token in enumerate(self.tokens)}
        try:
            lines = (self.folder / "found.csv").read_text().splitlines()[1:]
            return sorted(place[line.strip('"')] for line in lines)
        except (OSError, KeyError, ValueError) as error:
            raise Failed("the process of the protocol left no result") from error
