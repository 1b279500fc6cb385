"""What every algorithm is: settings, declared exchanges, and two choreographies, `train` and
`predict`.

To add one, put a file into this folder with a `Settings` struct and an `Algorithm` subclass;
nothing else changes. The experiment file, the command line, the documentation of what leaves a
party and the algorithm test kit find it there.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from colonnade.algorithms import checkpoint
from colonnade.algorithms.models import encoder_widths, make_encoder
from colonnade.algorithms.task import Batch, Batches, Holding, Part, Task
from colonnade.algorithms.versions import Ballot, Versions
from colonnade.common.seeds import seed_of, seeded
from colonnade.common.user_code import Source
from colonnade.data.partition import VerticalData
from colonnade.errors import InputError
from colonnade.models.optim import Optimizer
from colonnade.models.stack import Stack
from colonnade.network import ABSENT, Group, Network, is_absent, locally
from colonnade.network.network import World
from colonnade.network.parts import Version

MOST_EPOCHS = 300
ROUNDS = 2000  # what a small data set gets by more epochs
PREDICT_ROWS = 4096  # rows per exchange when nothing can fail


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys that every `[[methods]]` table takes."""

    name: str
    algorithm: str
    epochs: int | None = None  # 60; on small data more, up to 300, for 2,000 rounds
    batch: int = 64
    lr: float | dict[str, float] = 1e-3  # or by group, e.g. { clients = 0.01, server = 0.08 }
    optimizer: Literal["sgd", "adam"] = "adam"
    momentum: float = 0.0
    weight_decay: float = 0.0
    patience: int | None = None  # epochs without better validation before stopping; 10 or more
    encoder: list[int | float] | Literal["cnn"] | None = (
        None  # widths; below 1: shares of the columns
    )
    head: list[int] | None = None
    compile: bool = False

    # Keys that make no difference before the first prediction: methods that differ in nothing else
    # are trained once.
    at_inference: ClassVar[tuple[str, ...]] = ()

    def resolved(self) -> Settings:
        """With short names written out as what they stand for."""
        return self

    def training(self) -> Settings:
        """Equal for methods that train the same models."""
        plain = {f.name: f.default for f in msgspec.structs.fields(self)}
        same = {key: plain[key] for key in self.resolved().at_inference}
        return msgspec.structs.replace(self.resolved(), name="", **same)

    def check(self, task: Task) -> None:
        """Raises InputError (naming the key) for values that cannot work."""
        for key in ("epochs", "batch"):
            value = getattr(self, key)
            if value is not None and value < 1:
                raise InputError(f"{key} = {value}: expected 1 or more")
        rates = self.lr.values() if isinstance(self.lr, dict) else [self.lr]
        if not all(0 < rate < math.inf for rate in rates):
            raise InputError(f"lr = {self.lr}: expected a rate above 0")
        for key in ("momentum", "weight_decay"):
            if not 0 <= getattr(self, key) < math.inf:
                raise InputError(f"{key} = {getattr(self, key)}: expected 0 or more")
        if self.patience is not None and self.patience < 1:
            raise InputError(f"patience = {self.patience}: expected 1 or more epochs")
        if self.encoder == "cnn" and any(len(shape) != 3 for shape in task.shapes):
            raise InputError('encoder = "cnn": needs images split by bands or patches')
        check_widths("encoder", self.encoder, shares=True)
        check_widths("head", self.head)
        if self.encoder == []:
            raise InputError("encoder = []: expected at least one width")


def check_widths(key: str, widths: Any, shares: bool = False) -> None:
    """`shares`: numbers below 1 will do as well."""
    if isinstance(widths, list) and not all(
        (shares and 0 < w < 1) or (w >= 1 and float(w).is_integer()) for w in widths
    ):
        also = ", or shares of the columns below 1" if shares else ""
        raise InputError(f"{key} = {widths}: expected widths of 1 or more{also}")


@dataclass(frozen=True)
class Exchange:
    """A kind of content that goes from one group to another, and what it tells its receiver."""

    kind: str
    src: str
    dst: str
    what: str


DECISION = "whether to go on, and which two versions of the model to keep; three numbers per epoch"


