"""Whom to ask: a file's party, or one in the folder of `colonnade up`, started again if need be."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from colonnade.errors import ColonnadeError, InputError
from colonnade.federation.agreement.federation_file import read_federation
from colonnade.federation.agreement.party_file import PartyFile, read_party
from colonnade.federation.member.local_files import FEDERATION
from colonnade.federation.member.local_processes import Local, Main, running
from colonnade.federation.member.place import visiting
from colonnade.federation.member.stage import Stage
from colonnade.network.transport.zenoh import ask

READY = 60.0  # seconds for saved parties to be there again


def find_party(path: Path) -> PartyFile:
    """A party file; or, in the folder of `colonnade up`, the label holder's, or that of somebody
    who answers."""
    if not path.is_dir():
        return read_party(path)
    if not (path / FEDERATION).is_file():
        raise InputError(f"{path}: no {FEDERATION} there; give a party file or an `up` folder")
    federation = read_federation(path / FEDERATION)
    parties = [read_party(path / f"{name}.toml") for name in federation.label_holders]
    with ThreadPoolExecutor(len(parties)) as pool:
        ready = [p for p, there in zip(parties, pool.map(answers, parties), strict=True) if there]
    return [*ready, parties[0]][0]


def answers(party: PartyFile, timeout: float = 2.0) -> bool:
    return ask(visiting(party), party.party, "status", timeout=timeout) is not None


@contextmanager
def awake(path: Path, party: PartyFile, main: Main) -> Iterator[None]:
    """The parties of an `up` folder, started again from what they saved, unless they run. `main`:
    the command line, which their processes run."""
    if not path.is_dir() or answers(party):
        yield
        return
    local = Local(party.federation, path, main, serve=True)
    with running(local):
        deadline = time.monotonic() + READY
        while local.stage() != Stage.ANSWERING:
            local.check()
            if time.monotonic() > deadline:
                raise ColonnadeError(f"{path}: the saved parties are not ready after {READY:.0f} s")
            time.sleep(0.2)
        yield
