"""Requests for predictions, as the process of a label holder gets them from `colonnade predict` and
`colonnade serve`.

A party that lacks some of the rows, or whose privacy budget of some rows is used up, tells which.
These rows are then asked about without that party, and the others with it. Where an answer may be
given only once (noise is added; or the label holder learns sums only, and two sums would show what
one party told), all parties are asked first which rows they would refuse.

Whoever asks names rows as the party's own file does. Where rows were matched, other parties are
asked by their numbers, so that no key leaves the party.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from torch import Tensor

from colonnade.errors import ColonnadeError
from colonnade.federation.member.answers import Answer, Question, probabilities
from colonnade.federation.member.member import Member
from colonnade.federation.member.messages import AT_ONCE, Seconds
from colonnade.federation.member.stage import Stage
from colonnade.federation.member.truths import Truth
from colonnade.network.clock import SECOND
from colonnade.network.wire import WireError, read_note


class Asked(msgspec.Struct, frozen=True):
    """A request."""

    ids: list[str] | None = None  # None: the rows that nobody trained on
    seconds: Seconds | None = None  # in which the answer is needed; None: as long as it takes
    listing: bool = False  # tell the ids only
    truths: bool = False  # tell the labels, too, where they are known


class Predicted(msgspec.Struct, frozen=True):
    """The answer, row by row. A row is in `ids`, in `unknown`, or in `failed`."""

    ids: list[str]
    classes: list[str] = []  # names, by number
    predictions: list[int] = []
    probabilities: list[list[float]] = []  # of every class
    absent: list[dict[str, str]] = []  # who had no part in it, and why
    numbers: list[float] = []  # where the label is a number; then there are no classes
    truths: list[Truth | None] = []
    unknown: list[str] = []  # ids that the party which is asked does not have
    failed: dict[str, str] = {}  # ids without an answer, and why
    model: str = ""  # its version
    stage: str = ""  # of the party, where it cannot answer yet
    error: str = ""


class Predictor:
    """One request for predictions, in as many questions as it takes."""

    def __init__(self, member: Member, reply: Callable[[bytes], None]) -> None:
        self.member, self.reply = member, reply
        self.asked, self.begun = Asked(), member.clock.now
        self.names: list[str] = []  # of the rows, as the person who asks calls them
        self.called: dict[str, str] = {}  # by name: the id of the row, which other parties know
        self.work: deque[tuple[list[str], bool]] = deque()  # rows, and whether they are settled
        self.found: dict[str, tuple[Tensor, dict[str, str]]] = {}  # by id: outputs, who was absent
        self.failed: dict[str, str] = {}

    def begin(self, data: bytes) -> None:
        member = self.member
        try:
            self.asked = read_note(data or b"{}", Asked)
        except WireError as error:
            self.answer(Predicted([], error=str(error)))
            return
        if trouble := self.trouble():
            self.answer(Predicted([], error=trouble, stage=member.state.stage))
            return
        own, asked = member.own, self.asked.ids
        self.names = own.names(new_rows(member)) if asked is None else asked
        if self.asked.listing:
            self.answer(Predicted(self.names))
            return
        self.called = dict(zip(self.names, own.called(self.names), strict=True))
        known = [one for one in dict.fromkeys(self.called.values()) if one in own.places]
        for start in range(0, len(known), AT_ONCE):
            self.work.append((known[start : start + AT_ONCE], False))
        self.next()

    def trouble(self) -> str:
        """Why this party cannot answer; "" if it can."""
        member = self.member
        state, holders = member.state, member.federation.label_holders
        if state.stage != Stage.ANSWERING:
            return f"{member.party} is not ready: {state.stage}, round {state.round}"
        if member.party not in holders:
            return f"{member.party} does not predict; ask one of {', '.join(holders)}"
        if member.version is None:
            return f"{member.party} has no part of the model; ask another device"
        return ""

    def next(self) -> None:
        if not self.work:
            self.finish()
            return
        rows, settled = self.work.popleft()
        algorithm = self.member.algorithm
        once = algorithm.releases is not None or algorithm.sums_only
        check, seconds = once and not settled, self.asked.seconds
        if seconds is not None:
            seconds = max(0.0, seconds - (self.member.clock.now - self.begun) / SECOND)

        def take(answer: Answer) -> None:
            groups = by_refusal(rows, answer.refused)
            if check or (len(groups) > 1 and not settled):
                self.work.extendleft((group, True) for group in reversed(groups))
            else:
                self.keep(rows, answer)
            self.next()

        self.member.questions.append(Question(rows, take, check=check, seconds=seconds))
        self.member.wake.notify()

    def keep(self, rows: Sequence[str], answer: Answer) -> None:
        if answer.reason or not answer.rows:
            self.failed |= dict.fromkeys(rows, answer.reason or "no answer")
            return
        for one, outputs in zip(rows, self.member.algorithm.unscaled(answer.logits), strict=True):
            self.found[one] = outputs, answer.absent

    def finish(self) -> None:
        if self.failed and not self.found:
            self.answer(Predicted([], error=next(iter(self.failed.values()))))
            return
        called, places = self.called, self.member.own.places
        names = [name for name in self.names if called[name] in self.found]
        told = [self.found[called[name]] for name in names]
        outputs, known = [one for one, _ in told], self.member.truths if self.asked.truths else {}
        failed = {name: self.failed[one] for name, one in called.items() if one in self.failed}
        self.answer(
            Predicted(
                names,
                absent=[absent for _, absent in told],
                truths=[known.get(called[name]) for name in names] if known else [],
                unknown=[name for name, one in called.items() if one not in places],
                failed=failed,
                model=model_text(self.member),
                **(
                    self.classes(outputs)
                    if self.member.algorithm.task.classes
                    else numbers(outputs)
                ),
            )
        )

    def classes(self, outputs: Sequence[Tensor]) -> dict[str, Any]:
        """The class of each row, and the probability of every class."""
        count = self.member.algorithm.task.classes
        names = list(self.member.own.classes) or [str(i) for i in range(count)]
        likely = probabilities(outputs)
        chosen = [max(range(count), key=row.__getitem__) for row in likely]
        return {"classes": names, "predictions": chosen, "probabilities": likely}

    def answer(self, found: Predicted) -> None:
        try:
            self.reply(msgspec.json.encode(found))
        except ColonnadeError as error:
            if not found.error:  # too large; ask for fewer rows
                self.answer(Predicted([], error=str(error)))


def numbers(outputs: Sequence[Tensor]) -> dict[str, Any]:
    """The number of each row, in the unit of the label."""
    return {"numbers": [float(row[0]) for row in outputs]}


def by_refusal(rows: Sequence[str], refused: Mapping[str, frozenset[int]]) -> list[list[str]]:
    """The rows in groups: those of a group are refused by the same parties."""
    groups: dict[frozenset[str], list[str]] = {}
    for place, one in enumerate(rows):
        who = frozenset(party for party, places in refused.items() if place in places)
        groups.setdefault(who, []).append(one)
    return list(groups.values())


def model_text(member: Member) -> str:
    """The version of the model that answers, for a person and to be compared."""
    assert member.version is not None
    generation, round = member.version
    return f"round {round + 1} of training {generation}"


def new_rows(member: Member) -> list[str]:
    """Rows of the label holder's file that nobody trained on: those after the aligned ones; without
    such, the test rows."""
    rows, own = member.federation.rows, member.own
    if rows is None:
        return list(own.ids)
    later = own.ids[rows.size :]
    test = rows.split(member.federation.seed).test
    return list(later) or [str(own.ids[i]) for i in test]
