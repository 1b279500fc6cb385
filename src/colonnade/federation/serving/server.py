"""The HTTP server of `colonnade serve`: uvicorn, which asks the party's own process."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from colonnade.common.text import printable
from colonnade.errors import ColonnadeError
from colonnade.federation.agreement.party_file import PartyFile
from colonnade.federation.asking.predictions import ERROR, fits_together, need_labels
from colonnade.federation.member.place import visiting
from colonnade.federation.member.prediction_requests import Asked, Predicted
from colonnade.federation.member.status import told
from colonnade.federation.serving.api import NotReady, Service, application
from colonnade.federation.serving.batcher import Batcher
from colonnade.federation.serving.settings import LONGEST, Settings, listening_socket
from colonnade.network.transport.zenoh import Line
from colonnade.network.wire import WireError, read_note

OPENING = 1.5  # seconds for connecting to the party; then it counts as not running
STATUS = 2.0  # seconds for the party to tell its status
CONNECTIONS = 1000  # at a time; more are refused with 503
KEEP_ALIVE = 30  # seconds that an idle connection stays open


def serve(
    party: PartyFile, settings: Settings, ready: Callable[[str], None] = lambda address: None
) -> Service:
    """Serve until Ctrl-C or SIGTERM; requests that have begun are answered. `ready` is told the
    address."""
    need_labels(party, "serve")
    settings.check(party)
    with listening_socket(settings) as listening, Questions(party) as questions:
        batcher = Batcher(questions.ask, settings.limits)
        service = Service(party.party, batcher, questions.status, settings)
        host, port = listening.getsockname()[:2]
        scheme, shown = "https" if settings.tls else "http", f"[{host}]" if ":" in host else host
        config = configuration(application(service), party, settings)
        config.load()
        ready(f"{scheme}://{shown}:{port}")
        uvicorn.Server(config).run(sockets=[listening])
    return service


def configuration(app: Any, party: PartyFile, settings: Settings) -> uvicorn.Config:
    more: dict[str, Any] = {}
    if settings.tls and party.identity is not None:
        more = {
            "ssl_certfile": party.identity.certificate,
            "ssl_keyfile": party.identity.key,
            "ssl_ca_certs": str(party.identity.authority),
            "ssl_cert_reqs": ssl.CERT_REQUIRED,
        }
    return uvicorn.Config(
        app,
        http=protocol_for({party.party, *settings.allow}) if settings.tls else H11Protocol,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=int(LONGEST) + 1,
        **more,
    )


def protocol_for(names: set[str]) -> type[asyncio.Protocol]:
    """HTTP for clients whose certificate has one of these names. The authority has signed those of
    all parties; other parties are no more entitled to predictions than they are within the
    federation."""

    class Known(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            certificate = transport.get_extra_info("peercert") or {}
            subject = [pair for part in certificate.get("subject", ()) for pair in part]
            if dict(subject).get("commonName") not in names:
                transport.abort()
                return
            super().connection_made(transport)

        def connection_lost(self, exc: Exception | None) -> None:
            if self.transport is not None:
                super().connection_lost(exc)

    return Known


class Questions:
    """Asks the party's own process, through one session, on threads beside the event loop."""

    def __init__(self, party: PartyFile) -> None:
        self.party, self.line = party, Line(visiting(party), party.party, opening=OPENING)
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="asking")

    def __enter__(self) -> Questions:
        return self

    def __exit__(self, *_: Any) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.line.close()

    async def ask(self, asked: Asked, seconds: float) -> Predicted:
        answer = await self._answer("predict", msgspec.json.encode(asked), seconds)
        if answer is None:
            raise NotReady(f"{self.party.party} does not answer; is it running?")
        try:
            found = read_note(answer, Predicted)
        except WireError as error:
            raise NotReady(f"{self.party.party} answers with no predictions ({error})") from None
        if found.error:
            raise NotReady(printable(found.error, ERROR))
        if not fits_together(found):
            raise NotReady(f"{self.party.party} answers with something that is no predictions")
        return found

    async def status(self) -> dict[str, Any]:
        try:
            answer = await self._answer("status", b"", STATUS)
            return {} if answer is None else told(answer)
        except ColonnadeError:
            return {}

    async def _answer(self, name: str, payload: bytes, seconds: float) -> bytes | None:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self.line.ask, name, payload, seconds)
