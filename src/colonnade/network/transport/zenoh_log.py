"""Why a connection failed, in our own log.

Zenoh tells its reasons only by Rust's `tracing`, which its Python binding prints on file descriptor
1, our standard output. `log_reasons` redirects that descriptor: the reasons go to `logging`,
everything else goes to the original standard output, and Python's own `sys.stdout` writes there
directly.

What is logged: a refused or failing TLS handshake at either end (no certificate, unknown authority,
expired, wrong host name, no TLS at all), with the address where this side connects. A message that
the access rules refuse is not logged: Zenoh logs it only together with everything allowed. The
transport itself logs that a stranger is connected.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time

import zenoh

log = logging.getLogger(__name__)

LEVELS = "error,zenoh_link_tls::unicast=warn,zenoh::net::runtime::orchestrator=debug"
AGAIN = 60.0  # seconds until the same reason is told again: a refused party tries twice a second
KINDS = 1000  # of reasons that are remembered as logged

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
RECORD = re.compile(
    r"\d{4}-\d\d-\d\dT\S+Z +(?P<level>[A-Z]+) .*?(?P<module>zenoh[\w:]*): (?P<text>.*)"
)
UNREACHED = re.compile(
    r"Unable to connect to configured peer \w+/(?P<address>\S+?)! (?P<why>.*?)(\. Retry in \w+)?"
)
WHERE = re.compile(r"(Can not create a new \w+ link bound to .*?\)+|Read error on .*? => \S+): ")
SOURCE = re.compile(r" at /\S+\.rs:\d+\.?\]?")  # a line of Zenoh's own source
MISLEADING = " Hint: increase the system open file limit."

_begun = threading.Lock()


def log_reasons() -> None:
    """Redirect Zenoh's reasons to `logging`. To be called before the first session; further calls
    do nothing. The environment variable RUST_LOG has priority over `LEVELS`."""
    if not _begun.acquire(blocking=False):
        return
    sys.stdout.flush()
    before = os.dup(1)
    reading, writing = os.pipe()
    os.dup2(writing, 1)
    os.close(writing)
    if sys.stdout is sys.__stdout__:  # else it does not write to descriptor 1
        encoding, errors = sys.stdout.encoding, sys.stdout.errors
        sys.stdout = open(before, "w", 1, encoding, errors, closefd=False)  # noqa: SIM115
    threading.Thread(target=_sort, args=(reading, before), name="zenoh log", daemon=True).start()
    zenoh.init_log_from_env_or(LEVELS)


def _sort(reading: int, before: int) -> None:
    told: dict[str, float] = {}
    with open(reading, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            record = RECORD.match(COLOUR.sub("", line.rstrip("\n")))
            if record is None:
                os.write(before, line.encode())
            elif reason := reason_in(record):
                _tell(reason, told)


def plain(text: object) -> str:
    """An error text of Zenoh, without references to its source code."""
    return SOURCE.sub("", str(text)).replace(MISLEADING, "").strip(" .")


def _tell(reason: tuple[int, str], told: dict[str, float]) -> None:
    level, text = reason
    now, kind = time.monotonic(), re.sub(r"\d+", "", text)  # some hold the time
    if now - told.get(kind, -AGAIN) >= AGAIN:
        if len(told) >= KINDS:
            told.clear()
        told[kind] = now
        log.log(level, "%s", text)


def reason_in(record: re.Match[str]) -> tuple[int, str] | None:
    """Level and text to log for a record of Zenoh; None: nothing."""
    text = plain(record["text"])
    if record["module"].startswith("zenoh_link_tls"):
        return logging.WARNING, f"refused a connection: {text}"
    if not record["module"].endswith("orchestrator"):
        return getattr(logging, record["level"], logging.WARNING), text
    unreached = UNREACHED.fullmatch(text)
    if unreached is None:
        return None
    address, why = unreached["address"], WHERE.sub("", unreached["why"])
    if "Connection refused" in why:  # the other party is not running, which is no error
        return logging.INFO, f"cannot connect to {address}: nobody listens there"
    return logging.WARNING, f"cannot connect to {address}: {why}"
