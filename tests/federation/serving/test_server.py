"""Who may listen where, tokens in private files, and a real server with mutual TLS."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import uvicorn
from tests.federation.serving.fake_party import FakeParty
from tests.federation.serving.test_api import TOKEN, served

from colonnade.errors import InputError
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.agreement.party_file import PartyFile
from colonnade.federation.keys.certificates import make_authority, make_certificate
from colonnade.federation.keys.identity import Identity
from colonnade.federation.serving.server import configuration
from colonnade.federation.serving.settings import Settings, listening_socket
from colonnade.federation.serving.tokens import new_token, read_token, shows


def party_of(folder: Path) -> PartyFile:
    table = {"dataset": "digits", "rows": 100}
    method = {"algorithm": "splitnn", "epochs": 1}
    federation = parse_federation({"name": "test", "data": table, "method": method}, "test")
    keys = folder / "keys"
    make_authority(keys, "test")
    for name in ("server", "client0", "app"):
        make_certificate(keys, name)
    identity = Identity.of(keys, "server")
    return PartyFile("server.toml", federation, "server", folder / "server", identity)


def test_a_token_is_private_and_new_each_time(tmp_path: Path) -> None:
    path = tmp_path / "server" / "serve.token"
    new_token(path)
    first = read_token(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(first) >= 40
    new_token(path)
    assert read_token(path) != first
    path.chmod(0o644)
    with pytest.raises(InputError, match=r"serve.token: other users .* \(mode 0644\); chmod 600"):
        read_token(path)


@pytest.mark.parametrize("text", ["", "short", "two words of more than 24 letters", "é" * 30])
def test_a_file_that_holds_no_token_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text(text)
    with pytest.raises(InputError, match=r"token: is no token; expected one line of 24"):
        read_token(path)
    with pytest.raises(InputError, match=r"missing: cannot be read .* --new-token"):
        read_token(tmp_path / "missing")


def test_only_the_very_token_is_accepted() -> None:
    assert shows(b"Bearer " + TOKEN, TOKEN)
    assert shows(b"bearer  " + TOKEN, TOKEN)
    for wrong in (b"", b"Bearer", b"Bearer ", TOKEN, b"Basic " + TOKEN, b"Bearer " + TOKEN[:-1]):
        assert not shows(wrong, TOKEN)


def test_other_machines_need_a_token_or_a_certificate(tmp_path: Path) -> None:
    party = party_of(tmp_path)
    everywhere = Settings(host="0.0.0.0")
    with pytest.raises(InputError, match=r"--host 0.0.0.0: other machines .* --new-token, or"):
        everywhere.check(party)
    replace(everywhere, token=TOKEN).check(party)
    replace(everywhere, tls=True).check(party)
    for host in ("127.0.0.1", "localhost", "::1", "127.8.8.8"):
        Settings(host=host).check(party)
    with pytest.raises(InputError, match=r"--tls: server.toml has no certificate"):
        Settings(tls=True).check(replace(party, identity=None))
    with pytest.raises(InputError, match="--allow: names certificates"):
        Settings(allow=("app",)).check(party)


def test_a_port_in_use_is_a_mistake_that_is_named() -> None:
    with listening_socket(Settings(port=0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"--port {port}: cannot listen there"):
            listening_socket(Settings(port=port))


@pytest.fixture
def https(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A server with mutual TLS for the party itself and for `app`; its address, and the keys."""
    party, settings = party_of(tmp_path), Settings(tls=True, port=0, allow=("app",))
    config = configuration(served(FakeParty()), party, settings)
    server, listening = uvicorn.Server(config), listening_socket(settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"https://localhost:{listening.getsockname()[1]}", tmp_path / "keys"
    server.should_exit = True
    thread.join(20)
    assert not thread.is_alive()


def client(keys: Path, name: str | None) -> httpx.Client:
    context = ssl.create_default_context(cafile=str(keys / "authority.pem"))
    if name is not None:
        context.load_cert_chain(keys / f"{name}.pem", keys / f"{name}.key")
    return httpx.Client(verify=context, trust_env=False, timeout=20)


def test_with_tls_only_named_certificates_are_answered(https: tuple[str, Path]) -> None:
    """Another party has a certificate of the same authority, and may not ask."""
    address, keys = https
    for name in ("server", "app"):
        with client(keys, name) as known:
            assert known.post(f"{address}/predict", json={"keys": ["1"]}).status_code == 200
    for name in ("client0", None):
        with client(keys, name) as stranger, pytest.raises(httpx.TransportError):
            stranger.post(f"{address}/predict", json={"keys": ["1"]})


def test_a_hundred_megabytes_are_refused_early() -> None:
    """Over a real connection: the answer comes, and the connection is closed, before most of the
    body is sent."""
    config = uvicorn.Config(served(FakeParty()), ws="none", lifespan="off", log_level="error")
    server, listening = uvicorn.Server(config), listening_socket(Settings(port=0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    length, sent, answer = 100 * 2**20, 0, b""
    try:
        with socket.create_connection(listening.getsockname(), timeout=20) as line:
            head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
            line.sendall(head.encode())
            try:
                while sent < length:
                    sent += line.send(bytes(2**16))
            except OSError:  # closed by the server
                pass
            try:
                answer = line.recv(1000)
            except OSError:
                answer = b""
    finally:
        server.should_exit = True
        thread.join(20)
    assert sent < 32 * 2**20, "the sockets' buffers, not the whole"
    assert not answer or b"413" in answer.splitlines()[0]
