"""The address of a Ray cluster, checked before Ray is imported: Ray itself tries an address that
does not answer for more than a minute."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from colonnade.errors import InputError

PATIENCE = 10.0  # seconds to find the host, to connect and to answer
EXPECTED = "expected HOST:PORT of the cluster's head, such as 10.0.0.1:6379, or auto"
# What a client of HTTP/2 says first, with an empty SETTINGS frame. A server answers with its own.
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
SETTINGS = 4  # the kind of a frame is its fourth byte


def check_address(given: str | None) -> str:
    """The address to join: the given one, RAY_ADDRESS, or `auto`, the cluster of this machine.
    InputError: nothing that may be the head of a Ray cluster answers there."""
    address = given or os.environ.get("RAY_ADDRESS") or "auto"
    if address == "auto":
        _check_noted()
        return address
    if address.startswith("ray://"):
        raise InputError(
            f"address {address}: Ray Client is not supported. Run the command on a machine of the "
            f"cluster, and give its head: {EXPECTED}"
        )
    found = _parts(address)
    if found is None:
        raise InputError(f"address {address}: {EXPECTED}")
    if reason := _silent(*found):
        raise InputError(
            f"address {address}: no Ray cluster answers there ({reason}). Is its head running "
            "(`ray start --head`), and may this machine reach it?"
        )
    return address


def _check_noted() -> None:
    """The head that `ray start` has noted on this machine, as Ray looks for it. Nothing noted, or
    no address: Ray itself tells at once."""
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        return  # this process is a member already, maybe of another cluster
    temporary = os.environ.get("RAY_TMPDIR")
    if temporary is None and sys.platform.startswith("linux"):
        temporary = os.environ.get("TMPDIR")
    file = Path(temporary or "/tmp") / "ray" / "ray_current_cluster"
    try:
        noted = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return
    found = _parts(noted)
    if found is not None and (reason := _silent(*found)):
        raise InputError(
            f"address auto: {file} names the head {noted}, but no Ray cluster answers there "
            f"({reason}): start one (`ray start --head`), or give its address"
        )


def _parts(address: str) -> tuple[str, int] | None:
    """Host and port."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        return None
    return host.strip("[]"), int(port)


def _silent(host: str, port: int) -> str:
    """Why nothing that may be the head of a Ray cluster answers there; empty if something does."""
    try:
        _in_time(partial(_greet, host, port))
    except OSError as error:
        return error.strerror or str(error) or type(error).__name__
    return ""


def _in_time(work: Callable[[], None]) -> None:
    """Does the work within `PATIENCE`, or raises TimeoutError. A host has several addresses, each
    of which is tried in turn, and a name server that is silent has no limit of its own: neither is
    bounded by the limit of a socket."""
    failed: list[OSError] = []

    def attempt() -> None:
        try:
            work()
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if thread.is_alive():
        raise TimeoutError("timed out")
    if failed:
        raise failed[0]


def _greet(host: str, port: int) -> None:
    """Ray's head speaks gRPC, which is HTTP/2. With TLS it expects a handshake, which is left to
    Ray."""
    with socket.create_connection((host, port), PATIENCE) as line:
        if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
            return
        line.sendall(GREETING)
        if line.recv(9)[3:4] != bytes([SETTINGS]):
            raise OSError("something else listens there")
