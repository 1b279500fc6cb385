"""Requests for the score of a trained federation on its test rows, without the columns of some
parties, as the label holder's process gets them from `colonnade explain`.

The parties send what they send for any prediction of these rows; those that are left out send
nothing of their columns. Predictions, labels and score stay at the label holder's process: what it
answers is one number.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from colonnade.federation.member.answers import Answer, Question
from colonnade.federation.member.member import Member
from colonnade.federation.member.record import AS_IT_HAPPENED
from colonnade.federation.member.stage import Stage
from colonnade.network.wire import WireError, read_note


class ScoreAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `colonnade explain` sends to the label holder."""

    without: list[str] = []


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """What it gets back."""

    failure: str = ""
    score: float = 0.0  # higher is better
    error: float | None = None  # its standard error, from the choice of rows
    absent: dict[str, str] = {}  # parties that were not heard, beside those left out, and why
    parties: list[str] = []  # that hold columns
    rows: int = 0
    metric: str = ""
    method: str = ""
    faults: str = AS_IT_HAPPENED
    seed: int = 0
    run: str = ""


class Scorer:
    """One request."""

    def __init__(self, member: Member, reply: Callable[[bytes], None]) -> None:
        self.member, self.reply = member, reply
        self.without = frozenset[str]()

    def begin(self, data: bytes) -> None:
        try:
            self.without = frozenset(read_note(data or b"{}", ScoreAsked).without)
        except WireError as error:
            self.answer(Scored(failure=str(error)))
            return
        if trouble := self.trouble():
            self.answer(Scored(failure=trouble))
            return
        self.member.questions.append(Question(None, self.take, self.without))
        self.member.wake.notify()

    def trouble(self) -> str:
        """Why there is no score; "" if there may be one."""
        member, algorithm = self.member, self.member.algorithm
        strange = sorted(self.without - set(algorithm.columns.parties))
        if strange:
            return (
                f"{strange[0]!r} holds no columns; there are {', '.join(algorithm.columns.parties)}"
            )
        if member.state.stage != Stage.ANSWERING:
            return f"{member.party} is not ready: {member.state.stage}, round {member.state.round}"
        if member.version is None:
            return f"{member.party} has no part of the model; ask another device"
        if not algorithm.data.test.rows:
            return "there are no test rows to explain by"
        if algorithm.sums_only:
            return (
                f"{algorithm.name}: the label holder learns sums over all parties only, and the "
                "difference of a sum with and without a party is what that party told; explain a "
                "simulation of it with `colonnade run` instead"
            )
        if algorithm.releases is not None:
            return (
                "noise: each question would release the test rows once more, at the cost of their "
                "privacy budget; explain a simulation with `colonnade run` instead"
            )
        return ""

    def take(self, answer: Answer) -> None:
        member, algorithm = self.member, self.member.algorithm
        deciding, error = algorithm.task.goal.deciding, None
        if answer.reason or not answer.rows:
            value = algorithm.blind_score()  # too few are heard for an answer
        else:
            answers, y = algorithm.unscaled(answer.logits), algorithm.data.test.y
            value, error = deciding.of(answers, y), deciding.error(answers, y)
        self.answer(
            Scored(
                score=deciding.score(value),
                error=error,
                absent={p: why for p, why in answer.absent.items() if p not in self.without},
                parties=list(algorithm.columns.parties),
                rows=algorithm.data.test.rows,
                metric=f"test_{deciding.key}",
                method=member.federation.method.name,
                seed=member.federation.seed,
                run=member.record.run,
            )
        )

    def answer(self, found: Scored) -> None:
        self.reply(msgspec.json.encode(found))
