"""Which answers the server of FedVS opens a sum from, and what it found wrong in the training."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.algorithms.fedvs_shares import CLIPPED, Shares
from colonnade.coding import Randomness, TooFewAnswers, WrongAnswers
from colonnade.errors import Unanswerable
from colonnade.learning import Numbers
from colonnade.network import Inbox
from colonnade.network.tally import Tally

log = logging.getLogger(__name__)

ROUNDS, SHORT, DOUBTFUL = "rounds", "without enough answers", "with a wrong answer"  # of counters
WRONG = "wrong answers of "  # begins those by client
WHY = "it computed wrongly, or another client sent it a wrong share"
OTHERS = (
    "its answer is from other sharings than those of most clients and is not used: it was away "
    "when columns or models were shared, or it marks its answers wrongly"
)


@dataclass
class Found:
    """`who`: clients whose answers lie on one polynomial; fewer than are needed if there is a
    `trouble`. `wrong`: clients whose answers do not. `counted`: the marks of the models that went
    into most answers [server, 1, senders]."""

    who: list[int]
    counted: Tensor
    wrong: list[int] = field(default_factory=list)
    trouble: Unanswerable | None = None


class Opener:
    """`counts`: of the rounds of the training, kept by the server."""

    def __init__(self, shares: Shares, clients: Sequence[str], counts: Numbers) -> None:
        self.shares, self.code, self.clients, self.counts = shares, shares.code, clients, counts
        self.tally = Tally(log)
        self.clipped: dict[str, tuple[int, int]] = {}  # by client: of so many rows to predict

    def look_at(self, inbox: Inbox, source: Randomness) -> Found:
        """Sort the answers: first those from the same sharings as most, then those of them that
        agree. `source`: of numbers that no client can foresee."""
        marks = self.shares.marks_of_answers(inbox)
        common = Counter(marks.values()).most_common(1)
        same = [n for n, mine in marks.items() if mine == common[0][0]]
        senders = self.code.clients
        models = common[0][0][senders:] if common else (0,) * senders
        for n in marks.keys() - set(same) if len(same) >= self.code.threshold else ():
            self.tally.add(self.clients[n], OTHERS)
        found = Found(same, torch.tensor(models, dtype=torch.int32)[None, None])
        if len(same) < self.code.threshold:
            found.trouble = TooFewAnswers(self.code.shortage(len(same)))
            return found
        try:
            answers = self.shares.answers_of(inbox, same)
            found.wrong = self.code.wrong(answers, same, source)
        except WrongAnswers:
            names = ", ".join(self.clients[n] for n in same)
            found.trouble = WrongAnswers(
                f"at least one of the clients {names} gave a wrong answer; {len(same)} answers, of "
                f"which {self.code.threshold} are needed, are too few to tell which"
            )
        found.who = [n for n in same if n not in found.wrong]
        return found

    def note(self, found: Found, training: bool) -> None:
        """Tell what is wrong, and count it in the training."""
        if isinstance(found.trouble, WrongAnswers):
            self.tally.add("a step is left out", str(found.trouble))
        for n in found.wrong:
            self.tally.add(self.clients[n], f"its answer is wrong and is not used: {WHY}")
        if training:
            self._count(ROUNDS)
            self._count(SHORT, isinstance(found.trouble, TooFewAnswers))
            self._count(DOUBTFUL, isinstance(found.trouble, WrongAnswers))
            for n in found.wrong:
                self._count(WRONG + self.clients[n])

    def hear_of_clipped(self, inbox: Inbox, rows: int) -> None:
        """How many rows each client clipped, of those that are predicted next."""
        told = inbox.value[0, :, CLIPPED, 0].clamp(0, rows).tolist()
        self.clipped = {c: (n, rows) for c, n in zip(self.clients, told, strict=True) if n}
        for client in self.clipped:
            self.tally.add(client, "rows hold values beyond what fits into the field; clipped")

    def _count(self, what: str, more: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + more

    def remarks(self) -> list[str]:
        """What a reader of the result must know."""
        rounds, short, doubtful = (self.counts.get(k, 0) for k in (ROUNDS, SHORT, DOUBTFUL))
        said = []
        if short:
            said.append(
                f"enough clients answered from the same sharings in: {rounds - short:,} of "
                f"{rounds:,} rounds; nothing was learnt in the others"
            )
        if doubtful:
            said.append(
                f"answers agreed in: {rounds - doubtful:,} of {rounds:,} rounds; in the others at "
                "least one client's answer was wrong, and nothing was learnt: spare answers were "
                "too few to tell whose"
            )
        wrong = {k.removeprefix(WRONG): n for k, n in self.counts.items() if k.startswith(WRONG)}
        for client, times in wrong.items():
            said.append(
                f"{client} gave wrong answers in {times:,} of {rounds:,} rounds, and sums were "
                f"opened without them: {WHY}"
            )
        for client, (count, rows) in self.clipped.items():
            said.append(
                f"{client}: {count:,} of {rows:,} rows that were predicted last hold values far "
                "beyond those of the training, which do not fit into the field; they were clipped "
                "to the largest values of the training"
            )
        return said
