"""A protocol that a process of its own runs: its connections are carried by our messages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.federation.member.test_aligning import FILES, Room, federation

from colonnade.errors import ColonnadeError, InputError
from colonnade.federation.member.aligning import carrying
from colonnade.federation.member.aligning.carrying import Carrier, Failed
from colonnade.federation.member.aligning.messages import CHUNK, Carried, Carry
from colonnade.privacy.alignment import protocols
from colonnade.privacy.alignment.protocols import SPU_PYTHON, Kind, protocol

# Stands for a package with connections of its own: each side has a server and is a client, as those
# of spu are. The side that does not find sends its keys, with a good deal of padding.
WORKER = """
import socket, sys, time
folder, me, finds = sys.argv[1:]
server = socket.socket(socket.AF_UNIX)
server.bind(f"{folder}/here")
server.listen()
client = socket.socket(socket.AF_UNIX)
while True:
    try:
        client.connect(f"{folder}/there")
        break
    except OSError:
        time.sleep(0.01)
keys = open(f"{folder}/keys.csv").read().split()[1:]
if me != finds:
    FAULT
    client.sendall("\\n".join(keys + ["x" * PADDING]).encode())
    client.shutdown(socket.SHUT_WR)
    assert client.recv(9) == b"thanks"
else:
    end, _ = server.accept()
    told = b""
    while data := end.recv(1 << 16):
        told += data
    end.sendall(b"thanks")
    found = set(keys) & set(told.decode().split())
    open(f"{folder}/found.csv", "w").write("\\n".join(["key", *found]))
"""


def worker(folder: Path, fault: str = "", padding: int = 40 * CHUNK) -> Kind:
    path = folder / "worker.py"
    path.write_text(WORKER.replace("FAULT", fault).replace("PADDING", str(padding)))
    return Kind(worker=(sys.executable, "-S", "-E", str(path)))


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(**how: Any) -> Room:
        kind = worker(tmp_path, **how)
        monkeypatch.setitem(protocols._kinds, "spu", lambda: kind)
        return Room(federation("spu"), FILES)

    return made


def test_processes_that_only_know_sockets_match_rows_through_our_messages(room: Any) -> None:
    """More than a window of messages, in both directions, with two parties at a time."""
    matched = room()
    matched.run()
    assert set(matched.rows("hospital")) == {"anna", "carl", "emil"}
    assert matched.rows("hospital") == matched.rows("clinic") == matched.rows("lab")
    carried = [data for _, _, data in matched.sent if b"Carry" in data]
    assert len(carried) > 4 * 40
    assert not any(key.encode() in data for data in carried for key in FILES["lab"])


def test_a_process_that_fails_ends_the_run_with_a_sentence(room: Any) -> None:
    with pytest.raises(ColonnadeError, match=r"spu: the process of the protocol ended with 3"):
        room(fault="sys.exit(3)").run()


def test_a_process_that_says_nothing_is_given_up(
    room: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "SILENCE", 0.2)
    with pytest.raises(ColonnadeError, match=r"spu: nothing came for"):
        room(fault="time.sleep(60)").run()


def test_more_than_the_keys_can_take_is_refused(room: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying, "BESIDE", CHUNK)
    with pytest.raises(ColonnadeError, match=r"spu: messages that are no part of the protocol"):
        room().run()


@pytest.mark.parametrize(
    "message",
    [
        Carry(bytes(16), "find", 1, 2),  # the first one has not come
        Carry(bytes(16), "find", 0, 1),  # a connection that this side would make
    ],
)
def test_carried_messages_out_of_order_are_refused(message: Carry) -> None:
    sent: list[Carry | Carried] = []
    carrier = Carrier(bytes(16), "find", (), sent.append, asks=True, most=10)
    with pytest.raises(Failed, match="no part of the protocol"):
        carrier.take(message)
    assert not sent


def test_without_spu_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for python in (sys.executable + " no", "/bin/false"):
        monkeypatch.setenv(SPU_PYTHON, python)
        with pytest.raises(InputError, match=r'has no package spu. pip install "spu==0.9.5"'):
            protocol("spu")
