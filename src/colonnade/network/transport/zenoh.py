"""Messages between organisations, by Zenoh: mutual TLS, access by name, liveliness.

Keys: `vfl/<sender>/to/<receiver>` for messages, `vfl/<party>/alive/<life>` for liveliness tokens,
and `vfl/<party>/ask/<name>` for questions. `<life>` numbers the starts of the party's process, so
that two processes of one party have two tokens. Zenoh calls back from its own threads; everything
is handed over to the thread of the clock. What waits there counts against its sender's quota.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import zenoh

from colonnade.common.text import printable
from colonnade.errors import InputError
from colonnade.network.clock import WallClock
from colonnade.network.live.lives import MANY, number_of
from colonnade.network.quota import ENTRY, Quota
from colonnade.network.tally import Tally
from colonnade.network.transport.transport import Deliver, Notice
from colonnade.network.transport.zenoh_asking import Line, ask, check_size, visit
from colonnade.network.transport.zenoh_config import Place, configuration
from colonnade.network.transport.zenoh_log import log_reasons, plain

__all__ = ["Line", "Place", "ZenohTransport", "ask", "log_reasons", "present"]

log = logging.getLogger(__name__)

ALIVE = "vfl/*/alive/*"
ASKING = "all who ask"  # all questions share one quota: Zenoh does not say who asks
ASKED = 2.0  # seconds for the answer of a neighbour
TRY = 0.5  # seconds at a time for reaching the hub, so that closing need not wait longer

Answer = Callable[[bytes], None]
Handler = Callable[[bytes, Answer], None]


class ZenohTransport:
    """A `Transport` over Zenoh. Until the session is open, messages are lost."""

    def __init__(self, place: Place, clock: WallClock, quota: Quota | None = None) -> None:
        self.place, self.party, self.clock = place, place.party, clock
        self.quota = quota or Quota(own=place.party)
        self._failures = Tally(log)
        # Lives of parties that came or left, until the clock's thread is told.
        self._changes: dict[tuple[str, int], bool] = {}
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._session: zenoh.Session | None = None
        self._waiting: list[Callable[[zenoh.Session], Any]] = []  # declarations for the session
        self._declared: list[Any] = []
        self._token: zenoh.LivelinessToken | None = None
        self._send_queues: dict[str, SendQueue] = {}
        if place.identity is None:
            log.warning("plain TCP: not encrypted and anyone who reaches the port can take part")
        self._declare(lambda session: _watch_links(session, place))
        self._opening = threading.Thread(target=self._reach_hub, name="reach hub", daemon=True)
        if place.behind_hub:
            self._opening.start()
        else:
            self._begin(_open(place))

    def listen(self, deliver: Deliver, notice: Notice, life: int = 0) -> None:
        def arrived(sample: zenoh.Sample) -> None:
            sender = _party_in(sample.key_expr)
            if sample.kind == zenoh.SampleKind.PUT and sender in self.place.neighbours:
                data = sample.payload.to_bytes()
                self._hand_over(sender, len(data), lambda: deliver(sender, data))

        def changed(sample: zenoh.Sample) -> None:
            """Only the newest state is handed over: a party that comes and leaves without end must
            not fill the queue."""
            party, there = _party_in(sample.key_expr), sample.kind == zenoh.SampleKind.PUT
            life = number_of(str(sample.key_expr).rsplit("/", 1)[1])
            if party not in self.place.neighbours or life is None:
                return
            with self._lock:
                waiting = (party, life) in self._changes
                if not waiting and sum(one == party for one, _ in self._changes) >= MANY:
                    return
                self._changes[party, life] = there
            if not waiting:
                self.clock.hand_over(lambda: self._unless_closed(lambda: tell(party, life)))

        def tell(party: str, life: int) -> None:
            with self._lock:
                there = self._changes.pop((party, life))
            notice(party, there, life)

        def be_there(session: zenoh.Session) -> None:
            self._token = session.liveliness().declare_token(f"vfl/{self.party}/alive/{life}")

        self._declare(lambda s: s.declare_subscriber(f"vfl/*/to/{self.party}", arrived))
        self._declare(lambda s: s.liveliness().declare_subscriber(ALIVE, changed, history=True))
        self._declare(be_there)  # last: parties that see this one may send at once

    def publish(self, to: str, data: bytes, delay: int = 0) -> None:
        check_size(self.place, data, f"message to {to!r}")
        session = self._session
        if session is None or self._closed.is_set():
            return
        if to not in self._send_queues:
            self._send_queues[to] = SendQueue(session, self.party, to, 2 * self.place.largest)
        self._send_queues[to].send(data)

    def serve(self, name: str, handler: Handler) -> None:
        """Answer to `ask`. The handler is called on the thread of the clock with the payload and a
        function for the answer, which may be called later, once."""
        key = f"vfl/{self.party}/ask/{name}"

        def asked(query: zenoh.Query) -> None:
            payload = query.payload.to_bytes() if query.payload else b""
            self._hand_over(ASKING, len(payload), lambda: answer_to(query, payload))

        def answer_to(query: zenoh.Query, payload: bytes) -> None:
            """An error while answering is logged, and this party goes on."""
            try:
                handler(payload, lambda answer: reply(query, answer))
            except Exception as error:
                self._failures.add(name, f"cannot answer: {type(error).__name__}", error)

        def reply(query: zenoh.Query, answer: bytes) -> None:
            check_size(self.place, answer, f"answer to {name!r}")
            with contextlib.suppress(zenoh.ZError):  # the asking process is gone
                query.reply(key, answer)
            query.drop()  # no further reply: the asking process need not wait any longer

        self._declare(lambda session: session.declare_queryable(key, asked, complete=True))

    def ask(self, party: str, name: str, take: Callable[[bytes], None]) -> None:
        """Ask a neighbour through the links that are there. `take` is called with the answer, on
        the thread of the clock; never, if none comes."""
        session = self._session
        if session is None or self._closed.is_set():
            return

        def answered(reply: zenoh.Reply) -> None:
            if reply.ok is not None:
                data = reply.ok.payload.to_bytes()
                self._hand_over(party, len(data), lambda: take(data))

        with contextlib.suppress(zenoh.ZError):
            session.get(f"vfl/{party}/ask/{name}", answered, timeout=ASKED)

    def close(self) -> None:
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
        if self._opening.is_alive():
            self._opening.join()
        deadline = time.monotonic() + self.place.lease
        for queue in self._send_queues.values():
            queue.close(deadline)
        with contextlib.suppress(zenoh.ZError):
            if self._token is not None:
                self._token.undeclare()
            if self._session is not None:
                self._session.close()

    def _hand_over(self, sender: str, size: int, action: Callable[[], None]) -> None:
        size += ENTRY
        if not self.quota.take(sender, size):
            self.quota.drop(sender)
            return

        def act() -> None:
            self.quota.give_back(sender, size)
            self._unless_closed(action)

        self.clock.hand_over(act)

    def _unless_closed(self, action: Callable[[], None]) -> None:
        if not self._closed.is_set():
            action()

    def _declare(self, make: Callable[[zenoh.Session], Any]) -> None:
        with self._lock:
            if self._session is None:
                self._waiting.append(make)
            elif not self._closed.is_set():
                self._declared.append(make(self._session))

    def _begin(self, session: zenoh.Session) -> None:
        with self._lock:
            self._session = session
            if not self._closed.is_set():
                self._declared = [make(session) for make in self._waiting]

    def _reach_hub(self) -> None:
        """Open the session when the hub answers; try until it does."""
        config = configuration(self.place, patience=TRY)
        told = False
        while not self._closed.is_set():
            try:
                return self._begin(zenoh.open(config))
            except zenoh.ZError as error:
                if not told:
                    log.warning("the hub %s is not there yet: %s", self.place.hub, plain(error))
                told = True


class SendQueue:
    """The messages to one receiver, sent by a thread of its own: a receiver that hangs without
    being gone blocks this thread for as long as its lease, and no other receiver waits."""

    def __init__(self, session: zenoh.Session, sender: str, to: str, capacity: int) -> None:
        self.to, self.capacity = to, capacity
        self.backlog, self.lost = 0, Tally(log)  # bytes that wait; messages that found no room
        self._lock = threading.Lock()
        self._messages: SimpleQueue[bytes | None] = SimpleQueue()
        self._publisher = session.declare_publisher(
            f"vfl/{sender}/to/{to}",
            congestion_control=zenoh.CongestionControl.BLOCK,  # else most are dropped under load
            express=True,
        )
        self._thread = threading.Thread(target=self._run, name=f"to {to}", daemon=True)
        self._thread.start()

    def send(self, data: bytes) -> None:
        with self._lock:
            fits = self.backlog + len(data) <= self.capacity
            self.backlog += len(data) if fits else 0
        if fits:
            self._messages.put(data)
        else:
            self.lost.add(self.to, "is too slow: messages to it are lost")

    def close(self, deadline: float) -> None:
        """Send what waits, until the deadline at the latest."""
        self._messages.put(None)
        self._thread.join(max(deadline - time.monotonic(), 0))

    def _run(self) -> None:
        while (data := self._messages.get()) is not None:
            try:
                self._publisher.put(data)
            except zenoh.ZError as error:  # the session was closed
                log.info("lost a message to %s: %s", self.to, error)
            with self._lock:
                self.backlog -= len(data)


def present(place: Place, timeout: float = 2.0) -> set[str]:
    """Which parties are there: of those that this party connects to, or, with a hub, of all."""
    servers = place.way_to(place.hub) if place.hub else dict(place.connect)
    session = visit(place, servers, timeout) if servers else None
    if session is None:
        return set()
    expected = set(place.members if place.hub else servers)
    seen: set[str] = set()
    complete = threading.Event()

    def found(sample: zenoh.Sample) -> None:
        seen.add(_party_in(sample.key_expr))
        if seen >= expected:
            complete.set()

    with session, session.liveliness().declare_subscriber(ALIVE, found, history=True):
        complete.wait(timeout)
    return set(seen)


def _open(place: Place) -> zenoh.Session:
    try:
        return zenoh.open(configuration(place))
    except zenoh.ZError as error:
        raise InputError(
            f"listen: {place.party} cannot listen at {place.listen}: {plain(error)}. If the "
            "port is in use, this party may be running already, or another program; end it or "
            "choose another port."
        ) from error


def _party_in(key: zenoh.KeyExpr) -> str:
    return str(key).split("/")[1]


def _watch_links(session: zenoh.Session, place: Place) -> Any:
    """Log links whose other end has a valid certificate with a name that we did not expect. The
    access rules deny everything on such a link."""
    told = Tally(log)

    def linked(event: zenoh.LinkEvent) -> None:
        name, address = event.link.auth_identifier, event.link.dst.partition("/")[2]
        if event.kind != zenoh.SampleKind.PUT or place.identity is None:
            return
        meant = [party for party, at in place.servers.items() if _is_at(at, address)]
        if meant and name not in meant:
            kind = f"expected {meant[0]}, found the certificate of {printable(name)}"
            told.add(address, kind)
        elif name not in place.members:
            told.add(str(name), "is not a member: it is not listened to", address)

    return session.info.declare_link_events_listener(linked, history=True)


def _is_at(expected: str, address: str) -> bool:
    """Whether an expected address, which may have a host name, is this address."""
    host, port = expected.rsplit(":", 1)
    if expected == address or port != address.rsplit(":", 1)[1]:
        return expected == address
    with contextlib.suppress(OSError):
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        return address.rsplit(":", 1)[0].strip("[]") in [str(entry[4][0]) for entry in found]
    return False
