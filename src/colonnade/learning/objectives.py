"""Objectives by which a party learns an encoder without labels.

`autoencoder`: a decoder reconstructs the inputs. `simclr`: two views of a row are told from all
other rows (Chen et al., "A simple framework for contrastive learning of visual representations",
2020). `barlow`: two views of a row agree, and no feature repeats another (Zbontar et al., "Barlow
Twins", 2021). `noise`: every row is mapped to a random point of the unit sphere, its target, and
rows of a batch exchange targets where that brings them nearer (Bojanowski and Joulin, "Unsupervised
learning by predicting noise", 2017), as in FedOnce.

Nothing here is sent: an objective concerns one party at a time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from colonnade.common.devices import to_device
from colonnade.common.seeds import torch_stream
from colonnade.learning.models import encoder_widths, make_decoder, make_encoder
from colonnade.learning.state import Numbers, Table
from colonnade.learning.task import Holding, LocalBatches, Task, pad_stack
from colonnade.models.stack import Stack
from colonnade.network import Group, Network, local, locally

if TYPE_CHECKING:
    from colonnade.learning.algorithm import Algorithm

# How encoders learn without labels, whatever the optimiser of the head (DVFL, appendix D.3).
UNSUPERVISED: dict[str, Any] = {"kind": "adam", "momentum": 0.0, "weight_decay": 1e-5}

PROJECTION = 50  # width of the space in which views are compared (DVFL, appendix F.3)
TEMPERATURE = 0.5
OFF_DIAGONAL = 5e-3  # Barlow Twins' weight of what features share
MASKED, NOISE = 0.3, 0.1  # share of a table's entries left out of a view; noise on the others
REASSIGN = 3  # epochs between two exchanges of noise targets

NO_ROWS = torch.arange(0)

Factory = Callable[[int], nn.Module]


@dataclass(frozen=True)
class Pupils:
    """A group whose members learn encoders, and the public facts that this needs, by member."""

    group: Group
    shapes: tuple[tuple[int, ...], ...]  # of an input: (width,) or (channels, height, width)
    codes: tuple[int, ...]  # widths of the encodings
    encoder: Factory
    decoder: Factory
    names: tuple[str, str] = ("encoder", "decoder")  # of the stacks

    @classmethod
    def of_columns(cls, clients: Group, task: Task, encoder: Any, decoder: Any) -> Pupils:
        """Column holders, with encoders and decoders as the settings describe them."""
        codes = encoder_widths(encoder, task)
        return cls(
            clients,
            task.shapes,
            codes,
            encoder=lambda i: make_encoder(encoder, task.widths[i], task.shapes[i]),
            decoder=lambda i: make_decoder(decoder, encoder, codes[i], task.shapes[i]),
        )

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(math.prod(shape) for shape in self.shapes)


class Objective(ABC):
    """The encoders of a group, and the helper models with which they learn without labels."""

    name: ClassVar[str]

    def __init__(self, algorithm: Algorithm, net: Network, pupils: Pupils, **rule: Any) -> None:
        """`rule`: settings of the optimiser that differ from the usual ones."""
        self.pupils, self.seed = pupils, algorithm.task.seed
        self.here = net.here(pupils.group)
        first, second = pupils.names
        self.encoders: Stack = algorithm.stack(
            net, first, pupils.group, pupils.encoder, input_widths=pupils.widths, **rule
        )
        self.helpers: Stack = algorithm.stack(
            net, second, pupils.group, self.helper, input_widths=pupils.codes, **rule
        )

    @abstractmethod
    def helper(self, member: int) -> nn.Module:
        """The model that takes the encoder's output while a member learns: a decoder or a
        projector."""

    async def learn_alone(self, net: Network, data: Holding, batches: LocalBatches) -> None:
        """Every member learns by itself, on its own columns; nothing is sent."""
        async for batch in net.rounds(batches):
            x, rows = data.alone(batch)
            locally(net.check_loss, self.learn(x, net.round, rows))

    @abstractmethod
    def encode(self, x: Tensor) -> Tensor:
        """Encodings of rows that `learn` is called with next. [members here, rows, width]"""

    @abstractmethod
    def learn(
        self, x: Tensor, round: int, rows: Tensor = NO_ROWS, where: Tensor | None = None
    ) -> Tensor:
        """One step for the members where `where` is True; without it, for those that are up.
        Returns the loss of each member here. `rows`: the numbers of the rows of x, for an objective
        that keeps something for each row; `round`: the number of the step, for its randomness."""

    def predict(self, x: Tensor) -> Tensor:
        return self.encoders.predict(x)

    def stream(self, member: int, *purpose: str | int) -> torch.Generator:
        """The randomness of the i-th member here."""
        party = self.pupils.group.parties[self.here[member]]
        return torch_stream(self.seed, party, self.name, *purpose)


class Autoencoder(Objective):
    name = "autoencoder"

    def __init__(self, algorithm: Algorithm, net: Network, pupils: Pupils, **rule: Any) -> None:
        super().__init__(algorithm, net, pupils, **rule)
        self.mine = torch.tensor([pupils.widths[i] for i in self.here])
        self._encoded: tuple[Any, Any] = (None, None)

    def helper(self, member: int) -> nn.Module:
        return self.pupils.decoder(member)

    def encode(self, x: Tensor) -> Tensor:
        self._encoded = (x, self.encoders(x))
        return self._encoded[1]

    def learn(
        self, x: Tensor, round: int, rows: Tensor = NO_ROWS, where: Tensor | None = None
    ) -> Tensor:
        h = self._encoded[1] if self._encoded[0] is x else self.encoders(x)
        self._encoded = (None, None)
        loss, gradient = self.helpers.learn(h, x, self.reconstruction, where)
        self.encoders.backward(h, gradient, where)
        return loss

    def reconstruction(self, output: Tensor, x: Tensor) -> Tensor:
        """Mean squared error over each member's own inputs, without padding. [members here]"""
        error = output - x[..., : output.shape[-1]]
        return error.square().sum(2).mean(1) / self.mine


