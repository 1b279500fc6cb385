"""Asking a running federation: `colonnade status` and `colonnade predict`."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import msgspec

from colonnade.common.text import printable
from colonnade.common.user_code import Source, shown
from colonnade.errors import ColonnadeError, InputError
from colonnade.federation.files import read_federation
from colonnade.federation.local import FEDERATION, Local, Main, running
from colonnade.federation.party import PartyFile, read_party
from colonnade.federation.predicting import Asked, Predicted
from colonnade.federation.process import visiting
from colonnade.federation.status import read_status, told
from colonnade.network.transport.zenoh import ask
from colonnade.network.wire import WireError, read_note

READY = 60.0  # seconds for saved parties to be there again
ANSWER = 60.0  # seconds for one request
ERROR = 1000  # characters of an error that was answered


def find_party(path: Path) -> PartyFile:
    """A party file; or, in the folder of `colonnade up`, the label holder's, or that of somebody
    who answers."""
    if not path.is_dir():
        return read_party(path)
    if not (path / FEDERATION).is_file():
        raise InputError(f"{path}: no {FEDERATION} there; give a party file or an `up` folder")
    federation = read_federation(path / FEDERATION)
    able = [federation.leader] if federation.leader else federation.label_holders
    parties = [read_party(path / f"{name}.toml") for name in able]
    with ThreadPoolExecutor(len(parties)) as pool:
        ready = [p for p, there in zip(parties, pool.map(answers, parties), strict=True) if there]
    return [*ready, parties[0]][0]


def answers(party: PartyFile, timeout: float = 2.0) -> bool:
    return ask(visiting(party), party.party, "status", timeout=timeout) is not None


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


def predict(party: PartyFile, ids: Sequence[str] | None) -> Predicted:
    """Predictions of those who are there."""
    need_leader(party, "predict")
    request = msgspec.json.encode(Asked(None if ids is None else list(ids)))
    place, answer = visiting(party), None
    if answers(party):  # who is not there would be waited for as long as an answer may take
        answer = ask(place, party.party, "predict", request, timeout=ANSWER)
    if answer is None:
        raise ColonnadeError(
            f"{party.party} does not answer; it must be running: colonnade join {party.source}"
        )
    return read_answer(answer, party.party)


def read_answer(answer: bytes, party: str) -> Predicted:
    """What was answered, if that is predictions."""
    found = read_note(answer, Predicted)
    if found.error:
        raise ColonnadeError(printable(found.error, ERROR))
    rows = {len(column) for column in (found.ids, found.predictions, found.probabilities)}
    numbers = range(len(found.classes))
    if rows != {len(found.absent)} or any(number not in numbers for number in found.predictions):
        raise ColonnadeError(f"{party} answers with something that is no list of predictions")
    return found


def need_leader(party: PartyFile, command: str) -> None:
    leader = party.federation.leader
    if leader is not None and party.party != leader:
        raise InputError(
            f"{party.source}: {command} is for the label holder, {leader!r}: only it learns the "
            "predictions"
        )


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
        while local.stage() != "answering questions":
            local.check()
            if time.monotonic() > deadline:
                raise ColonnadeError(f"{path}: the saved parties are not ready after {READY:.0f} s")
            time.sleep(0.2)
        yield


def write_csv(found: Predicted, file: TextIO) -> None:
    shown: Callable[[str], str] = printable if file.isatty() else str
    writer = csv.writer(file)
    writer.writerow(["id", "prediction", "probability", "absent"])
    rows = zip(found.ids, found.predictions, found.probabilities, found.absent, strict=True)
    for one, number, probability, absent in rows:
        words = (one, found.classes[number], f"{probability:.4f}", " ".join(absent))
        writer.writerow([shown(word) for word in words])
