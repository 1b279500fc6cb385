"""The command `colonnade`, for tests: in the test's own process, and in a new one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

from colonnade.cli import main

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)  # that the command handles


def colonnade(*args: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """In this process: a new one takes seconds to begin."""
    out, err, code = StringIO(), StringIO(), 0
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    with (
        patch.dict(os.environ, {"COLUMNS": "200", **env}),
        patch.object(sys, "argv", ["colonnade", *args]),
        chdir(folder),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())


def process(*args: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from colonnade.cli import main; main()", *args],
        cwd=folder,
        env=os.environ | {"COLUMNS": "200"} | env,
        capture_output=True,
        text=True,
        timeout=120,
    )
