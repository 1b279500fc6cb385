"""Vertically partitioned data: the same rows, different columns.

Every way to split is the same thing underneath: a list of column numbers per client. Images
count as columns too, flattened channel first, so that a band or a patch is a list of pixels.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import NDArray

from colonnade.common.metric_names import Weights
from colonnade.common.party_names import is_simulated_name
from colonnade.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from colonnade.data.preprocessing import Preprocessing
    from colonnade.data.scaling import Scaler
    from colonnade.data.table import Table

Shape = tuple[int, ...]  # (width,) or (channels, height, width)


@dataclass(frozen=True)
class Rows:
    """Aligned, labelled rows. Row r of every client and y[r] are about the same entity."""

    x: tuple[Tensor, ...]  # one [rows, width_i] float32 per client
    y: Tensor  # [rows] int64, 0..classes-1; float64 where the label is a number
    # Which rows each client has: [clients, rows] bool; None: all. What it lacks is zeros in x.
    held: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def only_held(self, held: Tensor) -> Rows:
        """These rows as far as each client has them."""
        x = tuple(own * mine[:, None] for own, mine in zip(self.x, held, strict=True))
        return Rows(x, self.y, held)


@dataclass(frozen=True)
class ClientColumns:
    """The columns that one client holds."""

    client: str
    columns: tuple[int, ...]  # of the flattened row
    shape: Shape

    @overload
    def take(self, x: NDArray[np.generic]) -> NDArray[np.generic]: ...
    @overload
    def take(self, x: NDArray[np.generic] | Table) -> NDArray[np.generic] | Table: ...
    def take(self, x: NDArray[np.generic] | Table) -> NDArray[np.generic] | Table:
        """[rows, all columns] → [rows, columns of this client]"""
        chosen = list(self.columns)
        return x[:, chosen] if isinstance(x, np.ndarray) else x.take(chosen)


@dataclass(frozen=True)
class Partition:
    """Which client holds which of the `width` columns."""

    width: int
    parts: tuple[ClientColumns, ...]

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(part.client for part in self.parts)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return tuple(part.shape for part in self.parts)


@dataclass(frozen=True)
class VerticalData:
    """A data set split over clients by columns, already scaled, ready to train on."""

    name: str
    clients: tuple[str, ...]  # names of the column holders, e.g. "client0" or "lab"
    classes: int  # 0: the label is a number
    shapes: tuple[Shape, ...]  # per client: (width,) or (channels, height, width) of its image part
    train: Rows
    validation: Rows
    test: Rows
    extra: tuple[Tensor, ...] = ()  # per client: unlabelled rows that only this client has
    notes: tuple[str, ...] = field(default=())  # e.g. "subset of the official training rows"
    cautions: tuple[str, ...] = ()  # notes that the user should read before the training
    partition: Partition | None = None  # which client holds which columns, for new rows
    scalers: tuple[
        Scaler | Preprocessing, ...
    ] = ()  # one per client, fitted on the rows it trains on
    metric: str | None = None  # that the user chose to decide; None: the usual one of the goal
    weights: Weights | None = None  # of classes, in the loss

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(x.shape[1] for x in self.train.x)

    @property
    def partial(self) -> bool:
        """Whether clients may lack some of the rows."""
        return any(part.held is not None for part in (self.train, self.validation, self.test))

    def only(self, clients: Sequence[str]) -> VerticalData:
        """As if the other clients were not there; in the order of all."""
        which = [i for i, client in enumerate(self.clients) if client in clients]

        def rows(part: Rows) -> Rows:
            held = None if part.held is None else part.held[which]
            return Rows(tuple(part.x[i] for i in which), part.y, held)

        whole = self.partition
        return replace(
            self,
            clients=tuple(self.clients[i] for i in which),
            shapes=tuple(self.shapes[i] for i in which),
            train=rows(self.train),
            validation=rows(self.validation),
            test=rows(self.test),
            extra=tuple(self.extra[i] for i in which) if self.extra else (),
            partition=whole and Partition(whole.width, tuple(whole.parts[i] for i in which)),
            scalers=tuple(self.scalers[i] for i in which) if self.scalers else (),
        )

    @cached_property
    def fingerprint(self) -> str:
        """Of all rows, as they are split and scaled: the same for equal data."""
        digest = hashlib.sha256(repr((self.clients, self.classes, self.shapes)).encode())
        parts = (self.train, self.validation, self.test)
        tensors = [t for part in parts for t in (*part.x, part.y, part.held) if t is not None]
        for tensor in (*tensors, *self.extra):
            digest.update(tensor.contiguous().numpy().data)
        return digest.hexdigest()[:32]

    def apply_split(self, x: NDArray[np.generic]) -> tuple[Tensor, ...]:
        """New rows, split and scaled as the training rows were: one [rows, width_i] per client."""
        if self.partition is None:
            raise InputError(f"{self.name}: made without a partition, so new rows cannot be split.")
        rows, _ = flattened(np.asarray(x))
        if rows.shape[1] != self.partition.width:
            raise InputError(
                f"{self.name}: new rows have {rows.shape[1]} columns, the training rows had "
                f"{self.partition.width}."
            )
        pairs = zip(self.partition.parts, self.scalers, strict=True)
        return tuple(_scaled(scaler, part.take(rows)) for part, scaler in pairs)


def _scaled(scaler: Scaler | Preprocessing, x: NDArray[np.generic]) -> Tensor:
    from colonnade.data.scaling import Scaler

    if isinstance(scaler, Scaler):
        return scaler.apply(x)
    raise InputError("rows of a table have named columns; apply data.scalers to them, by party.")


def flattened(x: NDArray[np.generic]) -> tuple[NDArray[np.generic], Shape]:
    """[N, d], [N, H, W] or [N, H, W, C] → [N, columns], and the shape of a row, channel first."""
    if x.ndim == 3:
        x = x[..., np.newaxis]
    if x.ndim == 4:
        x = np.moveaxis(x, 3, 1)
    return x.reshape(len(x), math.prod(x.shape[1:])), x.shape[1:]


def bands(shape: Shape, parties: int) -> Partition:
    """Horizontal bands from the top; the first `height % parties` are one row higher."""
    _, height, width = _image(shape, "bands")
    if not 1 <= parties <= height:
        raise InputError(
            f"data.parties = {parties}: the images have {height} rows of pixels, so "
            f'data.split = "bands" takes 1 to {height} parties.'
        )
    return _tiles(shape, runs(height, parties), [range(width)])


def patches(shape: Shape, parties: int) -> Partition:
    """A square grid of patches, row by row; its first rows and columns may be one pixel larger."""
    _, height, width = _image(shape, "patches")
    side, largest = math.isqrt(max(parties, 0)), min(height, width)
    if parties < 1 or side * side != parties or side > largest:
        raise InputError(
            f'data.parties = {parties}: data.split = "patches" takes a perfect square '
            f"(1, 4, 9, …), at most {largest}×{largest} for images of {height}×{width}."
        )
    return _tiles(shape, runs(height, side), runs(width, side))


def columns(width: int, parties: int, each: int | None = None) -> Partition:
    """Neighbouring columns, evenly; the first `width % parties` clients get one more. With `each`,
    so many columns by client, which may be those of its neighbours as well."""
    if each is not None:
        return _windows(width, parties, each)
    if not 1 <= parties <= width:
        raise InputError(
            f"data.parties = {parties}: there are {width} columns, so "
            f'data.split = "columns" takes 1 to {width} parties.'
        )
    return grouped(width, runs(width, parties))


def _windows(width: int, parties: int, each: int) -> Partition:
    """From the first column to the last, at even distances."""
    if not width <= each * parties <= width * parties:
        raise InputError(
            f"data.columns_each = {each}: {parties} parties share {width} columns, so expected "
            f"{-(-width // parties)} to {width}."
        )
    starts = [round(i * (width - each) / max(1, parties - 1)) for i in range(parties)]
    return grouped(width, [range(start, start + each) for start in starts])


def views(shapes: Sequence[Shape], parties: int, names: Sequence[str] = ()) -> Partition:
    """One of the data set's own views per client."""
    if len(shapes) < 2:
        raise InputError(
            'data.split = "views": this data set has no views; take "columns", or for images '
            '"bands" or "patches".'
        )
    if parties != len(shapes):
        raise InputError(
            f"data.parties = {parties}: the data set has {len(shapes)} views, so "
            f'data.split = "views" takes exactly {len(shapes)} parties.'
        )
    ends = np.cumsum([math.prod(shape) for shape in shapes]).tolist()
    starts = [0, *ends[:-1]]
    ranges = [range(start, end) for start, end in zip(starts, ends, strict=True)]
    usable = len(set(names)) == parties and all(map(is_simulated_name, names))
    return grouped(ends[-1], ranges, names if usable else (), shapes)


