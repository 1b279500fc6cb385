"""Predictions of a running federation: asked for, checked, and written as CSV."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from typing import TextIO

import msgspec

from colonnade.common.text import printable
from colonnade.errors import ColonnadeError, InputError
from colonnade.federation.agreement.party_file import PartyFile
from colonnade.federation.asking.parties import answers
from colonnade.federation.member.place import visiting
from colonnade.federation.member.prediction_requests import Asked, Predicted
from colonnade.network.transport.zenoh import ask
from colonnade.network.wire import read_note

ANSWER = 60.0  # seconds for one request
ERROR = 1000  # characters of an error that was answered


def predict(party: PartyFile, ids: Sequence[str] | None) -> Predicted:
    """Predictions of those who are there."""
    need_labels(party, "predict")
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
        raise (InputError if found.mistake else ColonnadeError)(printable(found.error, ERROR))
    told = (found.predictions, found.probabilities) if found.classes else (found.numbers,)
    rows = {len(column) for column in (found.ids, *told)}
    numbers = range(len(found.classes))
    if rows != {len(found.absent)} or any(number not in numbers for number in found.predictions):
        raise ColonnadeError(f"{party} answers with something that is no list of predictions")
    return found


def need_labels(party: PartyFile, command: str) -> None:
    federation = party.federation
    holders = federation.label_holders
    if federation.leader is not None and party.party not in holders:
        who = f"the label holder, {holders[0]!r}: only it learns"
        if len(holders) > 1:
            who = f"those who hold labels, {', '.join(holders)}: only they learn"
        raise InputError(f"{party.source}: {command} is for {who} the predictions")


def write_csv(found: Predicted, file: TextIO) -> None:
    shown: Callable[[str], str] = printable if file.isatty() else str
    writer = csv.writer(file)
    told = ["prediction", "probability"] if found.classes else ["prediction"]
    writer.writerow(["id", *told, "absent"])
    for one, words, absent in zip(found.ids, _told(found), found.absent, strict=True):
        writer.writerow([shown(word) for word in (one, *words, " ".join(absent))])


def _told(found: Predicted) -> list[tuple[str, ...]]:
    """Row by row: the class and its probability, or the number."""
    if not found.classes:
        return [(f"{number:.7g}",) for number in found.numbers]
    pairs = zip(found.predictions, found.probabilities, strict=True)
    return [(found.classes[number], f"{probability:.4f}") for number, probability in pairs]
