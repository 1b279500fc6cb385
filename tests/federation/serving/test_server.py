"""Who may listen where, tokens in private files, and a real server with mutual TLS."""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
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
from colonnade.federation.serving.gate import Application
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


@contextmanager
def running(config: uvicorn.Config) -> Iterator[int]:
    """The server of the settings, at a free port of this machine."""
    server, listening = uvicorn.Server(config), listening_socket(Settings(port=0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(20)
    assert not thread.is_alive()


def http(app: Application) -> AbstractContextManager[int]:
    return running(uvicorn.Config(app, ws="none", lifespan="off", log_level="error"))


@pytest.fixture
def https(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A server with mutual TLS for the party itself and for `app`; its address, and the keys."""
    party, settings = party_of(tmp_path), Settings(tls=True, port=0, allow=("app",))
    with running(configuration(served(FakeParty()), party, settings)) as port:
        yield f"https://localhost:{port}", tmp_path / "keys"


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
    length, sent, answer = 100 * 2**20, 0, b""
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
    with (
        http(served(FakeParty())) as port,
        socket.create_connection(("127.0.0.1", port), timeout=20) as line,
        suppress(OSError),  # the server closes the connection
    ):
        line.sendall(head.encode())
        answer = line.recv(1000)
        while sent < length:
            sent += line.send(bytes(2**16))
    assert sent < 32 * 2**20, "the sockets' buffers, not the whole"
    assert b"413" in answer.splitlines()[0]


def curl_lines() -> list[str]:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "predict.md"
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines() if line.startswith("curl")]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_lines_of_the_documentation_are_answered(tmp_path: Path) -> None:
    token = tmp_path / "hospital" / "serve.token"
    new_token(token)
    with http(served(FakeParty(), read_token(token))) as port:
        for line in (lines := curl_lines()):
            done = subprocess.run(
                line.replace("8471", str(port)), shell=True, cwd=tmp_path, capture_output=True
            )
            assert done.returncode == 0, (line, done.stdout)
            assert json.loads(done.stdout)
    assert len(lines) >= 5


def test_a_request_that_has_begun_is_answered_when_the_server_ends() -> None:
    party = FakeParty(takes=0.2)
    answers: list[int] = []

    def ask(port: int) -> None:
        body = {"keys": ["1"], "seconds": 20}
        found = httpx.post(f"http://127.0.0.1:{port}/predict", json=body, timeout=20)
        answers.append(found.status_code)

    with http(served(party)) as port:
        asking = threading.Thread(target=ask, args=(port,))
        asking.start()
        party.heard.wait(20)  # then the server is told to end
    asking.join(20)
    assert answers == [200]