def columns_by_name(names: Sequence[str], mapping: Mapping[str, Sequence[str]]) -> Partition:
    """The columns that the user gave to each party by name (checked by `mapping.check`)."""
    place = {name: number for number, name in enumerate(names)}
    groups = [[place[column] for column in chosen] for chosen in mapping.values()]
    return grouped(len(names), groups, tuple(mapping))


def grouped(
    width: int,
    groups: Sequence[Iterable[int]],
    clients: Sequence[str] = (),
    shapes: Sequence[Shape] = (),
) -> Partition:
    """A partition from column numbers; without names the clients are client0, client1, …"""
    chosen = [tuple(group) for group in groups]
    clients = clients or [f"client{number}" for number in range(len(chosen))]
    shapes = shapes or [(len(group),) for group in chosen]
    held = zip(clients, chosen, shapes, strict=True)
    return Partition(width, tuple(ClientColumns(*one) for one in held))


def runs(length: int, parts: int) -> list[range]:
    """0..length-1 in neighbouring runs, the first `length % parts` of them one longer."""
    size, longer = divmod(length, parts)
    starts = [number * size + min(number, longer) for number in range(parts + 1)]
    return [range(start, end) for start, end in itertools.pairwise(starts)]


def _image(shape: Shape, split: str) -> Shape:
    if len(shape) != 3:
        raise InputError(
            f'data.split = "{split}": cuts images, and this data set has none; take "columns", or '
            '"views" where the data set has views.'
        )
    return shape


def _tiles(shape: Shape, down: Sequence[range], across: Sequence[range]) -> Partition:
    pixels = np.arange(math.prod(shape)).reshape(shape)
    tiles = [pixels[:, y.start : y.stop, x.start : x.stop] for y in down for x in across]
    groups = [tile.ravel().tolist() for tile in tiles]
    return grouped(pixels.size, groups, shapes=[tile.shape for tile in tiles])