@dataclass(frozen=True)
class Decision:
    """What the parties agree on after an epoch. Rounds stand for versions."""

    best: int
    sure: int  # the best version that is kept by all who took part in it; -1: none
    stop: bool
    version: Version  # of this round
    over: bool = False  # all epochs are done; more follow while somebody lacks the best
    lacking: tuple[str, ...] = ()  # those who were not there when the best was measured

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


class Algorithm(ABC):
    """One global program over groups of parties. Subclasses name their groups in `__init__`."""

    name: ClassVar[str]
    settings: ClassVar[type[Settings]] = Settings
    exchanges: ClassVar[tuple[Exchange, ...]]
    pooled: ClassVar[bool] = False  # one party holds all columns
    optional: ClassVar[tuple[str, ...]] = ()  # groups that some settings do without
    led: ClassVar[bool] = True  # by who holds the labels; else all are equal
    outside: ClassVar[tuple[str, ...]] = ()  # groups that only use the model
    usual_epochs: ClassVar[int] = 60

    groups: tuple[Group, ...]
    columns: Group  # who holds columns
    labels: Group  # who holds the labels: one party, unless all decide for themselves

    def __init__(self, settings: Any, task: Task) -> None:
        self.set = settings
        self.task = task
        self.watch: Callable[[Point], None] = lambda point: None
        self.stacks: dict[str, tuple[Group, Stack]] = {}
        self.memory: dict[str, Any] = {}  # what the label holder keeps
        self.memory_kept: list[str] = []  # what of it is on disk
        self.own_code: Mapping[str, Source] = {}  # which code of the user's own runs here
        self.checkpoints: Path | None = None  # where parties keep their state after every epoch
        self.writer: Callable[[Callable[[], None]], None] | None = None  # None: writes at once
        self.keep_now: Callable[[Network], None] = self.keep  # what must not be lost
        # The best validation so far (accuracy, loss), the lowest loss, epochs without either; the
        # round whose version is the best; the epoch after which the training was over.
        self.progress: dict[str, float] = {"accuracy": -1, "loss": 1e300, "lowest": 1e300}
        self.progress |= {"waited": 0, "stopped": 0, "best": -1, "over": -1}
        self.versions = Versions(self)
        # At most so many epochs more, while a party that is there lacks the best version or has
        # missed rounds; and who has missed any. In a simulation nobody does.
        self.extra_epochs = 0
        self.behind: Callable[[], Sequence[str]] = lambda: ()
        self.frozen = False  # only the label holder learns now
        self.committed: int | None = None  # parts that were final at this round are in use
        self.also: dict[str, Any] = {}  # what else is to be kept with a checkpoint
        self.course: list[float] = []  # accuracy of the last test, batch by batch
        self._losses: Any = 0.0
        settings.check(task)

    def label_holder(self, name: str, role: Literal["aggregator", "owner"]) -> Group:
        """The group of one that holds the labels. Who is named for it may hold columns as well."""
        if name in self.task.players:
            return Group(name, self.task.players[name], role)
        if name in self.task.clients:
            raise InputError(
                f"data.columns: {name!r} is the label holder; name the client otherwise"
            )
        return Group(name, (name,), role)

    @property
    def leader(self) -> str | None:
        """The party whose round the others follow."""
        return self.labels.parties[0] if self.led else None

    @property
    def embedding_widths(self) -> tuple[int, ...]:
        """Of every client's encoder, as everybody knows them."""
        return encoder_widths(self.set.encoder, self.task)

    @property
    def rectified(self) -> bool:
        """Whether others count on encodings of 0 or more, as the usual encoders give."""
        return False

    # -- what a subclass writes -------------------------------------------------------------------

    @abstractmethod
    def build(self, net: Network) -> None:
        """Make the models of the members here, with `self.stack`."""

    @abstractmethod
    async def train(self, net: Network) -> None:
        """The choreography of training, over `self.data.train`."""

    @abstractmethod
    async def predict(self, net: Network, part: Part) -> Tensor:
        """The choreography of prediction: logits at the label holder. [rows, classes]"""

    # -- what it can use --------------------------------------------------------------------------

    @cached_property
    def ballot(self) -> Ballot:
        """What the label holder knows of the versions that may be the best."""
        return Ballot(self.world().parties)

    def world(self, **facts: Any) -> World:
        """The federation of this algorithm; `facts`: topology, fault, delays."""
        return World(self.groups, self.columns, seed=self.task.seed, **facts)

    def join(self, net: Network, data: VerticalData) -> None:
        """Take the data of the members here and build their models."""
        self.data = Holding.at(net, data, self.columns, self.labels, pooled=self.pooled)
        self.build(net)

    def stack(
        self,
        net: Network,
        name: str,
        group: Group,
        factory: Callable[[int], nn.Module],
        *,
        input_widths: Sequence[int] | None = None,
        **overrides: Any,
    ) -> Stack:
        """The models of a group: `factory(i)` makes member i's, from its own stream of
        randomness."""
        here = net.here(group)
        modules = [seeded(self._seed(group, i, name), factory, i) for i in here]
        stack = Stack(
            modules,
            self.optimizer(group, **overrides),
            input_widths=None if input_widths is None else [input_widths[i] for i in here],
            seeds=[self._seed(group, i, f"{name} noise") for i in here],
            compile=self.set.compile,
        )
        self.stacks[name] = (group, stack)
        return stack

    def encoder_stack(self, net: Network, clients: Group, **overrides: Any) -> Stack:
        """The clients' encoders, as the settings describe them."""
        task, spec = self.task, self.set.encoder
        return self.stack(
            net,
            "encoder",
            clients,
            lambda i: make_encoder(spec, task.widths[i], task.shapes[i]),
            input_widths=task.widths,
            **overrides,
        )

    def _seed(self, group: Group, member: int, purpose: str) -> int:
        return seed_of(self.task.seed, group.parties[member], purpose)

    def optimizer(self, group: Group, **overrides: Any) -> Optimizer:
        s = self.set
        lr = s.lr
        if isinstance(lr, dict):
            names = [g.name for g in self.groups if g.name not in self.outside]
            if (
                set(lr) - set(self.optional) != set(names) - set(self.optional)
                or group.name not in lr
            ):
                raise InputError(f"lr: expected a rate for each of {', '.join(names)}, got {lr}")
            lr = lr[group.name]
        rule = Optimizer(s.optimizer, lr, s.momentum, s.weight_decay)
        return replace(rule, **overrides)

    @property
    def epochs(self) -> int | None:
        """Of the training with labels, if they were given."""
        return self.set.epochs

    @cached_property
    def batches(self) -> Batches:
        rows = self.task.rows["train"]
        size = min(self.set.batch, rows)
        return Batches(rows, size, self.usual + self.extra_epochs, self.task.seed)

    @cached_property
    def usual(self) -> int:
        """Epochs of the training with labels, unless it stops earlier."""
        rows = self.task.rows["train"]
        size = min(self.set.batch, rows)
        return self.epochs or min(MOST_EPOCHS, max(self.usual_epochs, -(-ROUNDS * size // rows)))

    @property
    def labelled_rounds(self) -> int:
        return self.usual * self.batches.per_epoch

    @property
    def total_rounds(self) -> int:
        """Usually at most so many rounds, for the progress bar."""
        return self.unlabelled_rounds + self.labelled_rounds

    @property
    def unlabelled_rounds(self) -> int:
        """So many rounds come first in which the label holder has nothing to do."""
        return 0

    def own_rounds(self, party: str) -> range:
        """Those in which a party needs nobody: a real one that was away does them when it is
        back."""
        return range(self.unlabelled_rounds if party in self.columns.parties else 0)

    @property
    def patience(self) -> int:
        """Epochs without better validation before stopping: 10, or a sixth of many, unless set."""
        return self.set.patience or max(10, self.usual // 6)

    def predict_rows(self, net: Network) -> int:
        """Rows per exchange of a prediction: faults hold for a batch, as in training."""
        return self.set.batch if net.faulty else PREDICT_ROWS

    async def end_of_round(self, net: Network, batch: Batch, loss: Any) -> bool:
        """Add up the losses; after the last batch of an epoch measure this version of the model
        where the labels are, agree on the best version and on whether to stop, and keep the parts
        of the best."""
        self._losses = self._losses + loss
        locally(net.check_loss, loss)
        if not batch.last:
            return False
        total, self._losses = self._losses, 0.0
        measured = bool(self.data.validation.rows)
        decision = await (self.decide if measured else self.go_on)(net, batch, total)
        self.keep_versions(net, decision)
        self.progress |= {"stopped": decision.stop, "best": decision.best}
        self.keep(net)
        return decision.stop

    def keep_versions(self, net: Network, decision: Decision) -> None:
        """Keep the parts that were decided on, as far as they are here: a party that was away then
        has none, and makes up none."""
        if self.versions.final is not None:
            return  # it serves for all versions to come
        wanted = (decision.best, decision.sure)
        self.versions.keep_only(wanted)
        if net.round in wanted and decision.version not in self.versions.parts:
            self.versions.take(net, decision.version)
        self.versions.announce(net)

    def keep(self, net: Network, rounds: int | None = None) -> None:
        """Keep the state of the parties here as it is after so many rounds; those begun if not
        told."""
        if self.checkpoints is not None:
            done = net.rounds_begun if rounds is None else rounds
            checkpoint.keep(self, net, self.checkpoints, done, self.writer)

    async def decide(self, net: Network, batch: Batch, loss: Any) -> Decision:
        """The best version so far and whether to stop, told to everybody by the label holder."""
        apart = net.within("validation")
        logits, y = await self.validate(apart), self.data.validation.y
        found = locally(measure, logits, y, "validation")
        verdict = locally(lambda *args: self.judge(net, apart, batch, *args), loss, found)
        if not is_absent(verdict) and verdict.over and not verdict.stop and verdict.lacking:
            await net.reunite()  # those who lack the best version may be away, and return
            gone = set(net.away_since(net.now, verdict.lacking)) == set(verdict.lacking)
            verdict = replace(verdict, stop=gone)
        told = await net.agree(locally(lambda verdict: verdict.numbers(), verdict), self.labels)
        return Decision.of(told, (net.generation, net.round))

    async def go_on(self, net: Network, batch: Batch, loss: Any) -> Decision:
        """Without validation rows the newest version is the best; nobody has to be told."""
        locally(lambda loss: self._tell(net, batch, loss, {}), loss)
        version = (net.generation, net.round)
        before = int(self.progress["best"])
        if net.here(self.labels):
            self.ballot.add(net, version, float(net.round), 0.0)
            _, sure = self.ballot.settle(net)
            before = before if sure is None else sure.version[1]
        return Decision(net.round, before, batch.epoch + 1 >= self.usual, version)

    async def validate(self, net: Network) -> Any:
        """Logits of the validation rows, where the labels are."""
        return await self.predict(net, self.data.validation)

    def _tell(self, net: Network, batch: Batch, loss: Any, metrics: dict[str, float]) -> None:
        mean = float(torch.as_tensor(loss).mean()) / self.batches.per_epoch
        self.watch(Point(net.round + 1, batch.epoch + 1, {"train_loss": mean, **metrics}))

    def judge(
        self, net: Network, apart: Network, batch: Batch, loss: Any, metrics: dict[str, float]
    ) -> Decision:
        """What the label holder tells everybody, given the losses of this epoch and the validation,
        which was measured on `apart`."""
        self._tell(net, batch, loss, metrics)
        accuracy, value = metrics["validation_accuracy"], metrics["validation_loss"]
        new = self.ballot.add(apart, (net.generation, net.round), accuracy, value)
        best, sure = self.ballot.settle(net)
        self.count_patience(value, best is new, self.ballot.complete(new))
        if best is new:
            self.progress |= {"accuracy": accuracy, "loss": value}
            self.versions.take(net, new.version)  # before anybody is told, so that it is not lost
        lacking = [] if self.frozen else [p for p in self.ballot.parties if p not in best.company]
        whole = not lacking and (self.frozen or not self.behind())
        stop, over = self.when_to_stop(batch, whole)
        rounds = best.version[1], -1 if sure is None else sure.version[1]
        return Decision(*rounds, stop, new.version, over, tuple(lacking))

    def count_patience(self, loss: float, better: bool, complete: bool = True) -> None:
        """Epochs without a better version. On a plateau the loss creeps down long before the
        accuracy moves: not standing still. Nor is an epoch counted that somebody missed."""
        so_far = self.progress
        if better or loss < so_far["lowest"]:
            so_far["waited"] = 0
        elif complete:
            so_far["waited"] += 1
        so_far["lowest"] = min(so_far["lowest"], loss)

    def when_to_stop(self, batch: Batch, whole: bool) -> tuple[bool, bool]:
        """Whether to stop, and whether the training is over as far as its epochs and its patience
        go: if somebody lacks the best version or missed rounds (not `whole`), `extra_epochs`
        follow."""
        so_far = self.progress
        over = so_far["waited"] >= self.patience or batch.epoch + 1 >= self.usual
        if over and so_far["over"] < 0:
            so_far["over"] = batch.epoch
        if not over or whole:
            so_far["over"] = batch.epoch if over else -1
        spent = batch.epoch - so_far["over"] >= self.extra_epochs
        last = batch.epoch + 1 >= self.batches.epochs
        return over and (whole or spent or last), over

    def keep_best(self) -> None:
        """Go back to the best version, as far as this party has its part."""
        best = self.versions.newest_of(int(self.progress["best"]))
        if best is not None:
            self.versions.load(best)

    async def freeze(self, net: Network, *stacks: str) -> None:
        """The models of these stacks are final from here on. Every party keeps them before anything
        is made of them, and waits for the others. A party that comes too late for that has no part
        of this model."""
        mark = net.rounds_begun
        mine = [name for name, (group, _) in self.stacks.items() if net.here(group)]
        whole = all(name in stacks for name in mine)  # nothing of this party changes any more

        def keep(late: bool) -> bool:
            if not whole:
                if not late:
                    self.keep_now(net)
                return True
            if self.versions.final is None and not late:
                self.versions.take(net, (net.generation, mark), final=True)
            if self.versions.final is not None:
                self.versions.load(self.versions.final)
            return self.versions.final is not None

        await net.commit(keep)
        self.frozen = True
        if net.here(self.labels) and self.committed != mark:
            self.committed = mark
            self.keep_now(net)
            self.versions.announce(net)

    def remember(self, net: Network, name: str, value: Any) -> None:
        """Keep something where the labels are, beside the models. After a restart what was kept
        before holds: exchanges that lie in the past bring nothing."""
        self.memory.setdefault(name, value if net.here(self.labels) else ABSENT)

    def resume(self, net: Network) -> bool:
        """Go on where the parties here were when they last kept their state, if they did."""
        return self.checkpoints is not None and checkpoint.resume(self, net, self.checkpoints)

    async def evaluate(self, net: Network) -> dict[str, float]:
        """Metrics on the test rows, told where the labels are."""
        return await self.test(net.within("inference")) if self.data.test.rows else {}

    async def test(self, net: Network) -> dict[str, float]:
        logits, y = await self.predict(net, self.data.test), self.data.test.y
        if is_absent(logits):
            return {}
        right = (logits.argmax(1) == y).double().split(self.predict_rows(net))
        self.course = [float(batch.mean()) for batch in right]
        return measure(logits, y, "test")

    # -- models as files --------------------------------------------------------------------------

    def save(self, folder: Path, net: Network, *, durable: bool = False) -> None:
        """One safetensors file per party that runs here. `durable`: it survives a power cut."""
        for party, tensors in self.tensors(net).items():
            checkpoint.write(folder / f"{party}.safetensors", tensors, {}, durable=durable)

    def load(self, folder: Path, net: Network) -> None:
        for party, tensors in self.tensors(net).items():
            stored = safetensors.torch.load_file(folder / f"{party}.safetensors")
            with torch.no_grad():
                for name, value in tensors.items():
                    value.copy_(stored[name])

    def tensors(self, net: Network) -> dict[str, dict[str, Tensor]]:
        """By party and name, as views of the stacks."""
        files: dict[str, dict[str, Tensor]] = {}
        for name, (group, stack) in self.stacks.items():
            for i, member in enumerate(net.here(group)):
                mine = files.setdefault(group.parties[member], {})
                mine.update({f"{name}.{k}": v for k, v in stack.member_state(i).items()})
        return files


def measure(logits: Tensor, y: Tensor, part: str) -> dict[str, float]:
    accuracy = (logits.argmax(1) == y).double().mean()
    return {
        f"{part}_accuracy": float(accuracy),
        f"{part}_loss": float(F.cross_entropy(logits.double(), y)),
    }
