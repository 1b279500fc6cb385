"""How the parties of a federation are, as they tell or as their folders show."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from colonnade.common.user_code import Source, shown
from colonnade.errors import InputError
from colonnade.federation.agreement.party_file import PartyFile
from colonnade.federation.member.place import visiting
from colonnade.federation.member.status import read_status, told
from colonnade.network.transport.zenoh import ask
from colonnade.network.wire import WireError


def statuses(party: PartyFile, timeout: float = 3.0) -> dict[str, dict[str, Any]]:
    """What every party tells of itself; nothing of those who do not answer, and only `invalid`, the
    reason, of those whose answer is no status."""
    place = visiting(party)

    def one(name: str) -> dict[str, Any]:
        try:
            answer = ask(place, name, "status", timeout=timeout)
        except InputError:  # no address of it
            return {}
        try:
            return {} if answer is None else told(answer)
        except WireError as error:
            return {"invalid": str(error)}

    members = party.federation.members
    with ThreadPoolExecutor(len(members)) as pool:
        return dict(zip(members, pool.map(one, members), strict=True))


def code_in(told: Mapping[str, Any]) -> str:
    """The code of its own that a party tells of in its status, as one line."""
    try:
        code = msgspec.convert(told.get("code", {}), dict[str, Source])
    except msgspec.ValidationError:
        return "not readable"
    return ", ".join(shown(key, source) for key, source in code.items())


def ends(path: Path, party: PartyFile) -> dict[str, dict[str, Any]]:
    """How processes ended whose folders are here: the party's own, or those of `up`."""
    folders = {party.party: party.folder}
    if path.is_dir():
        folders = {name: path / name for name in party.federation.members}
    found = {name: read_status(folder) for name, folder in folders.items()}
    return {name: told for name, told in found.items() if "ended" in told}
