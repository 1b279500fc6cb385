"""Training control: epochs, validation, the best version of the model, stopping, progress.

`Training` is led by the label holder: it measures each version of the model, decides which is the
best and when to stop, and tells everybody. `Gossip` (gossip.py) is for algorithms in which nobody
leads. An algorithm trains in one loop:

async for batch in self.training.rounds(net):
    …
    batch.loss = loss
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import torch
from torch import Tensor

from colonnade.learning.goal import LABEL
from colonnade.learning.side_by_side import PACE, Epoch, Paces, Rows
from colonnade.learning.task import Batch, Batches
from colonnade.learning.versions import Ballot, Versions, digest
from colonnade.network import Network, is_absent, locally
from colonnade.network.parts import Version
from colonnade.network.rounds import Rounds, Schedule

if TYPE_CHECKING:
    from colonnade.learning.algorithm import Algorithm

MOST_EPOCHS = 300
ROUNDS = 2000  # what a small data set gets by more epochs
DECISION = "whether to go on, and which two versions of the model to keep; three numbers per epoch"
DECIDED = 3  # numbers
BRIEFLY = 3.0  # seconds that a wait for parties that are away counts for, at least
# The lowest validation loss so far, epochs without a lower one or a better version; the round whose
# version is the best; the epoch after which the training was over.
AT_FIRST: dict[str, float] = {"lowest": 1e300, "waited": 0, "stopped": 0, "best": -1, "over": -1}
WAITING = "seconds of waiting"  # at the end, for parties that are away; in `Training.progress`
NO_ROWS = torch.zeros(0, dtype=torch.int64)

AnyBatch = TypeVar("AnyBatch", bound=Batch)


@dataclass(frozen=True)
class Decision:
    """What the parties agree on after an epoch. Rounds stand for versions."""

    best: int
    sure: int  # the best version that is kept by all who took part in it; -1: none
    stop: bool
    version: Version  # of this round
    over: bool = False  # all epochs are done; more follow while somebody lacks the best
    lacking: tuple[str, ...] = ()  # those who lack the best version
    behind: tuple[str, ...] = ()  # those who have missed rounds
    as_measured: bool = True  # the parties here are now as they were when the version was measured

    def numbers(self) -> Tensor:
        return torch.tensor([self.best, self.sure, self.stop], dtype=torch.float32)

    @classmethod
    def of(cls, told: Sequence[float], version: Version) -> Decision:
        best, sure, stop = told
        return cls(int(best), int(sure), bool(stop), version)


@dataclass
class Point:
    """One point of a training curve, told where the labels are."""

    round: int
    epoch: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class Validation:
    """What the validation rows say of a version."""

    metrics: dict[str, float]
    score: float  # the deciding metric, higher is better
    error: float  # its standard error


async def _nothing() -> None:
    """A simulation writes no checkpoints."""


class Training:
    """The control of one program, led by the label holder."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.watch: Callable[[Point], None] = lambda point: None
        self.progress = dict(AT_FIRST)
        self.taken: dict[str, list[int]] = {}  # the newest steps of programs side by side
        self.paces = Paces()  # of programs side by side
        self.versions = Versions(algorithm)
        # At most so many epochs more, while a party that is there lacks the best version or has
        # missed rounds; and who has missed any. In a simulation nobody does.
        self.extra_epochs = 0
        self.behind: Callable[[], Sequence[str]] = lambda: ()
        self.write_checkpoint: Callable[[], object] = lambda: None  # writes a checkpoint at once
        # The same, and returns when it is on the disk, however long that takes.
        self.secure_checkpoint: Callable[[], Awaitable[None]] = _nothing
        self.frozen = False  # only the label holder learns now
        self.target: float | None = None  # of the deciding metric: the training stops there
        self.committed: int | None = None  # parts that were final at this round are in use
        self._losses: Any = 0.0
        self._summed = 0  # so many of them

    # -- epochs -----------------------------------------------------------------------------------

    def rounds(self, net: Network) -> TrainingRounds[Batch]:
        """The rounds of the training with labels. After the last batch of an epoch the model is
        validated and the parties agree on the best version and on whether to stop; after the loop
        the models are those of the best version."""
        return TrainingRounds(self, net, self.batches)

    def epochs(self, net: Network, programs: Sequence[Rows]) -> TrainingRounds[Epoch]:
        """`rounds` for programs that run side by side: each round of this loop is an epoch of
        theirs. See side_by_side.py."""
        epochs = self.batches.epochs
        whole = [Epoch(NO_ROWS, e, programs=programs, training=self) for e in range(epochs)]
        return TrainingRounds(self, net, whole)

    def rounds_done(self, net: Network) -> int:
        """Rounds that have ended, those of programs side by side included."""
        pace = [int(n) for name, n in self.progress.items() if name.startswith(PACE)]
        return sum(pace) if pace else net.round + 1

    @cached_property
    def usual(self) -> int:
        """Epochs of the training with labels, unless it stops earlier."""
        rows, size = self._sizes
        least = self.algorithm.usual_epochs
        return self.algorithm.epochs or min(MOST_EPOCHS, max(least, -(-ROUNDS * size // rows)))

    @cached_property
    def batches(self) -> Batches:
        rows, size = self._sizes
        return self.algorithm.batches(rows, size, self.usual + self.extra_epochs)

    @property
    def batch_size(self) -> int:
        return self._sizes[1]

    @property
    def _sizes(self) -> tuple[int, int]:
        rows = self.algorithm.task.rows["train"]
        return rows, min(self.algorithm.set.batch, rows)

    @property
    def rounds_per_epoch(self) -> int:
        return 1 if self.algorithm.side_by_side else self.batches.per_epoch

    @property
    def usual_rounds(self) -> int:
        return self.usual * self.rounds_per_epoch

    @property
    def patience(self) -> int:
        """Epochs without better validation before stopping: 10, or a sixth of many, unless set. A
        rate that falls pays off in the last epochs, so by default all of them are done then."""
        settings = self.algorithm.set
        early = self.algorithm.stops_early and settings.lr_schedule == "constant"
        return settings.patience or (max(10, self.usual // 6) if early else self.usual)

    def set_rate(self, epoch: int) -> None:
        """What `lr_schedule` says of the learning rate in this epoch."""
        if self.algorithm.set.lr_schedule == "cosine":
            done = min(epoch, self.usual - 1) / self.usual
            self.algorithm.rate_in_use.value = 0.5 * (1 + math.cos(math.pi * done))

    # -- after a round ----------------------------------------------------------------------------

    async def end_of_round(self, net: Network, batch: Batch) -> bool:
        """Whether that was the last round. Adds up the losses; after the last batch of an epoch:
        validation, decision, and the parts of the best version are kept."""
        self._losses = self._losses + batch.loss
        self._summed += batch.batches
        locally(net.check_loss, batch.loss)
        if not batch.last:
            return False
        total, self._losses = self._losses, 0.0
        measured = bool(self.algorithm.data.validation.rows)
        decision = await (self.decide if measured else self.go_on)(net, batch, total)
        self._summed = 0
        self.keep_versions(net, decision)
        self.progress |= {"stopped": decision.stop, "best": decision.best}
        return decision.stop

    def keep_versions(self, net: Network, decision: Decision) -> None:
        """Keep the parts that were decided on, as far as they are here: a party that was away when
        the version was measured, or has been started again since, has no part of this version."""
        if self.versions.final is not None:
            return  # it serves for all versions to come
        wanted = (decision.best, decision.sure)
        self.versions.keep_only(wanted)
        new = decision.version not in self.versions.parts
        if net.round in wanted and new and decision.as_measured:
            self.versions.take(net, decision.version)
        self.versions.announce(net)

    def keep_best(self) -> None:
        """Go back to the best version, as far as this party has its part."""
        best = self.versions.newest_of(int(self.progress["best"]))
        if best is not None:
            self.versions.load(best)

    def tell(self, net: Network, batch: Batch, loss: Any, metrics: dict[str, float]) -> None:
        if self._summed:
            mean = float(torch.as_tensor(loss).mean()) / self._summed
            metrics = {"train_loss": mean, **metrics}
        self.watch(Point(self.rounds_done(net), batch.epoch + 1, metrics))

    # -- the label holder decides -----------------------------------------------------------------

    @cached_property
    def ballot(self) -> Ballot:
        """What the label holder knows of the versions that may be the best."""
        return Ballot(self.algorithm.world().parties)

    async def decide(self, net: Network, batch: Batch, loss: Any) -> Decision:
        """The best version so far and whether to stop, told to everybody by the label holder."""
        apart, algorithm = net.within("validation"), self.algorithm
        apart.tell_weights(lambda: digest(algorithm.tensors(net)))
        outputs, y = await algorithm.validate(apart), algorithm.data.validation.y
        found = locally(self.measure, outputs, y)
        verdict = locally(lambda *args: self.judge(net, apart, batch, *args), loss, found)
        if not is_absent(verdict) and verdict.over and not verdict.stop:
            verdict = replace(verdict, stop=await self.nobody_comes(net, verdict, batch))
        numbers = locally(lambda verdict: verdict.numbers(), verdict)
        told = await net.agree(numbers, algorithm.decider, DECIDED)
        decision = Decision.of(told, (net.generation, net.round))
        return replace(decision, as_measured=apart.measured_as_it_is(self.rounds_per_epoch))

    async def nobody_comes(self, net: Network, verdict: Decision, batch: Batch) -> bool:
        """All epochs are done, and more could follow: whether all for whom they would be made are
        away. Those who lack the best version are waited for in each of these epochs, those who have
        missed rounds before the first one only: they have a part of the model."""
        awaited = {*verdict.lacking, *verdict.behind}
        if verdict.lacking or batch.epoch == self.progress["over"]:
            await self.wait_for_absent(net)
        return set(net.away_since(net.now, sorted(awaited))) == awaited

    async def wait_for_absent(self, net: Network) -> None:
        """At the end of the training; all such waits together are bounded, also through restarts of
        this process. Else parties that crash again and again could keep it from ending."""
        spent, began = self.progress.get(WAITING, 0.0), net.now
        if spent:  # not the first time: a process that falls while it waits has waited, too
            self.progress[WAITING] = spent + BRIEFLY
            self.write_checkpoint()
        await net.wait_for_absent(spent)
        self.progress[WAITING] = spent + max(BRIEFLY, net.now - began)

    async def go_on(self, net: Network, batch: Batch, loss: Any) -> Decision:
        """Without validation rows the newest version is the best; nobody has to be told."""
        locally(lambda loss: self.tell(net, batch, loss, {}), loss)
        version = (net.generation, net.round)
        before = int(self.progress["best"])
        if net.here(self.algorithm.decider):
            self.ballot.add(net, version, float(net.round), 0.0)
            _, sure = self.ballot.settle(net)
            before = before if sure is None else sure.version[1]
        stop = batch.epoch + 1 >= self.usual or self.budget_is_used_up(batch)
        return Decision(net.round, before, stop, version)

    def measure(self, outputs: Tensor, y: Tensor) -> Validation:
        """The validation, where the labels are."""
        algorithm, metric = self.algorithm, self.algorithm.task.goal.deciding
        metrics = algorithm.measure(outputs, y, "validation", everything=False)
        score = metric.score(metrics[f"validation_{metric.key}"])
        return Validation(metrics, score, metric.error(algorithm.unscaled(outputs), y))

    def judge(
        self, net: Network, apart: Network, batch: Batch, loss: Any, found: Validation
    ) -> Decision:
        """What the label holder tells everybody, given the losses of this epoch and the validation,
        which was measured on `apart`."""
        self.tell(net, batch, loss, found.metrics)
        value = found.metrics["validation_loss"]
        version = (net.generation, net.round)
        new = self.ballot.add(apart, version, found.score, value, found.error)
        best, sure = self.ballot.settle(net)
        self.count_patience(value, best is new, self.ballot.complete(new))
        if best is new:
            self.versions.take(net, new.version)  # before anybody is told, so that it is not lost
        lacking = tuple(party for party in self.ballot.parties if party not in best.company)
        lacking, behind = ((), ()) if self.frozen else (lacking, tuple(self.behind()))
        stop, over = self.when_to_stop(batch, found.metrics, whole=not (lacking or behind))
        rounds = best.version[1], -1 if sure is None else sure.version[1]
        return Decision(*rounds, stop, new.version, over, lacking, behind)

    def count_patience(self, loss: float, better: bool, complete: bool = True) -> None:
        """Count an epoch without a better version and without a lower loss: a loss often falls long
        before an accuracy rises. An epoch that some party missed is not counted."""
        so_far = self.progress
        if better or loss < so_far["lowest"]:
            so_far["waited"] = 0
        elif complete:
            so_far["waited"] += 1
        so_far["lowest"] = min(so_far["lowest"], loss)

    def when_to_stop(
        self, batch: Batch, metrics: dict[str, float], whole: bool
    ) -> tuple[bool, bool]:
        """Whether to stop, given the metrics of the validation, and whether the training is over as
        far as its epochs and its patience go: if somebody lacks the best version or missed rounds
        (not `whole`), `extra_epochs` follow."""
        so_far = self.progress
        if self.budget_is_used_up(batch) or self.target_is_reached(metrics):
            return True, True
        over = so_far["waited"] >= self.patience or batch.epoch + 1 >= self.usual
        if over and so_far["over"] < 0:
            so_far["over"] = batch.epoch
        if not over or whole:
            so_far["over"] = batch.epoch if over else -1
        spent = batch.epoch - so_far["over"] >= self.extra_epochs
        last = batch.epoch + 1 >= self.batches.epochs
        return over and (whole or spent or last), over

    @property
    def closing(self) -> bool:
        """Whether the training is over as far as its epochs and its patience go."""
        return self.progress["over"] >= 0

    def target_is_reached(self, metrics: dict[str, float]) -> bool:
        metric = self.algorithm.task.goal.deciding
        return self.target is not None and metric.reached(metrics, self.target)

    def budget_is_used_up(self, batch: Batch) -> bool:
        """Whether another epoch would release rows more often than their privacy budget allows. An
        epoch that is the last one anyway is not ended by it."""
        releases = self.algorithm.releases
        if releases is None or not releases.last_epoch(batch.epoch):
            return False
        if batch.epoch + 1 < self.usual:
            releases.stop()
        return True

    # -- models that are final before the training ends -------------------------------------------

    async def freeze(self, net: Network, *stacks: str) -> None:
        """The models of these stacks are final from here on. Every party keeps them before anything
        is made of them, and waits for the others. A party that comes too late for that has no part
        of this model."""
        mark, versions = net.rounds_begun, self.versions
        known = self.algorithm.stacks.items()
        mine = [name for name, (group, _) in known if net.here(group)]
        # Whether nothing of this party changes any more.
        whole = all(name in (*stacks, LABEL) for name in mine)

        def keep(late: bool) -> bool:
            if not whole:
                if not late:
                    self.write_checkpoint()
                return True
            if versions.final is None and not late:
                versions.take(net, (net.generation, mark), final=True)
            if versions.final is not None:
                versions.load(versions.final)
            return versions.final is not None

        await net.commit(keep)
        self.frozen = True
        if net.here(self.algorithm.decider) and self.committed != mark:
            self.committed = mark
            self.write_checkpoint()
            versions.announce(net)


class TrainingRounds(Generic[AnyBatch]):
    """See `Training.rounds` and `Training.epochs`."""

    def __init__(self, training: Training, net: Network, schedule: Schedule[AnyBatch]) -> None:
        self.training, self.net = training, net
        algorithm = training.algorithm
        self.part = replace(algorithm.data.train, y=algorithm.labels_to_learn())
        self.rounds: Rounds[AnyBatch] = net.rounds(schedule)
        self.batch: AnyBatch | None = None  # the one that is worked on

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AnyBatch:
        training = self.training
        if self.batch is not None and await training.end_of_round(self.net, self.batch):
            training.keep_best()
            raise StopAsyncIteration
        if (
            self.batch is None
            and training.algorithm.draws_for_labels
            and not is_absent(self.part.y)
        ):
            # Noise must be on the disk before anybody is told anything that it is in.
            await training.secure_checkpoint()
        try:
            self.batch = await anext(self.rounds)
        except StopAsyncIteration:
            training.keep_best()
            raise
        training.set_rate(self.batch.epoch)
        self.batch.part = self.part
        return self.batch
