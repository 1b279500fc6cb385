"""Requests for predictions, as the label holder's process gets them from `colonnade predict`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from colonnade.errors import ColonnadeError
from colonnade.federation.member.answers import Answer, Question, predictions
from colonnade.federation.member.member import Member
from colonnade.federation.member.messages import AT_ONCE
from colonnade.federation.member.row_budget import some_rows
from colonnade.federation.member.stage import Stage
from colonnade.network.wire import WireError, read_note


class Asked(msgspec.Struct, frozen=True):
    """What `colonnade predict` sends to the label holder."""

    ids: list[str] | None = None  # None: the rows that nobody trained on


class Predicted(msgspec.Struct, frozen=True):
    """What it gets back, row by row."""

    ids: list[str]
    classes: list[str]  # names, by number
    predictions: list[int]
    probabilities: list[float]
    absent: list[list[str]]
    error: str = ""
    mistake: bool = False  # of whoever asks: other ids may be answered
    numbers: list[float] = []  # where the label is a number; then there are no classes
    reasons: dict[str, str] = {}  # why somebody was absent, by name


class Predictor:
    """One request for predictions, in as many questions as it takes."""

    def __init__(self, member: Member, reply: Callable[[bytes], None]) -> None:
        self.member, self.reply = member, reply
        self.ids: list[str] = []
        self.answers: list[Answer] = []

    def begin(self, data: bytes) -> None:
        member = self.member
        try:
            asked = read_note(data or b"{}", Asked)
        except WireError as error:
            self.fail(str(error))
            return
        state, holders = member.state, member.federation.label_holders
        if state.stage != Stage.ANSWERING:
            self.fail(f"{member.party} is not ready: {state.stage}, round {state.round}")
            return
        if member.party not in holders:
            self.fail(f"{member.party} does not predict; ask one of {', '.join(holders)}")
            return
        if member.version is None:
            self.fail(f"{member.party} has no part of the model; ask another device")
            return
        self.ids = new_rows(member) if asked.ids is None else member.own.called(asked.ids)
        names = self.ids if asked.ids is None else asked.ids
        places, known = member.own.places, dict(zip(names, self.ids, strict=True))
        unknown = [name for name, one in known.items() if one not in places]
        if unknown:
            rows = some_rows(unknown, len(known))
            why = f"{member.party} lacks {rows}; ask for ids in its data"
            if member.own.keys is not None:
                why = f"not every party has {rows}; ask for rows that were matched"
            self.fail(f"--ids: {why}", True)
            return
        self.next()

    def next(self) -> None:
        start = len(self.answers) * AT_ONCE
        chosen = self.ids[start : start + AT_ONCE]
        if not chosen:
            self.finish()
            return
        self.member.questions.append(Question(chosen, self.take))
        self.member.wake.notify()

    def take(self, answer: Answer) -> None:
        self.answers.append(answer)
        self.next()

    def finish(self) -> None:
        absent: list[list[str]] = []
        reasons: dict[str, str] = {}
        for answer in self.answers:
            if answer.reason:
                self.fail(answer.reason)
                return
            reasons |= answer.absent
            absent += [list(answer.absent)] * answer.rows
        told = self.classes() if self.member.algorithm.task.classes else self.numbers()
        names = self.member.own.names(self.ids)
        self.answer(Predicted(names, absent=absent, reasons=reasons, **told))

    def classes(self) -> dict[str, Any]:
        """The class of each row, and its probability."""
        chosen: list[int] = []
        likely: list[float] = []
        for answer in self.answers:
            classes, probabilities = predictions(answer)
            chosen += classes
            likely += [round(float(p.max()), 6) for p in probabilities]
        count = self.member.algorithm.task.classes
        names = list(self.member.own.classes) or [str(i) for i in range(count)]
        return {"classes": names, "predictions": chosen, "probabilities": likely}

    def numbers(self) -> dict[str, Any]:
        """The number of each row, in the unit of the label."""
        known = [answer.logits for answer in self.answers if answer.rows]
        numbers = [float(n) for one in known for n in self.member.algorithm.unscaled(one)[:, 0]]
        return {"classes": [], "predictions": [], "probabilities": [], "numbers": numbers}

    def fail(self, reason: str, mistake: bool = False) -> None:
        self.answer(Predicted([], [], [], [], [], reason, mistake))

    def answer(self, found: Predicted) -> None:
        try:
            self.reply(msgspec.json.encode(found))
        except ColonnadeError as error:
            if not found.error:  # too large; ask for fewer rows
                self.fail(str(error))


def new_rows(member: Member) -> list[str]:
    """Rows of the label holder's file that nobody trained on: those after the aligned ones; without
    such, the test rows."""
    rows, own = member.federation.rows, member.own
    if rows is None:
        return list(own.ids)
    later = own.ids[rows.size :]
    test = rows.split(member.federation.seed).test
    return list(later) or [own.ids[i] for i in test]
