"""A real browser, for tests: Chromium or Chrome without a window."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
QUIET = ["--no-first-run", "--disable-background-networking", "--disable-component-update"]

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium or Chrome")


def browse(address: str, profile: Path, *options: str) -> bytes:
    """Open an address; with "--dump-dom" among the options, returns the page as it is then."""
    assert CHROMIUM
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", *QUIET]
    command += ["--disable-sync", f"--user-data-dir={profile}", *options, address]
    return subprocess.run(command, capture_output=True, timeout=60, check=True).stdout
