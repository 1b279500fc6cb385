"""Training by programs that run side by side, each at its own pace.

async for epoch in self.training.epochs(net, programs):
    await net.concurrently(*[Program(partial(self.visits, epoch, k), leader) for k in …])

async def visits(self, epoch, k, net):
    async for batch in epoch.rounds(net, k, counter):
        …
        await batch.close([(k, loss, known_to)])

An epoch has as many rounds as the programs need to go over their rows once, whichever of them does
these rounds: a fast leader does more of them than a slow one. One party, the counter, has a part in
all programs; it counts their rounds, and tells everybody after each one whether the epoch is over.

A real party that was started again does the newest rounds once more, as far as the leaders have
their messages. `batch.once` keeps it from taking a step that is in its checkpoint already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from colonnade.common.devices import to_device
from colonnade.common.seeds import torch_stream
from colonnade.learning.declare import EVERYONE, Exchange, Members
from colonnade.learning.task import Batch
from colonnade.network import ABSENT, Channel, Group, Inbox, Network, locally
from colonnade.network.rounds import Rounds

if TYPE_CHECKING:
    from colonnade.learning.training import Training


def pace_of(counter: Members) -> Exchange:
    """What the counter tells everybody after each round of a program."""
    told = "that a round has ended, and whether the epoch is over; one number per round"
    return Exchange(counter, EVERYONE, told, width=1, exact=True, kind=CLOSED)


CLOSED = "pace"  # the kind, in the ledger, of what closes a round
PACE = "rounds of program "  # and its number: how many it has done, in `Training.progress`
DONE, COUNTED = "rounds of the epoch", "epoch"  # rounds that were counted, and in which epoch


@dataclass(frozen=True)
class Rows:
    """The rows that a program goes over, and the name of their order: programs of one name go over
    equal rows in the same order."""

    rows: Tensor
    order: str
    leader: str = ""  # the party whose program this is, if that is not the name of the order

    @property
    def party(self) -> str:
        return self.leader or self.order

    def rounds(self, size: int) -> int:
        """That it takes to go over them once."""
        return -(-len(self.rows) // size)


FIRST = 200  # rounds that are kept one by one


@dataclass(frozen=True)
class Led:
    """One round: who led it, from when to when, in seconds, and how many rounds of other parties
    ended in between: so many steps lie between an embedding and its gradient."""

    party: str
    began: float
    ended: float
    others: int


@dataclass
class Leads:
    """The rounds that a party led in one epoch."""

    epoch: int
    party: str
    rounds: int = 0
    others: int = 0  # steps of other parties within these rounds,
    most: int = 0  # and within one of them


@dataclass
class Paces:
    """Who led when, in a training by programs side by side, as far as the parties here have seen
    it."""

    first: list[Led] = field(default_factory=list)
    leads: dict[tuple[int, str], Leads] = field(default_factory=dict)
    before: float = 0.0  # seconds of the training that are not on the network's clock

    def add(self, epoch: int, one: Led) -> None:
        if len(self.first) < FIRST:
            began, ended = self.before + one.began, self.before + one.ended
            self.first.append(replace(one, began=began, ended=ended))
        leads = self.leads.setdefault((epoch, one.party), Leads(epoch, one.party))
        leads.rounds += 1
        leads.others += one.others
        leads.most = max(leads.most, one.others)


@dataclass
class Turn(Batch):
    """The batch of one round of one program."""

    program: int = 0
    around: Epoch | None = None
    net: Any = None
    counter: Group | None = None
    over: bool = False  # the epoch is
    began: float = 0.0  # seconds
    before: int = 0  # rounds of the epoch that had ended by then
    alone: bool = False  # no other program runs, so nothing has to be in order with it

    def like(self, other: Turn) -> Turn:
        """Another batch of rows for the same round."""
        return replace(self, rows=other.rows)

    async def send(
        self, value: Any, channel: Channel, rows: int | None = None, **how: Any
    ) -> Inbox:
        """An exchange of this round; beside other programs, the next one begins when all parties
        are done with it. `rows`: of a message, if not those of the batch. `how`: see
        `Network.send`."""
        inbox = await self.net.send(value, channel, len(self) if rows is None else rows, **how)
        if not self.alone:
            await self.net.meet()
        return inbox

    def once(self, step: str) -> bool:
        """Whether this party takes a step of this round now. False: it did before it was started
        again, and the message that the step is made of has come for the second time. To be asked
        right before the step, so that no checkpoint is written between the two."""
        assert self.around is not None
        now = [self.net.generation, self.epoch, self.net.rounds_begun]
        taken, step = self.around.training.taken, f"{step} of program {self.program}"
        if taken.get(step, now[:0]) >= now:
            return False
        taken[step] = now
        return True

    async def close(self, losses: Sequence[tuple[int, Any, Group]]) -> None:
        """The round ends: the counter tells everybody whether the epoch is over. `losses`: of the
        programs that have done a round: program, loss, and who knows it."""
        epoch, net, counter = self.around, self.net, self.counter
        assert epoch is not None
        assert counter is not None
        for _, loss, _ in losses:
            locally(net.check_loss, loss)
        decides = bool(net.here(counter))
        await net.meet()
        if decides and self.once("count"):
            self._count(epoch, losses)
        verdict: Any = torch.tensor([float(epoch.ends(self))]) if decides else ABSENT
        told = await net.agree(verdict, counter, 1, CLOSED)
        if not decides and self.once("count"):
            self._count(epoch, losses)
        self.over = bool(told[0])

    def _count(self, epoch: Epoch, losses: Sequence[tuple[int, Any, Group]]) -> None:
        others = epoch.done - self.before
        for program, _, _ in losses:
            one = Led(epoch.programs[program].party, self.began, self.net.now, others)
            epoch.training.paces.add(epoch.epoch + 1, one)
        epoch.count(losses)


@dataclass
class Epoch(Batch):
    """One epoch of programs that run side by side; one round of the program around them."""

    programs: Sequence[Rows] = ()
    training: Any = None
    leaders: dict[int, str] = field(default_factory=dict)  # of programs, among real parties
    ended: set[int] = field(default_factory=set)  # programs
    batches: int = 0  # those whose loss this party knows

    @property
    def planned(self) -> int:
        """Rounds of an epoch."""
        return sum(one.rounds(self.training.batch_size) for one in self.programs)

    @property
    def done(self) -> int:
        """Rounds of this epoch, of all programs. Checkpoints keep it."""
        counted = self.training.progress
        return int(counted[DONE]) if counted.get(COUNTED) == self.epoch else 0

    def ends(self, turn: Turn) -> bool:
        """Whether the program that has just done a round is over: the others are in a round of
        theirs, unless their leader is away, and these are the last ones of the epoch."""
        others = set(range(len(self.programs))) - self.ended - {turn.program}
        leaders = [self.leaders[other] for other in others if other in self.leaders]
        away = turn.net.away_since(turn.net.now, leaders)
        over = self.done + len(others) - len(away) >= self.planned
        if over:
            self.ended.add(turn.program)
        return over

    def count(self, losses: Sequence[tuple[int, Any, Group]]) -> None:
        """More rounds have ended. A loss counts for the training curve if it is known to the party
        that tells the curve."""
        for program, loss, known_to in losses:
            pace, key = self.training.progress, f"{PACE}{program}"
            pace |= {DONE: self.done + 1, COUNTED: self.epoch}
            pace[key] = pace.get(key, 0) + 1
            if known_to.parties == self.training.algorithm.decider.parties:
                self.batches += 1
                self.loss = self.loss + loss

    def pace(self, program: int) -> int:
        """Rounds that a program has done in the whole training, as far as this party has heard."""
        return int(self.training.progress.get(f"{PACE}{program}", 0))

    def order(self, program: int) -> Order:
        """The batches of a program in this epoch, by round."""
        size, seed = self.training.batch_size, self.training.algorithm.task.seed
        return Order(self.programs[program], size, self.epoch, seed, self.planned)

    def rounds(
        self, net: Network, program: int, counter: Group, *, column: int | None = None
    ) -> Turns:
        """The rounds of one program, on its own network. `column`: the only column holder that has
        a part in it."""
        return Turns(self, net, program, counter, column)


@dataclass(frozen=True)
class Order:
    """The batches of one program in one epoch: again from the beginning, in another order, once it
    has gone over its rows."""

    of: Rows
    size: int
    epoch: int
    seed: int
    most: int  # rounds
    known: dict[int, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.most

    def __getitem__(self, round: int) -> Turn:
        again, i = divmod(round, self.of.rounds(self.size))
        if again not in self.known:
            stream = torch_stream(self.seed, "batches", self.of.order, self.epoch, again)
            self.known.clear()
            order = torch.randperm(len(self.of.rows), generator=stream, device="cpu")
            self.known[again] = self.of.rows[to_device(order)]
        rows = self.known[again][i * self.size : (i + 1) * self.size]
        return Turn(rows, self.epoch, again=again, last=False)


class Turns:
    """See `Epoch.rounds`."""

    def __init__(
        self, epoch: Epoch, net: Network, program: int, counter: Group, column: int | None
    ) -> None:
        training: Training = epoch.training
        self.epoch, self.net, self.program, self.counter = epoch, net, program, counter
        if net.leader is not None:
            epoch.leaders[program] = net.leader
        self.part = epoch.part
        if column is not None and self.part is not None:
            here = list(net.here(training.algorithm.columns))
            x = self.part.x[here.index(column)][None] if column in here else ABSENT
            self.part = replace(self.part, x=x)
        self.rounds: Rounds[Turn] = net.rounds(epoch.order(program))
        self.turn: Turn | None = None  # the one that is worked on

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Turn:
        if self.turn is None:
            await self.net.meet()  # from here on each program has its turns
        elif self.turn.over:
            raise StopAsyncIteration
        try:
            self.turn = await anext(self.rounds)
        except StopAsyncIteration:  # the others had ended it before this party came
            self.epoch.ended.add(self.program)
            raise
        self.turn.part, self.turn.program, self.turn.around = self.part, self.program, self.epoch
        self.turn.net, self.turn.counter = self.net, self.counter
        self.turn.began, self.turn.before = self.net.now, self.epoch.done
        return self.turn
