"""A real browser, for tests: Chromium or Chrome without a window."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from colonnade.watch.server import Server

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
QUIET = ["--no-first-run", "--disable-background-networking", "--disable-component-update"]

NODE = re.compile(r'<circle class="node (up|down)" cx="[\d.]+" cy="[\d.]+" r="13"')  # of a graph

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium or Chrome")


def browse(address: str, profile: Path, *options: str) -> bytes:
    """Open an address; with "--dump-dom" among the options, returns the page as it is then."""
    assert CHROMIUM
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", *QUIET]
    command += ["--disable-sync", f"--user-data-dir={profile}", *options, address]
    return subprocess.run(command, capture_output=True, timeout=60, check=True).stdout


@contextmanager
def serving(source: Any) -> Iterator[Server]:
    """The live page of a source that is watched."""
    server = Server(source)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
