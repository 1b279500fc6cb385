"""The network that a choreography runs over.

An algorithm is one global program: what each group computes, and what it sends to which group. Two
engines run the same program: *stacked* (this process runs all parties) and *projected* (this
process runs one). Five rules make that work:

1. Control flow depends only on what every party knows: the configuration, the round number, a value
just shared by `agree`. A decision made by one party is sent before anyone branches on it.
2. Gradients never cross an exchange by autograd: `send` detaches. So the code shows, and the ledger
counts, exactly what leaves each party.
3. Randomness comes from named streams (root seed, party, purpose), never from global state.
4. Every party executes every `send`, in the same order; messages are matched by (program, round,
step).
5. Programs that run at their own pace are started with `concurrently`; each has its own rounds, and
may have its own leader. A party computes for one of them at a time, and a party that is down is
down in all of them.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor

from colonnade.common.devices import to_device
from colonnade.common.randomness import Randomness, SeededRandomness
from colonnade.common.seeds import numpy_stream, seed_of
from colonnade.errors import PartyLost
from colonnade.network.absent import ABSENT, Absent, is_absent
from colonnade.network.channel import Channel
from colonnade.network.clock import SECOND
from colonnade.network.delays import DelaySampler
from colonnade.network.faults import Fault, Phase
from colonnade.network.inbox import Inbox
from colonnade.network.ledger import Ledger
from colonnade.network.parcel import ALL, Parcel, Wait
from colonnade.network.parts import Parts, Version
from colonnade.network.program_counter import AFTER, END, MAIN, ProgramCounter
from colonnade.network.rounds import Item, Rounds, Schedule
from colonnade.network.samplers import Calm, Passage, Sampler, Shared
from colonnade.network.topology import Group, Links, links_between
from colonnade.network.world import Program, Run, World

ATTEMPTS = 1000  # after so many lost attempts a party that must answer counts as gone for good

LIVES = 1 << 20  # the number of a life is told modulo this
DECISION, DECISION_BYTES = "decision", 4  # of `agree`, in the ledger: a float32 each


class Network(ABC):
    """See the module's five rules."""

    def __init__(self, world: World, program: str = "main") -> None:
        self.world = world
        self.program = program
        self.leader: str | None = None  # of this program, among real parties
        self.origin: ProgramCounter = MAIN  # where this program was started
        self.phase: Phase = "training"
        self.round = 0
        self.rounds_begun = 0
        self.resume_at = 0  # rounds before this one were done before a restart
        # Rounds done by each program that runs side by side with others, by its origin. Shared by
        # all programs of this process, and kept in its checkpoint.
        self.rounds_by_program: dict[ProgramCounter, int] = {}
        self.watch: Callable[[int], None] = lambda round: None  # told about every round begun
        # Told about every round that a program begins which runs side by side with others.
        self.watch_side_by_side: Callable[[Network], None] = lambda net: None
        self.item: Any = None  # of the schedule: what the present round is about
        # Told about every exchange, with what arrived: for measurements. See `Recorder` of
        # experiments/audit, which keeps what each receiver sees.
        self.recorder: Callable[[Network, Channel, Inbox], None] | None = None
        self.step = 0
        self.ledger = Ledger()
        self.everyone = Group("everyone", world.parties, "owner")
        self.turn = (0, 1)  # which of how many programs that run side by side
        self.sent_once = False  # in a loop of rounds that is worth waiting for everybody
        self.loop_began = 0  # the round with which the newest loop of rounds began
        # Column holders whose columns are left out: they say nothing of them, and do all else.
        self.without: frozenset[str] = frozenset()
        self._links: dict[tuple[Group, Group], Links] = {}
        self._samplers: dict[str, Sampler] = {}
        self._rounds_before = 0  # what faults that go on have seen already
        self._children = 0
        self._called: set[str] = set()  # groups that have been asked for something in this round
        self._running: list[Network] = [self]  # one place for all programs that share these parties
        self._shared: Shared = Calm().side_by_side(0)  # of the programs that run side by side
        self._delays: DelaySampler | None = None
        if world.delays.any:
            self._delays = world.delays.sampler(seed_of(world.seed, "delays", program))

    # -- what a choreography uses -----------------------------------------------------------------

    async def send(
        self,
        value: Tensor | Absent,
        channel: Channel,
        rows: int | tuple[int, ...],
        *,
        wait: Wait = ALL,
        where: Tensor | Absent | None = None,
        work: float = 1.0,
    ) -> Inbox:
        """Every member of the channel's source sends to the members of its destination that it is
        linked to.

        `value` is [senders here, rows, width], or [senders here, out-degree, rows, width] if the
        channel is for `each` receiver, with the links in the order of the slots of the opposite
        direction. Every party must know `rows`, whether it sends or not. `where` says which senders
        (or which of their links) send at all. `work` says how much the senders compute for this
        message, relative to a plain step of split learning (a batch through a model, forward and
        back): in a simulation with delays, they need so many times `compute`. Every party must know
        it.
        """
        if not is_absent(value) and value.dtype != channel.dtype:
            found, wanted = value.dtype, channel.dtype
            raise TypeError(f"{channel.kind}: is declared as {wanted}, but holds {found}")
        links = self.links(channel.src, channel.dst)
        passage = self._passage(links, wait)
        self.step += 1
        if channel.gate is not None:
            assert isinstance(rows, int), f"{channel.kind}: noise is for rows of one axis"
            value, where = channel.gate.leave(self, value, channel, rows, where)
        if channel.columns and self.without and (here := self.here(channel.src)):
            told = [channel.src.parties[i] not in self.without for i in here]
            where = _also(where, torch.tensor(told))
        if channel.residuals is not None and not is_absent(value):
            sent = cast("Tensor | None", where)
            value = channel.residuals.corrected(value, channel.src.place, sent)
        if channel.row_gate is not None:
            value = channel.row_gate.leave(self, value, channel)
        self._called |= {channel.src.name, channel.dst.name}
        parcel = Parcel(value, channel, links, channel.shape(rows), wait, where, work)
        inbox = await self._exchange(parcel, passage)
        if channel.row_gate is not None and not is_absent(inbox):
            inbox = channel.row_gate.arrive(self, channel, inbox)
        self._running[0] = self
        if self.recorder is not None and not is_absent(inbox):
            self.recorder(self, channel, inbox)
        return inbox

    def derived(self, value: Tensor | Absent, kind: str, src: Group, dst: Group) -> None:
        """Tell the recorder what the members of `dst` computed from messages of all of `src`, where
        that says more than each message alone, such as an opened sum. Nothing is sent. value
        [members of dst, rows, width]"""
        if self.recorder is None or is_absent(value):
            return
        everybody = Group(f"all {src.name}", (f"all {src.name}",), src.role)
        told = cast(Tensor, value)[:, None]
        inbox = Inbox(told, torch.ones(told.shape[:2], dtype=torch.bool), everything=True)
        self.recorder(self, Channel(everybody, dst, kind, told.shape[-1]), inbox)

    @abstractmethod
    def here(self, group: Group) -> Sequence[int]:
        """Which members of the group this process runs."""

    @property
    @abstractmethod
    def now(self) -> float:
        """Seconds since the start, virtual or real."""

    @abstractmethod
    async def agree(
        self, value: Tensor | Absent, src: Group, count: int, kind: str = DECISION
    ) -> list[float]:
        """A small decision (`count` numbers) of the only member of `src`, told to every party, so
        that all may branch on it. It is part of the control of the training, not of its content: it
        is repeated until it has come through. `kind`: its name in the ledger."""

    @abstractmethod
    async def concurrently(self, *programs: Run | Program, counter: Group | None = None) -> None:
        """Run programs that share the parties' state but go at their own pace, each on a network of
        its own, until all have ended. A plain function follows the leader of this program; a
        `Program` names another leader, or none. Every party starts all of them. `counter`: a party
        with a part in all of them. On a real network it ends those whose leader is away once all
        others have ended; without it they wait for their leader."""

    def rounds(self, schedule: Schedule[Item], *, sent_once: bool = False) -> Rounds[Item]:
        """`async for item in net.rounds(schedule)`: the shared round counter. A second loop in the
        same program counts on where the first one ended. `sent_once`: what is sent in this loop is
        sent once, so that real parties wait for a while for parties that are away."""
        return Rounds(self, schedule, sent_once)

    async def meet(self) -> None:
        """In virtual time the parties of a program may be at different moments: all go on when the
        last of them has come so far, and of several programs at one moment each in its turn. So
        programs side by side are in the same order on every engine, also where nothing takes time.
        Real parties do not wait."""
        self.step += 1

    # -- versions of the model; in a simulation every party keeps every version -------------------

    @property
    def generation(self) -> int:
        """Changes whenever the training is taken up anew."""
        return 0

    @property
    def life(self) -> int:
        """Changes whenever the process of this party starts; below `LIVES`."""
        return 0

    def checked(
        self,
        inbox: Inbox,
        src: Group,
        dst: Group,
        fits: Callable[[str, Tensor], bool],
        kind: str,
    ) -> Inbox:
        """The inbox without messages that cannot be right, by `fits`(sender, message); `kind` says
        what is wrong with them. In a simulation there are none."""
        return inbox

    def missing(self) -> set[str]:
        """The parties whose messages were left out of what was computed on this network."""
        return set()

    def left_out(self) -> list[str]:
        """Those of the missing parties that may take part when it is computed once more: they are
        there, or away for a short time only."""
        return []

    def owing(self) -> list[str]:
        """The same without those that are there and have gone on."""
        return []

    def lacking(self, version: Version, parties: Sequence[str]) -> list[str]:
        """Those of the parties that have not said that they keep their part of a version."""
        return []

    def past_without(self, version: Version, parties: Sequence[str]) -> list[str]:
        """Those of the parties that have no part of a version, and will have none: they have gone
        on."""
        return []

    def unheard(self, parties: Sequence[str]) -> list[str]:
        """Those of the parties that have not said yet which parts they keep, since this process
        started."""
        return []

    def away_since(self, moment: float, parties: Sequence[str]) -> list[str]:
        """Those of the parties that were away at any time since a moment (`now`)."""
        return []

    def measured_as_it_is(self, rounds: int) -> bool:
        """Whether all that the others know of the parties here from what was computed on this
        network was sent by these very processes, in one go, or by earlier ones with the same
        weights (`tell_weights`). An earlier process may have had other weights; its messages may
        have been used. `rounds`: between two decisions, on which all parties wait for each
        other."""
        return True

    def tell_weights(self, digest: Callable[[], str]) -> None:
        """What is computed on this network from here on is computed with the present weights, of
        which this is a digest: real parties tell it, so that a process that is started again can
        see whether its weights are the same."""
        return None

    def announce(self, parts: Parts) -> None:
        """Tell everybody which parts of the model this party keeps."""
        return None

    async def commit(self, keep: Callable[[bool], bool]) -> None:
        """What the parties have learnt so far is final: each keeps it (`keep`, told whether it is
        too late for that, says whether this party may go on), and waits: the leader for everybody,
        the others for the leader to announce it."""
        return None

    def secrets(self, party: str, *purpose: str | int) -> Randomness:
        """Where a party's secret masks come from: in a simulation from the seed, so that a run can
        be repeated."""
        return SeededRandomness(numpy_stream(self.world.seed, party, "secrets", *purpose))

    def check_loss(self, loss: Tensor) -> None:
        """A real party ends with an error where a loss by which it learns is not a number any
        more. `Training` checks losses of labels; an algorithm checks those without."""
        return None

    def clear_missed(self) -> None:
        """What was sent once, and did not come from everybody, is about to be sent again: nobody
        counts as missing for it any more."""
        return None

    async def wait_for_absent(self, spent: float = 0.0) -> None:
        """Wait for a while for the parties that are away. `spent`: seconds that this party has
        waited for them before."""
        return None

    def alive(self, group: Group) -> Tensor:
        """Which members here are up for what they do next. [members here] bool

        The answer holds until the next exchange. A group that has taken part in no exchange of this
        round is called: computing alone is a call as well, and faults that are drawn at each call
        are drawn. So every party asks, whether it has members here or not. No fault strikes a party
        that is nothing but an owner.
        """
        here = self.here(group)
        if self.world.spared(group):
            return torch.ones(len(here), dtype=torch.bool)
        round = self._rounds_before + self.round
        if group.name not in self._called:
            self._called.add(group.name)
            self._sampler.call(group, round)
        mask = self._sampler.alive(group, round)
        if mask is None:
            return torch.ones(len(here), dtype=torch.bool)
        return to_device(torch.from_numpy(mask[list(here)]))

    def pick(self, group: Group, value: Tensor) -> Tensor:
        """The part of the members here of a value that every party knows: [all members, ...] →
        [members here, ...]; absent if there are none."""
        here = self.here(group)
        if not here:
            return cast(Tensor, ABSENT)
        return value if len(here) == len(value) else value[list(here)]

    @property
    def running(self) -> Network:
        """The network of the program whose lines are executed now, among all programs that share
        these parties. A program gives way to another only while it waits for this network."""
        return self._running[0]

    @property
    def faulty(self) -> bool:
        """Whether anything can fail in this phase."""
        fault = self.world.fault
        return type(fault) is not Fault and fault.strikes(self.phase)

    @abstractmethod
    def within(self, phase: Phase) -> Self:
        """The same parties for something that happens inside this round, with rounds of its own:
        faults and ledger tell training, validation and inference apart."""

    def links(self, src: Group, dst: Group) -> Links:
        if (src, dst) not in self._links:
            nodes = self.world.columns.parties
            self._links[src, dst] = links_between(src, dst, nodes, self.world.topology)
        return self._links[src, dst]

    @property
    def at(self) -> ProgramCounter:
        """The program counter."""
        return self.origin.at(self.rounds_begun, self.step)

    @property
    def branch(self) -> ProgramCounter:
        """Which of the programs that run side by side this is, or is part of."""
        return self.origin.branch

    @property
    def round_is_open(self) -> bool:
        """Whether a round has begun and not ended."""
        return self.rounds_begun > 0 and self.step < AFTER

    @property
    def rounds_done(self) -> int:
        """Rounds that have ended."""
        return self.rounds_begun - self.round_is_open

    def restart_round(self, rounds: int) -> int:
        """Where a party goes on that starts again after so many rounds: a loop with
        `sent_once` is done again as a whole."""
        return min(rounds, self.loop_began) if self.sent_once else rounds

    # -- for the engines --------------------------------------------------------------------------

    def _begin_loop(self) -> None:
        """Before the first round of a loop."""
        return None

    async def _catch_up(self, left: int) -> None:
        """Before a loop of rounds goes on, with `left` rounds: a real party that has fallen behind
        jumps to the round of the others."""
        return None

    async def _keep_in_step(self) -> None:
        """Before a round begins: a real party does not run far ahead of the others."""
        return None

    @abstractmethod
    def _exchange(self, parcel: Parcel, passage: Passage) -> Awaitable[Inbox]: ...

    @property
    def _sampler(self) -> Sampler:
        if self.phase not in self._samplers:
            fault, world = self.world.fault, self.world
            seed = seed_of(world.seed, "faults", self.program, self.phase)
            calm = not fault.strikes(self.phase)
            settled = self.phase == "inference"
            sampler = Calm() if calm else fault.sampler(seed, world.groups, settled)
            self._samplers[self.phase] = sampler
        return self._samplers[self.phase]

    def _passage(self, links: Links, wait: Wait) -> Passage:
        round = self._rounds_before + self.round
        passage = self._sampler.exchange(links, round)
        if not wait.insists or passage.arrived is None:
            return passage
        arrived = passage.arrived & links.real
        wanted = wait.count if wait.kind == "first" else links.real.sum(1)
        attempts = np.ones(links.shape, dtype=np.int64)
        for _ in range(ATTEMPTS - 1):
            if (arrived.sum(1) >= wanted).all():
                break
            attempts[links.real & ~arrived] += 1
            self.ledger.repeated[self.phase] += 1
            passage = self._sampler.exchange(links, round, again=True)
            arrived |= links.real if passage.arrived is None else passage.arrived & links.real
        if (arrived.sum(1) < wanted).any():
            raise self._lost(links, passage, links.real & ~arrived)
        if wait.kind == "first":
            return Passage(arrived, arrived, attempts)
        return Passage(None, None, attempts)

    def _lost(self, links: Links, passage: Passage, missing: np.ndarray) -> PartyLost:
        r, j = (int(index[0]) for index in np.nonzero(missing))
        sender, receiver = links.src.parties[links.senders[r, j]], links.dst.parties[r]
        away = sender if passage.sent is not None and not passage.sent[r, j] else receiver
        return PartyLost(
            f"{away} is out of reach: {sender} → {receiver} failed {ATTEMPTS} times in round "
            f"{self.round}, and this method waits for everyone. Choose one that goes on without, "
            f'such as missing = "zeros".'
        )

    def _within(self, child: Self, phase: Phase) -> Self:
        self.step += 1
        child = self._child(child, self.at)
        child.phase = phase
        if phase == "validation":  # the method looking at itself takes no time
            child._delays = None
        if phase == "inference" and self.world.fault.when == "always":  # what fell is still down
            child._samplers[phase] = self._sampler
            child._rounds_before = self._rounds_before + self.round + 1
        return child

    def _run_of(self, program: Run | Program) -> Run:
        """What a program does; in a simulation nobody follows a leader."""
        if not isinstance(program, Program):
            return program
        program.leading_party(self.world)  # or the error that says what is wrong with it
        return program.run

    def _children_of(self, count: int) -> list[Self]:
        """The networks of so many programs that start here side by side."""
        self.step += 1
        self._shared = self._sampler.side_by_side(seed_of(self.world.seed, "faults", *self.at))
        children = []
        for k in range(count):
            child = self._child(self._beside(f"{self.program}/{self._children + k}"), self.at)
            child.origin, child.turn = self.at.beside(k), (k, count)
            child.resume_at = max(child.resume_at, self.rounds_by_program.get(child.origin, 0))
            child._samplers[child.phase] = self._shared.sampler()
            child._rounds_before = self._rounds_before + self.rounds_begun
            children.append(child)
        self._children += count
        return children

    def _joined(self, children: Sequence[Self]) -> None:
        """The programs have ended, and so has the step in which they ran."""
        self._shared.settle()
        self._rounds_before += max((child.rounds_begun for child in children), default=0)
        for child in children:
            if self.round_is_open:  # a round that is done again is done as a whole
                self.rounds_by_program.pop(child.origin, None)
            else:
                self.rounds_by_program[child.origin] = END
        self.step += 1

    @abstractmethod
    def _beside(self, program: str) -> Self:
        """A network of another program of the same parties."""

    def _child(self, child: Self, origin: ProgramCounter) -> Self:
        child.origin = origin
        if self.rounds_begun < self.resume_at:  # in the past, as is all that happens within
            child.resume_at = sys.maxsize
        child.phase, child.ledger, child._links = self.phase, self.ledger, self._links
        child._running, child.without = self._running, self.without
        child.rounds_by_program = self.rounds_by_program
        child.watch_side_by_side, child.recorder = self.watch_side_by_side, self.recorder
        return child

    def _count_round(self, done: int) -> None:
        """This program has done so many rounds."""
        if self.origin and self.origin[-1] < 0:
            self.rounds_by_program[self.origin] = done
            self.watch_side_by_side(self)


def _also(where: Tensor | Absent | None, senders: Tensor) -> Tensor:
    """Where both hold. `where`: of senders, or of their links."""
    if where is None:
        return senders
    where = cast(Tensor, where)
    return where & senders.view(-1, *[1] * (where.dim() - 1))


def seconds(nanoseconds: int) -> float:
    return nanoseconds / SECOND
