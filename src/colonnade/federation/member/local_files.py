"""The files of a federation whose parties all run on this machine: endpoints, keys, party files."""

from __future__ import annotations

import logging
import shutil
import socket
from contextlib import suppress
from pathlib import Path

import tomli_w

from colonnade.common.party_names import AUTHORITY
from colonnade.common.private_files import private
from colonnade.common.results import FEDERATION
from colonnade.common.toml import Table, read_toml
from colonnade.common.user_code import FACTORIES, code_folder
from colonnade.errors import InputError
from colonnade.federation.agreement.alignment_file import ALIGNMENT
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.keys.certificates import make_authority, make_certificate
from colonnade.federation.keys.identity import Identity
from colonnade.federation.member.folder import clear

KEYS = "keys"
log = logging.getLogger(__name__)


def prepare(federation: Federation, source: Path, folder: Path) -> None:
    """Endpoints, keys and party files of a federation on this machine."""
    if (folder / FEDERATION).exists():
        known = read_toml(folder / FEDERATION)
        if _without_endpoints(known) != _without_endpoints(federation.table()):
            raise InputError(
                f"{folder}: holds another federation; choose another folder with --out, or start "
                "over there with --fresh"
            )
    elif folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder}: is not empty and holds no federation; choose another --out")
    with private(folder):
        _write_files(federation, source, folder)


def clear_all(folder: Path, members: tuple[str, ...]) -> None:
    """Remove what an earlier `up` left in its folder: the state of every party, files and keys."""
    if not (folder / FEDERATION).exists():
        return
    before = [str(party["name"]) for party in read_toml(folder / FEDERATION).get("parties", [])]
    for party in dict.fromkeys([*members, *before]):
        clear(folder / party)
        (folder / party / ALIGNMENT).unlink(missing_ok=True)
        with suppress(OSError):  # not there, or not empty
            (folder / party).rmdir()
        (folder / f"{party}.toml").unlink(missing_ok=True)
    shutil.rmtree(folder / KEYS, ignore_errors=True)
    (folder / FEDERATION).unlink()


def _write_files(federation: Federation, source: Path, folder: Path) -> None:
    members = federation.members
    local = federation.with_endpoints(dict(zip(members, free_addresses(len(members)), strict=True)))
    (folder / FEDERATION).write_text(local.toml(), encoding="utf-8")
    if federation.network.transport == "tls":
        _make_keys(local, folder / KEYS)
    for party in members:
        (folder / f"{party}.toml").write_text(
            tomli_w.dumps(party_table(federation, party, source)), encoding="utf-8"
        )


def _make_keys(federation: Federation, keys: Path) -> None:
    if not Identity.of(keys, AUTHORITY).certificate.exists():
        make_authority(keys, federation.name)
    for party in federation.members:
        if not Identity.of(keys, party).certificate.exists():
            make_certificate(keys, party)


def party_table(federation: Federation, party: str, source: Path) -> Table:
    """The party file for this machine; its data and its own models are those of the party file
    beside the federation file."""
    table: Table = {"federation": FEDERATION, "party": party, "folder": party}
    if federation.network.transport == "tls":
        table["keys"] = KEYS
    holds = {*federation.clients, *federation.label_holders}
    beside = source.parent / f"{party}.toml"
    given = read_toml(beside) if beside.exists() else {}
    if given.get("party") == party:
        table |= _models(given, beside)
    elif unused := [key for key in FACTORIES if key in given]:
        why = f'is "{given["party"]}"' if "party" in given else "is missing"
        names = ", ".join(unused)
        log.warning('%s: %s not used: party %s, expected "%s"', beside, names, why, party)
    if federation.rows is None or party not in holds:
        return table
    if not beside.exists():
        raise InputError(
            f"{beside}: missing; {party} has data, so its party file is needed beside {source}"
        )
    data = dict(given.get("data", {}))
    if "path" in data:
        data["path"] = str((beside.parent / Path(data["path"]).expanduser()).resolve())
    return {**table, "data": data}


def _models(given: Table, beside: Path) -> Table:
    """The models of its own that a party file names, and where their modules are."""
    models = {key: given[key] for key in FACTORIES if key in given}
    if not models:
        return {}
    code = code_folder(given.get("code"), beside.parent) or beside.parent
    return {**models, "code": str(code.resolve())}


def _without_endpoints(table: Table) -> Table:
    parties = [{k: v for k, v in p.items() if k != "endpoint"} for p in table.get("parties", [])]
    return {**table, "parties": parties}


def free_addresses(count: int) -> list[str]:
    """Addresses of the loopback interface whose ports are free at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    finally:
        for one in sockets:
            one.close()
