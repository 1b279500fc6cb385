"""`colonnade keys`, as those who hand out and receive keys meet it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from colonnade.cli.keys import keys_app
from colonnade.errors import InputError
from colonnade.federation.keys.certificates import describe
from colonnade.federation.keys.identity import Identity

FEDERATION = """
name = "hospitals"
[method]
algorithm = "splitnn"
[rows]
aligned = 50
classes = 2
[[parties]]
name = "clinic"
role = "clients"
endpoint = "clinic.example:7447"
columns = 3
[[parties]]
name = "lab"
role = "server"
[network]
hub = "clinic"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "federation.toml").write_text(FEDERATION)
    return tmp_path


def keys(*arguments: str) -> str:
    result = CliRunner().invoke(keys_app, arguments)
    if isinstance(result.exception, InputError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_make_makes_what_a_federation_needs_and_says_who_gets_what(folder: Path) -> None:
    said = keys("make", "federation.toml", "--days", "30")
    for party, hosts in (("clinic", ("clinic.example",)), ("lab", ("localhost", "127.0.0.1"))):
        Identity.of("keys", party).check(party)
        assert describe(f"keys/{party}.pem").hosts == hosts
        assert f"authority.pem, {party}.pem" in said
    assert "authority.key goes to nobody" in said


def test_make_adds_what_is_missing_and_keeps_the_rest(folder: Path) -> None:
    keys("make", "federation.toml")
    before = {path: path.read_bytes() for path in (folder / "keys").iterdir()}
    assert "Nothing was missing" in keys("make", "federation.toml")
    more = '\n[[parties]]\nname = "ward"\nrole = "clients"\ncolumns = 1\n'
    (folder / "federation.toml").write_text(FEDERATION + more)
    assert "Made in keys: ward." in keys("make", "federation.toml")
    assert all(path.read_bytes() == data for path, data in before.items())


def test_make_refuses_to_keep_a_certificate_for_another_host(folder: Path) -> None:
    keys("make", "federation.toml")
    moved = FEDERATION.replace("clinic.example", "new.example")
    (folder / "federation.toml").write_text(moved)
    with pytest.raises(InputError, match=r"clinic.pem: is for clinic.example.*at new.example"):
        keys("make", "federation.toml")


def test_a_key_need_not_travel(folder: Path) -> None:
    keys("authority", "hospitals", "--out", "office")
    said = keys("request", "clinic", "--host", "clinic.example", "--out", "mine")
    assert "clinic.key: private. It stays here" in said
    said = keys("sign", "mine/clinic.csr", "--party", "clinic", "--out", "office")
    assert "Signed: clinic, at clinic.example, until" in said
    assert not (folder / "office/clinic.key").exists()
    for name in ("clinic.pem", "authority.pem"):
        (folder / "office" / name).rename(folder / "mine" / name)
    Identity.of("mine", "clinic").check("clinic")


def test_a_request_in_another_name_is_refused(folder: Path) -> None:
    keys("authority", "hospitals")
    keys("request", "lab", "--out", "mine")
    with pytest.raises(InputError, match="asks for the name 'lab', not 'clinic'"):
        keys("sign", "mine/lab.csr", "--party", "clinic")


def test_nothing_is_overwritten(folder: Path) -> None:
    keys("authority", "hospitals")
    keys("party", "clinic", "--host", "10.0.0.7")
    for arguments in (["authority", "others"], ["party", "clinic"], ["request", "clinic"]):
        with pytest.raises(InputError, match="exists already and is not overwritten"):
            keys(*arguments)


def test_show_tells_whose_a_certificate_is(folder: Path) -> None:
    keys("make", "federation.toml")
    said = keys("show", "keys")
    for word in ("hospitals (authority)", "clinic.example", "lab", "UTC"):
        assert word in said
    assert describe("keys/lab.pem").fingerprint[:20] in keys("show", "keys/lab.pem")
    (folder / "empty").mkdir()
    with pytest.raises(InputError, match="empty: holds no certificate"):
        keys("show", "empty")
