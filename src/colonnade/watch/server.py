"""The page on this machine: three files and one JSON document, on 127.0.0.1 only.

Other users of the machine can reach that address as well, so all paths begin with a random key,
which is part of the address that the command prints.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any

import msgspec

from colonnade.errors import ColonnadeError, InputError
from colonnade.watch.snapshot import Snapshot, Source

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
FRESH = 0.5  # seconds for which a snapshot is shown again, however many pages ask
FILES = {"": "text/html", "watch.js": "text/javascript", "watch.css": "text/css"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, source: Source, port: int = 0) -> None:
        self.source, self.key = source, secrets.token_urlsafe(12)
        self._newest: tuple[float, bytes] = (0.0, b"")
        self._one_at_a_time = threading.Lock()
        try:
            super().__init__((HOST, port), Handler)
        except (OSError, OverflowError) as error:
            raise InputError(f"--port {port}: cannot be used ({error}); leave it out") from error

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/{self.key}/"

    def state(self) -> bytes:
        """The snapshot as JSON; the one before, if it is fresh."""
        with self._one_at_a_time:
            when, text = self._newest
            if time.monotonic() - when > FRESH or not text:
                text = msgspec.json.encode(self._look())
                self._newest = time.monotonic(), text
            return text

    def _look(self) -> Snapshot:
        try:
            return self.source.snapshot()
        except (ColonnadeError, OSError) as error:  # a file that is damaged, or being replaced
            return Snapshot("", "", f"Cannot be read now: {error}", [], [])


class Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    server_version, sys_version = "colonnade", ""

    def do_GET(self) -> None:
        before, _, name = self.path.removeprefix("/").partition("/")
        if not secrets.compare_digest(before.encode(), self.server.key.encode()):
            self.send_error(404)
        elif name == "state":
            self._answer("application/json", self.server.state())
        elif name in FILES:
            file = resources.files("colonnade.watch") / "page" / (name or "index.html")
            self._answer(f"{FILES[name]}; charset=utf-8", file.read_bytes())
        else:
            self.send_error(404)

    def _answer(self, kind: str, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)