class TwoViews(Objective):
    """Two views of every row, and a projector to the space in which they are compared."""

    def helper(self, member: int) -> nn.Module:
        # Batch statistics only: the projector is used in training only. No bias before a
        # normalisation, which would subtract it: Adam would turn rounding errors into steps.
        norm = lambda: nn.BatchNorm1d(PROJECTION, track_running_stats=False)  # noqa: E731
        first = nn.Linear(self.pupils.codes[member], PROJECTION, bias=False)
        second = nn.Linear(PROJECTION, PROJECTION, bias=False)
        third = nn.Linear(PROJECTION, PROJECTION)
        return nn.Sequential(first, norm(), nn.ReLU(), second, norm(), nn.ReLU(), third)

    def encode(self, x: Tensor) -> Tensor:
        return self.predict(x)

    def learn(
        self, x: Tensor, round: int, rows: Tensor = NO_ROWS, where: Tensor | None = None
    ) -> Tensor:
        h = self.encoders(self.views(x, round))  # [members here, 2 · rows, width]
        loss, gradient = self.helpers.learn(h, h, self.disagreement, where)
        self.encoders.backward(h, gradient, where)
        return loss

    @local
    def views(self, x: Tensor, round: int) -> Tensor:
        """[members here, 2 · rows, width]"""
        seen = []
        for i, member in enumerate(self.here):
            shape, width = self.pupils.shapes[member], self.pupils.widths[member]
            stream = self.stream(i, round)
            mine = x[i, :, :width]
            seen.append(torch.cat([view(mine, shape, stream) for _ in range(2)]))
        return pad_stack(seen, x.shape[-1])

    @staticmethod
    @abstractmethod
    def disagreement(z: Tensor, _: Tensor) -> Tensor:
        """The loss of two views, the halves of z: [members, 2 · rows, width] → [members]"""


