"""What every algorithm is: settings, declared exchanges, and two choreographies, `train` and
`predict`.

To add one, put a file into `colonnade/algorithms/` with a `Settings` struct and an `Algorithm`
subclass; nothing else changes. The experiment file, the command line, the documentation of what
leaves a party and the algorithm test kit find it there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import msgspec
import safetensors.torch
import torch
from torch import Tensor, nn

from colonnade.common.curves import Curves
from colonnade.common.seeds import seed_of, seeded
from colonnade.common.user_code import Source
from colonnade.data.partition import VerticalData
from colonnade.errors import InputError
from colonnade.learning import checkpoint
from colonnade.learning.curves import curves_of
from colonnade.learning.declare import (
    EVERYONE,
    Columns,
    Exchange,
    LabelHolder,
    Members,
    declared,
)
from colonnade.learning.decorrelation import penalty_of
from colonnade.learning.goal import LABEL, LabelScale, spread
from colonnade.learning.held_rows import HeldRows
from colonnade.learning.hidden_labels import HiddenLabels
from colonnade.learning.models import encoder_widths, make_encoder, make_head
from colonnade.learning.private_labels import PrivateLabels
from colonnade.learning.releases import Releases
from colonnade.learning.settings import Settings
from colonnade.learning.state import State
from colonnade.learning.task import Batches, Holding, LocalBatches, Part, Task
from colonnade.learning.training import DECIDED, DECISION, Training
from colonnade.models.layers import Loss
from colonnade.models.optim import Optimizer, Share
from colonnade.models.proximal import Proximal
from colonnade.models.stack import Stack
from colonnade.network import Group, Network, is_absent, locally
from colonnade.network.inbox import masked
from colonnade.network.network import World
from colonnade.network.rounding import Rounding
from colonnade.network.spec import Wire
from colonnade.privacy.noise import ClipRows
from colonnade.privacy.spec import LabelPrivacy

ENCODER = "encoder"  # the name of the models whose outputs column holders send
PREDICT_ROWS = 4096  # rows per exchange when nothing can fail
# What hides labels, in the order in which it is advised.
REMEDIES = (
    ({"hide_labels": 16.0}, "hide_labels = 16 hides some of it"),
    ({"label_privacy": LabelPrivacy(epsilon=1.0)}, "label_privacy = { epsilon = 1 } bounds it"),
)

Kept = TypeVar("Kept", bound=State)


def _decision(holder: LabelHolder) -> Exchange:
    return Exchange(holder, EVERYONE, DECISION, width=DECIDED, kind="decision")


class Algorithm(ABC):
    """One global program over groups of parties. The body of a subclass declares its groups and its
    exchanges."""

    name: ClassVar[str]
    settings: ClassVar[type[Settings]] = Settings
    exchanges: ClassVar[tuple[Exchange, ...]]  # what the class declares, and the decisions
    optional: ClassVar[tuple[str, ...]] = ()  # groups that some settings do without
    led: ClassVar[bool] = True  # by who holds the labels; else all are equal
    outside: ClassVar[tuple[str, ...]] = ()  # groups that only use the model
    side_by_side: ClassVar[bool] = False  # trains by programs that go at their own pace
    # The label holder is to learn sums over parties only: predictions with and without a party,
    # side by side, would tell it more.
    sums_only: ClassVar[bool] = False
    # It can do without a column holder for single rows: see held_rows.py. Whoever receives
    # encodings must hold the labels: only label holders know which rows each party has.
    takes_partial_rows: ClassVar[bool] = False
    usual_epochs: ClassVar[int] = 60
    stops_early: ClassVar[bool] = True
    control: ClassVar[type[Training]] = Training

    def __init_subclass__(cls, **facts: Any) -> None:
        super().__init_subclass__(**facts)
        if "exchanges" in vars(cls):
            raise TypeError(f"{cls.__name__}: declare each exchange as an attribute: see Exchange")
        groups = declared(cls, Members)
        holders = [group for group in groups if isinstance(group, LabelHolder)]
        decision = [_decision(holder) for holder in holders if cls.led and len(groups) > 1]
        cls.exchanges = (*declared(cls, Exchange), *decision)

    def __init__(self, settings: Any, task: Task) -> None:
        self.set = settings.resolved()
        self.task = task
        wire: Wire | None = self.set.wire
        self.rounding = None if wire is None else Rounding(wire)
        self.stacks: dict[str, tuple[Group, Stack]] = {}
        self.state: dict[str, tuple[Group, State]] = {}  # what must survive a crash, beside those
        self.own_code: Mapping[str, Source] = {}  # which code of the user's own runs here
        self.labels_are_told = False  # real parties say which rows they have labels of
        self.course: list[float] = []  # the last test, batch by batch: `goal.by_row` of it
        self.test_curves: Curves | None = None  # of the last test
        none = torch.zeros(0, dtype=torch.int64)
        self.loss: Loss = task.goal.training_loss(none)
        self.proximal: Proximal = task.goal.training_proximal(none)
        self.rate_in_use = Share()
        self.training = self.control(self)
        self.set.check(task)
        self.held_rows = HeldRows(self) if task.partial else None
        self.releases = None if self.set.noise is None else Releases(self, self.set.noise)
        hide, private = self.set.hiding, self.set.label_privacy
        self.hidden_labels = None if hide is None else HiddenLabels(self, hide)
        self.private_labels = None if private is None else PrivateLabels(self, private)
        self.penalty = penalty_of(self)  # on encodings

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Those that have members under these settings."""
        all_: list[Group] = [getattr(self, one.name) for one in declared(type(self), Members)]
        return tuple(group for group in all_ if len(group))

    @cached_property
    def columns(self) -> Group:
        """The column holders."""
        return self._declared(Columns)

    @cached_property
    def labels(self) -> Group:
        """Those who hold the labels: one party, unless all decide for themselves."""
        return self._declared(LabelHolder)

    def _declared(self, kind: type[Members]) -> Group:
        found = [one for one in declared(type(self), Members) if isinstance(one, kind)]
        if len(found) != 1:
            raise TypeError(f"{type(self).__name__}: declare one {kind.__name__}, not {len(found)}")
        return getattr(self, found[0].name)

    def labelled_by(self, party: str) -> Tensor:
        """The numbers of the training rows that a party holds labels of, in a simulation."""
        return torch.arange(self.task.rows["train"] if party in self.labels.parties else 0)

    @cached_property
    def decider(self) -> Group:
        """The party that measures versions of the model and decides; where nobody leads, all."""
        return self.labels.only(0) if self.led and len(self.labels) > 1 else self.labels

    @property
    def informed(self) -> tuple[str, ...]:
        """The parties that know how well the model does on the test rows."""
        return self.decider.parties

    @property
    def leader(self) -> str | None:
        """The party whose round the others follow."""
        return self.labels.parties[0] if self.led else None

    @cached_property
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
        """The choreography of prediction: a head's outputs at the label holder. [rows, outputs]"""

    def caution(self) -> str:
        """What whoever starts a training should know before labels leave; "" if nothing."""
        decided = self.set.hide_labels is not None or self.set.label_privacy is not None
        if decided or self.task.classes != 2 or not self.telling_labels:
            return ""
        return (
            f"{self.name}: with two classes, the gradients tell every column holder the label of "
            f"each training row. {self._remedy()}, hide_labels = 0 ends this warning; `colonnade "
            "audit` measures it"
        )

    def _remedy(self) -> str:
        """The key that hides labels and that this method takes with these settings."""
        for more, remedy in REMEDIES:
            with suppress(InputError):
                type(self)(msgspec.structs.replace(self.set, **more), self.task)
                return remedy
        return "only with aggregators = 1 can that be hidden"

    # -- what it can use --------------------------------------------------------------------------

    @cached_property
    def telling_labels(self) -> tuple[Exchange, ...]:
        """The exchanges by which column holders that have no labels are told of those of single
        rows."""
        if set(self.columns.parties) <= set(self.labels.parties) and not self.led:
            return ()
        told = declared(type(self), Exchange)
        return tuple(exchange for exchange in told if exchange.tells_labels)

    def world(self, **facts: Any) -> World:
        """The federation of this algorithm; `facts`: topology, fault, delays."""
        return World(self.groups, self.columns, seed=self.task.seed, **facts)

    def join(self, net: Network, data: VerticalData) -> None:
        """Take the data of the members here and build their models."""
        self.data = Holding.at(net, data, self.columns, self.labels, pooled=self.set.pooled)
        locally(self._look_at_labels, self.data.train.y)
        self.build(net)
        self._keep_residuals(net)
        if self.releases is not None:
            self.releases.join(net)
        for labels in (self.hidden_labels, self.private_labels):
            if labels is not None:
                labels.join(net)
        if not self.task.classes:
            self._scale_labels(net)

    def _keep_residuals(self, net: Network) -> None:
        """Of exchanges whose messages are of the same numbers every time, if they are rounded."""
        for exchange in declared(type(self), Exchange):
            if exchange.repeated and (channel := getattr(self, exchange.name)).residuals:
                channel.residuals.places = tuple(net.here(channel.src))
                name = f"rounding of {exchange.kind}"
                self.keeps(net, name, channel.src, channel.residuals)

    def hear_of_labels(self, party: str, rows: Tensor) -> None:
        """Which training rows one of several label holders has labels of, as it told."""
        raise TypeError(f"{self.name}: one party holds all labels")

    def _look_at_labels(self, y: Tensor) -> None:
        """Classes may be weighted by how often they occur."""
        self.loss = self.task.goal.training_loss(y)
        self.proximal = self.task.goal.training_proximal(y)

    def labels_to_learn(self) -> Any:
        """As the training begins: of each training row what is learnt, where the labels are.
        [rows], or with `label_privacy` [rows, classes]"""
        private, hidden = self.private_labels, self.hidden_labels
        y = private.begin() if private is not None else locally(self.scaled, self.data.train.y)
        if hidden is not None:
            locally(hidden.begin, y)
        return y

    @property
    def draws_for_labels(self) -> bool:
        """Whether a label holder draws noise that it must not draw again."""
        return self.private_labels is not None or self.hidden_labels is not None

    def privacy(self) -> dict[str, Any]:
        """For the results: what differential privacy the noise of a training gives."""
        found: dict[str, Any] = {} if self.releases is None else self.releases.facts()
        return found if self.private_labels is None else found | self.private_labels.facts()

    def _scale_labels(self, net: Network) -> None:
        """Each label holder keeps mean and scale of its number labels like a model: in checkpoints,
        in versions, in saved files."""
        members = len(net.here(self.labels))
        scales, rule = [LabelScale() for _ in range(members)], Optimizer("sgd", 1.0)
        stack = Stack(scales, rule, input_widths=[1] * members)
        self.stacks[LABEL] = (self.labels, stack)
        y = self.data.train.y
        for i in range(members if self.data.train.rows else 0):
            stack.load_member_state(i, {"mean": y.mean()[None], "scale": spread(y)[None]})

    @property
    def label_scale(self) -> tuple[float, float]:
        """Mean and scale of number labels, where the labels are; 0 and 1 for classes."""
        if LABEL not in self.stacks:
            return 0.0, 1.0
        known = self.stacks[LABEL][1].member_state(0)
        return float(known["mean"]), float(known["scale"])

    def scaled(self, y: Tensor) -> Tensor:
        """Labels as they are learnt."""
        return self.task.goal.learnt(y, *self.label_scale)

    def unscaled(self, outputs: Tensor) -> Tensor:
        """Outputs of a head as answers: numbers in the unit of the label; logits as they are."""
        return self.task.goal.answers(outputs, *self.label_scale)

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
            up=lambda: net.running.alive(group),
            up_alone=lambda place: net.running.alive(group.only(place)),
            places=here,
            compile=self.set.compile,
            penalty=self.penalty if name == ENCODER else None,
        )
        self.stacks[name] = (group, stack)
        return stack

    def encoder_stack(
        self,
        net: Network,
        clients: Group,
        *,
        width: int | None = None,
        how: Literal["mean", "sum"] = "mean",
        **overrides: Any,
    ) -> Stack:
        """The clients' encoders, as the settings describe them; with `width`, a linear layer
        follows that gives all embeddings the same width. `how` embeddings are joined: initial
        weights of polynomials depend on it."""
        task, spec = self.task, self.set.encoder
        parties = len(clients) if how == "mean" else 1 / len(clients)

        def make(i: int) -> nn.Module:
            encoder = make_encoder(spec, task.widths[i], task.shapes[i], parties=parties)
            if width is not None:
                encoder = nn.Sequential(encoder, nn.Linear(self.embedding_widths[i], width))
            return self.clipping(encoder)

        return self.stack(net, ENCODER, clients, make, input_widths=task.widths, **overrides)

    def clipping(self, encoder: nn.Module) -> nn.Module:
        """With `noise`, an encoder that clips by itself what `send` would clip: so the gradients
        that it is sent pass through the clipping."""
        noise = self.set.noise
        return encoder if noise is None else nn.Sequential(encoder, ClipRows(noise.clip))

    def head_stack(self, net: Network, holder: Group, width: int, **overrides: Any) -> Stack:
        """The label holder's head on inputs of a width, as the settings describe it."""
        return self.stack(
            net,
            "head",
            holder,
            lambda _: make_head(self.set.head, width, self.task.outputs),
            input_widths=[width] * len(holder),
            **overrides,
        )

    def keeps(self, net: Network, name: str, group: Group, state: Kept) -> Kept:
        """Declare what each member of a group must still know after a crash; see state.py."""
        state.members = len(net.here(group))
        self.state[name] = (group, state)
        return state

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
        rule = Optimizer(s.optimizer, lr, s.momentum, s.weight_decay, share=self.rate_in_use)
        return replace(rule, **overrides)

    @property
    def epochs(self) -> int | None:
        """The epochs of the training with labels; None: not given."""
        return self.set.epochs

    @property
    def total_rounds(self) -> int:
        """Usually at most so many rounds, for the progress bar."""
        return self.unlabelled_rounds + self.training.usual_rounds

    @property
    def epochs_alone(self) -> int:
        """The number of epochs at first in which column holders learn alone, without labels."""
        return 0

    @cached_property
    def local_batches(self) -> LocalBatches:
        """The batches of column holders that learn alone."""
        return LocalBatches.of(self.task, self.set.batch, self.epochs_alone)

    @property
    def unlabelled_rounds(self) -> int:
        """So many rounds come first in which the label holder has nothing to do."""
        return len(self.local_batches)

    def own_rounds(self, party: str) -> range:
        """Those in which a party needs nobody: a real one that was away does them when it is
        back."""
        return range(self.unlabelled_rounds if party in self.columns.parties else 0)

    def batches(self, rows: int, size: int, epochs: int) -> Batches:
        """The schedule of the training with labels: `size` of so many rows in each round."""
        return Batches(rows, size, epochs, self.task.seed)

    def planned_releases(self, epochs: int) -> dict[str, int]:
        """How often one row's encoding leaves its party, by part of the data, in so many epochs
        with labels. Usually once in each epoch, and validation rows once after each."""
        return {"train": epochs, "validation": epochs, "test": 1}

    def predict_rows(self, net: Network) -> int:
        """Rows per exchange of a prediction: faults hold for a batch, as in training."""
        return self.set.batch if net.faulty else PREDICT_ROWS

    async def validate(self, net: Network) -> Any:
        """A head's outputs for the validation rows, where the labels are."""
        return await self.predict(net, self.data.validation)

    async def evaluate(self, net: Network) -> dict[str, float]:
        """Metrics on the test rows, at those who are `informed`; elsewhere none."""
        return await self.test(net.within("inference")) if self.data.test.rows else {}

    async def test(self, net: Network) -> dict[str, float]:
        outputs, y = await self.predict(net, self.data.test), self.data.test.y
        if is_absent(outputs):
            return {}
        size, metric = self.predict_rows(net), self.task.goal.by_row
        batches = zip(self.unscaled(outputs).split(size), y.split(size), strict=True)
        self.course = [metric.of(answers, truth) for answers, truth in batches]
        return self.measure(outputs, y, "test")

    async def score(self, net: Network) -> float:
        """The deciding metric on the test rows, and nothing else, at those who are `informed`."""
        outputs = await self.predict(net, self.data.test)
        return self.task.goal.deciding.of(self.unscaled(outputs), self.data.test.y)

    def blind_score(self) -> float:
        """The deciding metric on the test rows of one who knows nothing but the prior of the
        training labels."""
        goal, y = self.task.goal, self.data.test.y
        prior = goal.unsure(goal.prior(self.data.train.y)).expand(len(y), -1)
        return goal.deciding.of(self.unscaled(prior), y)

    def embed(self, part: Part) -> Tensor | None:
        """What the column holders here tell of rows [column holders here, rows, width], as far as
        others ever see it; None where nobody does. Zeros for a row that its holder lacks."""
        known = self.stacks.get(ENCODER)
        if known is None:
            return None
        found = known[1].predict(part.x)
        return found if part.held is None else masked(found, part.held[known[1].places])

    def importance(self, net: Network) -> dict[str, float] | None:
        """How much the trained model itself makes of each column holder, by party, such as the norm
        of its head, as far as this process can tell; None for methods whose models say nothing of
        that kind."""
        return None

    def measure(
        self, outputs: Tensor, y: Tensor, part: str, *, everything: bool = True
    ) -> dict[str, float]:
        """Metrics of a head's outputs; see `Goal.measure`. Those of a test also set `curves`."""
        scale = self.label_scale[1]
        answers = self.unscaled(outputs)
        if part == "test":
            self.test_curves = curves_of(answers, y, self.task.classes)
        return self.task.goal.measure(answers, y, part, everything=everything, scale=scale)

    @property
    def activity(self) -> str:
        """What the parties here are doing, if it is something else than learning in rounds."""
        return ""

    def remarks(self) -> list[str]:
        """What a reader of the result must know of this training, as far as it is known here."""
        return []

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
