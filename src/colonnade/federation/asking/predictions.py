"""Predictions of a running federation: asked for, and checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from colonnade.common.text import first_of, printable
from colonnade.errors import ColonnadeError, InputError
from colonnade.federation.agreement.party_file import PartyFile
from colonnade.federation.member.place import visiting
from colonnade.federation.member.prediction_requests import Asked, Predicted
from colonnade.network.transport.zenoh import Line
from colonnade.network.wire import read_note

ANSWER = 60.0  # seconds for one request
ERROR = 1000  # characters of an error that was answered
THERE = 2.0  # seconds for the party to say that it is there


class Asker:
    """Asks the process of one party, through one session."""

    def __init__(self, party: PartyFile) -> None:
        need_labels(party, "predict")
        self.party, self.line = party, Line(visiting(party), party.party)

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: Any) -> None:
        self.line.close()

    def ask(self, asked: Asked) -> Predicted:
        """Predictions of those who are there."""
        answer, name = None, self.party.party
        # Who is not there would be waited for as long as an answer may take.
        if self.line.ask("status", timeout=THERE) is not None:
            answer = self.line.ask("predict", msgspec.json.encode(asked), ANSWER)
        if answer is None:
            raise ColonnadeError(
                f"{name} does not answer; it must be running: colonnade join {self.party.source}"
            )
        return read_answer(answer, name)


def predict(party: PartyFile, ids: Sequence[str] | None) -> Predicted:
    """Predictions of those who are there, in one request."""
    with Asker(party) as asker:
        found = asker.ask(Asked(None if ids is None else list(ids)))
    check_known(found, party.party, matched=party.matches)
    return found


def check_known(found: Predicted, party: str, *, matched: bool = False) -> None:
    """Ids that the party does not have are left out of an answer; an answer to none is a mistake
    of whoever asked. `matched`: rows were, and only those can be asked for."""
    if not found.unknown or found.ids or found.failed:
        return
    rows = f"the {len(found.unknown):,} rows that were asked for"
    some = printable(first_of(found.unknown), ERROR)
    if matched:
        raise InputError(f"none of {rows} ({some}) is among the matched rows; ask for one that is")
    raise InputError(f"{party} has none of {rows} ({some}); ask for ids in its data")


def read_answer(answer: bytes, party: str) -> Predicted:
    """What was answered, if that is predictions."""
    found = read_note(answer, Predicted)
    if found.error:
        raise ColonnadeError(printable(found.error, ERROR))
    if not fits_together(found):
        raise ColonnadeError(f"{party} answers with something that is no list of predictions")
    return found


def fits_together(found: Predicted) -> bool:
    """Whether every row has what it must have. A list of ids only fits, too."""
    told = (found.predictions, found.probabilities) if found.classes else (found.numbers,)
    columns = [column for column in (*told, found.absent) if column]
    rows, count = len(found.ids), len(found.classes)
    whole = all(len(column) == rows for column in columns) and len(found.truths) in (0, rows)
    complete = not columns or len(columns) == len(told) + 1
    good = all(number in range(count) for number in found.predictions)
    return whole and complete and good and all(len(row) == count for row in found.probabilities)


def need_labels(party: PartyFile, command: str) -> None:
    federation = party.federation
    holders = federation.label_holders
    if federation.leader is not None and party.party not in holders:
        who = f"the label holder, {holders[0]!r}: only it learns"
        if len(holders) > 1:
            who = f"those who hold labels, {', '.join(holders)}: only they learn"
        raise InputError(f"{party.source}: {command} is for {who} the predictions")
