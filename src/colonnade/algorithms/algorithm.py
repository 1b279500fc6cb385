"""What every algorithm is: settings, declared exchanges, and two choreographies, `train` and
`predict`.

To add one, put a file into this folder with a `Settings` struct and an `Algorithm` subclass;
nothing else changes. The experiment file, the command line, the documentation of what leaves a
party and the algorithm test kit find it there.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
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
from colonnade.algorithms.models import make_encoder
from colonnade.algorithms.task import Batch, Batches, Holding, Part, Task
from colonnade.data.partition import VerticalData
from colonnade.errors import InputError
from colonnade.models.optim import Optimizer
from colonnade.models.stack import Stack
from colonnade.network import ABSENT, Group, Network, is_absent, locally
from colonnade.network.network import World
from colonnade.seeds import seed_of, seeded

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


DECISION = "whether to go on and which epoch was the best so far; two numbers per epoch"


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
        self.checkpoints: Path | None = None  # where parties keep their state after every epoch
        # The best validation so far (accuracy, loss), the lowest loss, epochs without either; the
        # round whose models are the best.
        self.progress: dict[str, float] = {"accuracy": -1, "loss": 1e300, "lowest": 1e300}
        self.progress |= {"waited": 0, "stopped": 0, "best": -1}
        self.best_models: dict[str, Any] = {}
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
        epochs = self.epochs or min(MOST_EPOCHS, max(self.usual_epochs, -(-ROUNDS * size // rows)))
        return Batches(rows, size, epochs, self.task.seed)

    @property
    def total_rounds(self) -> int:
        """At most so many rounds, for the progress bar."""
        return len(self.batches)

    @property
    def unlabelled_rounds(self) -> int:
        """So many rounds come first in which the label holder has nothing to do."""
        return 0

    @property
    def patience(self) -> int:
        """Epochs without better validation before stopping: 10, or a sixth of many, unless set."""
        return self.set.patience or max(10, self.batches.epochs // 6)

    def predict_rows(self, net: Network) -> int:
        """Rows per exchange of a prediction: faults hold for a batch, as in training."""
        return self.set.batch if net.faulty else PREDICT_ROWS

    async def end_of_round(self, net: Network, batch: Batch, loss: Any) -> bool:
        """Add up the losses; after the last batch of an epoch validate where the labels are, keep
        the best models, and agree whether to stop."""
        self._losses = self._losses + loss
        if not batch.last:
            return False
        total, self._losses = self._losses, 0.0
        if not self.data.validation.rows:
            locally(lambda total: self._tell(net, batch, total, {}), total)
            self.keep(net)
            return False
        best, stop = await self.decide(net, batch, total)
        if best != self.progress["best"]:  # this round's; or a party was away when it was told
            self.best_models = {name: stack.snapshot() for name, (_, stack) in self.stacks.items()}
        self.progress |= {"stopped": stop, "best": best}
        self.keep(net)
        return bool(stop)

    def keep(self, net: Network, rounds: int | None = None) -> None:
        """Keep the state of the parties here as it is after so many rounds; those begun if not
        told."""
        if self.checkpoints is not None:
            done = net.rounds_begun if rounds is None else rounds
            checkpoint.keep(self, net, self.checkpoints, done)

    async def decide(self, net: Network, batch: Batch, loss: Any) -> Sequence[float]:
        """The round with the best models so far, and whether to stop, told to everybody by who
        holds the labels."""
        logits, y = await self.validate(net), self.data.validation.y
        found = locally(measure, logits, y, "validation")
        verdict = locally(lambda *args: self.judge(net, batch, *args), loss, found)
        return await net.agree(verdict, self.labels)

    async def validate(self, net: Network) -> Any:
        """Logits of the validation rows, where the labels are."""
        return await self.predict(net.within("validation"), self.data.validation)

    def _tell(self, net: Network, batch: Batch, loss: Any, metrics: dict[str, float]) -> None:
        mean = float(torch.as_tensor(loss).mean()) / self.batches.per_epoch
        self.watch(Point(net.round + 1, batch.epoch + 1, {"train_loss": mean, **metrics}))

    def judge(self, net: Network, batch: Batch, loss: Any, metrics: dict[str, float]) -> Tensor:
        """What `decide` is to tell, given the losses of this epoch and the validation."""
        self._tell(net, batch, loss, metrics)
        accuracy, value = metrics["validation_accuracy"], metrics["validation_loss"]
        so_far = self.progress
        better = self.better(accuracy, value)
        # On a plateau the loss creeps down long before the accuracy moves: not standing still.
        so_far["waited"] = 0 if better or value < so_far["lowest"] else so_far["waited"] + 1
        so_far["lowest"] = min(so_far["lowest"], value)
        if better:
            so_far |= {"accuracy": accuracy, "loss": value}
        best = net.round if better else so_far["best"]
        return torch.tensor([float(best), float(so_far["waited"] >= self.patience)])

    def better(self, accuracy: float, loss: float) -> bool:
        """Than the best validation so far."""
        return (accuracy, -loss) > (self.progress["accuracy"], -self.progress["loss"])

    def keep_best(self) -> None:
        """Go back to the models of the epoch with the best validation."""
        for name, snapshot in self.best_models.items():
            self.stacks[name][1].restore(snapshot)

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

    def save(self, folder: Path, net: Network) -> None:
        """One safetensors file per party that runs here."""
        folder.mkdir(parents=True, exist_ok=True)
        for party, tensors in self.tensors(net).items():
            safetensors.torch.save_file(
                {name: value.contiguous() for name, value in tensors.items()},
                folder / f"{party}.safetensors",
            )

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
