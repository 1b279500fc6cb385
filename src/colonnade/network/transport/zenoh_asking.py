"""Questions to a party by a second process, such as `colonnade status` or `colonnade serve`."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import zenoh

from colonnade.errors import ColonnadeError
from colonnade.network.transport.zenoh_config import Place, configuration

OPEN = 5.0


class Line:
    """Many questions to one party, through one session: opening one takes longer than most answers.
    Several threads may ask at once. After a question without an answer the session is opened anew,
    because the party may have started again. `opening`: seconds at most for that."""

    def __init__(self, place: Place, party: str, opening: float = OPEN) -> None:
        self.place, self.party, self.opening = place, party, opening
        self._lock = threading.Lock()
        self._session: zenoh.Session | None = None
        self._asking, self._stale = 0, False  # questions that are open; whether one was in vain

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def ask(self, name: str, payload: bytes = b"", timeout: float = 5.0) -> bytes | None:
        """The answer to a question; None if none came in time."""
        check_size(self.place, payload, f"question {name!r} to {self.party!r}")
        deadline = time.monotonic() + timeout
        with self._open(min(timeout, self.opening)) as session:
            if session is not None:
                left = max(deadline - time.monotonic(), 0.001)
                key = f"vfl/{self.party}/ask/{name}"
                with contextlib.suppress(zenoh.ZError):  # the session was closed
                    for reply in session.get(key, payload=payload, timeout=left):
                        if reply.ok is not None:
                            return reply.ok.payload.to_bytes()
            self._stale = True
        return None

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._session is not None:
            with contextlib.suppress(zenoh.ZError):
                self._session.close()
        self._session, self._stale = None, False

    @contextlib.contextmanager
    def _open(self, patience: float) -> Iterator[zenoh.Session | None]:
        with self._lock:
            if self._stale and not self._asking:
                self._close()
            if self._session is None:
                self._session = visit(self.place, self.place.way_to(self.party), patience)
            self._asking += 1
            session = self._session
        try:
            yield session
        finally:
            with self._lock:
                self._asking -= 1


def ask(
    place: Place, party: str, name: str, payload: bytes = b"", timeout: float = 5.0
) -> bytes | None:
    """The answer of a party to one question; None if none came in time."""
    with Line(place, party) as line:
        return line.ask(name, payload, timeout)


def visit(place: Place, servers: dict[str, str], patience: float) -> zenoh.Session | None:
    """A session of a second process of the party; None if nobody answers there."""
    with contextlib.suppress(zenoh.ZError):
        return zenoh.open(configuration(place, visiting=servers, patience=patience))
    return None


def check_size(place: Place, data: bytes, what: str) -> None:
    if len(data) > place.largest:
        raise ColonnadeError(
            f"{what}: {len(data):,} bytes are more than the largest allowed, {place.largest:,}."
        )