class SimCLR(TwoViews):
    name = "simclr"

    @staticmethod
    def disagreement(z: Tensor, _: Tensor) -> Tensor:
        """Cross entropy of finding a row's other view among all other views."""
        members, views, _width = z.shape
        z = F.normalize(z, dim=2)
        likeness = z @ z.transpose(1, 2) / TEMPERATURE
        likeness = likeness.masked_fill(torch.eye(views, dtype=torch.bool), -torch.inf)
        other = torch.arange(views).roll(views // 2).expand(members, views)
        losses = F.cross_entropy(likeness.flatten(0, 1), other.reshape(-1), reduction="none")
        return losses.view(members, views).mean(1)


class BarlowTwins(TwoViews):
    name = "barlow"

    @staticmethod
    def disagreement(z: Tensor, _: Tensor) -> Tensor:
        """How far the correlations between the two views' features are from the identity."""
        one, two = (_standardised(half) for half in z.chunk(2, dim=1))
        correlation = one.transpose(1, 2) @ two / one.shape[1]
        off = (correlation - torch.eye(z.shape[2])).square()
        weight = torch.full((z.shape[2], z.shape[2]), OFF_DIAGONAL).fill_diagonal_(1.0)
        return (weight * off).sum((1, 2))


class NoiseTargets(Objective):
    """The encoder's output is mapped linearly and scaled to length 1 before it is compared with its
    target, so that any encoder can be used, also one that ends in a ReLU."""

    name = "noise"

    def __init__(self, algorithm: Algorithm, net: Network, pupils: Pupils, **rule: Any) -> None:
        super().__init__(algorithm, net, pupils, **rule)
        known = algorithm.task.rows
        self.per_epoch = max(1, known["train"] + known["extra"])
        width, name = max(pupils.codes), pupils.names[0]
        drawn = [self._draw(i, pupils.codes[m]) for i, m in enumerate(self.here)]
        targets = Table(pad_stack(drawn, width) if drawn else torch.zeros(0, 0, width))
        self.targets = algorithm.keeps(net, f"{name} targets", pupils.group, targets)
        self.rows = algorithm.keeps(net, f"{name} rows", pupils.group, Numbers(seen=0))

    def _draw(self, member: int, width: int) -> Tensor:
        stream = self.stream(member, "targets")
        points = torch.randn(self.per_epoch, width, generator=stream, device="cpu")
        return F.normalize(to_device(points), dim=1)

    def helper(self, member: int) -> nn.Module:
        width = self.pupils.codes[member]
        return nn.Linear(width, width)

    def encode(self, x: Tensor) -> Tensor:
        return self.predict(x)

    def learn(
        self, x: Tensor, round: int, rows: Tensor = NO_ROWS, where: Tensor | None = None
    ) -> Tensor:
        epoch = self.rows["seen"] // self.per_epoch
        self.rows["seen"] += len(rows)
        h, where = self.encoders(x), self.encoders.stepping(where)
        if epoch % REASSIGN == 0:
            self.reassign(h, where, rows)
        target = self.targets.read(rows)
        loss, gradient = self.helpers.learn(h, target, distance, where)
        self.encoders.backward(h, gradient, where)
        return loss

    @local
    def reassign(self, h: Tensor, where: Tensor, rows: Tensor) -> None:
        """Exchange targets within the batch so that rows and targets are nearest in total."""
        from scipy.optimize import linear_sum_assignment

        z = F.normalize(self.helpers.predict(h.detach()), dim=2)
        for i in where.nonzero()[:, 0].tolist():
            points = self.targets.value[i, rows]
            likeness = z[i] @ points[:, : z.shape[2]].t()
            _, best = linear_sum_assignment(likeness.cpu().numpy(), maximize=True)
            self.targets.write(i, rows, points[to_device(torch.from_numpy(best))])


def distance(z: Tensor, target: Tensor) -> Tensor:
    """Mean squared distance of directions from points of the sphere. [members]"""
    return (F.normalize(z, dim=2) - target[..., : z.shape[2]]).square().sum(2).mean(1)


def view(x: Tensor, shape: Sequence[int], stream: torch.Generator) -> Tensor:
    """A random view of rows: images are shifted (what leaves the frame is cropped), entries of
    tables are set to 0; noise is added to both. [rows, width]"""
    noise = NOISE * to_device(torch.randn(x.shape, generator=stream, device="cpu"))
    if len(shape) == 3:
        return (shifted(x.view(-1, *shape), stream).flatten(1) + noise).clamp(0, 1)
    kept = to_device(torch.rand(x.shape, generator=stream, device="cpu")) >= MASKED
    return (x + noise) * kept


def shifted(images: Tensor, stream: torch.Generator) -> Tensor:
    """Each image moved by up to an eighth of its size, at least a pixel. [rows, channels, height,
    width]"""
    rows, channels, *size = images.shape
    reach = [max(1, length // 8) for length in size]
    padded = F.pad(images, (reach[1], reach[1], reach[0], reach[0]))
    start = [torch.randint(0, 2 * r + 1, (rows, 1), generator=stream, device="cpu") for r in reach]
    down, right = (to_device(s) + torch.arange(n) for s, n in zip(start, size, strict=True))
    return padded[
        torch.arange(rows)[:, None, None, None],
        torch.arange(channels)[None, :, None, None],
        down[:, None, :, None],
        right[:, None, None, :],
    ]


def _standardised(z: Tensor) -> Tensor:
    return (z - z.mean(1, keepdim=True)) / (z.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()


OBJECTIVES: dict[str, type[Objective]] = {
    kind.name: kind for kind in (Autoencoder, SimCLR, BarlowTwins, NoiseTargets)
}
