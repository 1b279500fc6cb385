"""The tables of a federation file: roles, parties, rows, the network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from colonnade.common.metric_names import GoalName, MetricName, Weights, check_metric
from colonnade.data.row_splits import SplitBy, unpacked_parts
from colonnade.data.rows import RowSplit, split_rows
from colonnade.errors import InputError
from colonnade.federation.keys.names import host_names
from colonnade.network.spec import GraphSpec
from colonnade.privacy.alignment.keys import USUAL, Kind, Step
from colonnade.privacy.alignment.protocols import Match

if TYPE_CHECKING:
    from colonnade.learning.algorithm import Algorithm

SUPPOSED = 1000  # rows, for checks before it is known how many there are
ENOUGH = 8  # clients and rows, for any algorithm to be made when nothing is set


@dataclass(frozen=True)
class Roles:
    """The groups of an algorithm, by name."""

    columns: str
    labels: str | None  # None: all column holders have them, and nobody leads
    others: tuple[str, ...]
    optional: tuple[str, ...]
    several: bool = False  # parties may hold labels, each those of its own rows

    @classmethod
    def of(cls, kind: type[Algorithm]) -> Roles:
        """As the algorithm has them when nothing is set."""
        from colonnade.learning.declare import LabelHolders, Members, declared
        from colonnade.learning.task import Task

        few = {"train": ENOUGH, "validation": 0, "test": 0, "extra": 0}
        clients = tuple(f"{i}" for i in range(ENOUGH))
        task = Task(clients, (1,) * ENOUGH, ((1,),) * ENOUGH, 2, few, seed=0)
        plays = kind(kind.settings(name=kind.name, algorithm=kind.name), task)
        columns, labels = plays.columns.name, plays.labels.name if kind.led else None
        known = (columns, labels, *kind.outside)
        drawn = [g.name for g in plays.groups if set(g.parties) <= set(plays.columns.parties)]
        others = tuple(g.name for g in plays.groups if g.name not in (*known, *drawn))
        several = any(isinstance(one, LabelHolders) for one in declared(kind, Members))
        return cls(columns, labels, others, kind.optional, several)

    @property
    def all(self) -> tuple[str, ...]:
        return (self.columns, *self.others, *([self.labels] if self.labels else []))


class PartySpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `[[parties]]` table. `role = "x"` in the file is short for `roles = ["x"]`."""

    name: str
    roles: tuple[str, ...]
    endpoint: str | None = None  # host:port, where others connect to it
    columns: int | None = None  # how many it brings


class RowsSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[rows]` table: what the parties' own files hold."""

    # Rows that every column holder and the label holder have; not set: `match` finds them, or all
    # rows, and equally many.
    aligned: int | None = None
    # How many, or their names; neither if the label is a number.
    classes: int | tuple[str, ...] | None = None
    validation: float = 0.1  # share of what the test rows leave
    test: float = 0.2  # share of all rows
    goal: GoalName | None = None  # "number": the label is one
    metric: MetricName | None = None  # decides the best epoch and the report
    weights: Weights | None = None  # of classes, in the loss
    split_by: SplitBy | None = None  # the party and its column that say which rows are for test
    match: Match | None = None  # how the parties find their common rows by their keys
    normalise: tuple[Step, ...] | None = None  # what is done to keys before they are compared
    keys: Kind | None = None  # what keys are; not set: each file shows it
    most_keys: int | None = None  # that a party may bring: whoever makes up keys needs many
    partial: bool = False  # train on rows that some party lacks, too; it is absent there
    # The next four are found when parties meet, and are in no federation file.
    parts: str | None = None  # what `split_by` says
    alignment: str | None = None  # which, by a name that is drawn anew each time
    extra: int | None = None  # rows that each column holder has beside, for methods that use them
    added: str | None = None  # by name: up to which addition the alignment has rows behind

    def __post_init__(self) -> None:
        if self.split_by is not None and self.split_by.party is None:
            raise InputError("rows.split_by.party: missing; which party has the column?")
        self._check_matching()
        if len(set(self.names)) < len(self.names):
            raise InputError(f"rows.classes = {list(self.names)}: a class is named twice.")
        for key, value, least in (("aligned", self.size, 1), ("classes", self.count, 2)):
            if value < least and (key == "aligned" or self.classes is not None):
                raise InputError(f"rows.{key} = {value}: expected {least} or more.")
        if (self.goal == "number") == (self.classes is not None):
            raise InputError(
                "rows.classes: give exactly one of classes (how many there are, or their names) "
                'and goal = "number" (the label is a number).'
            )
        check_metric(self.metric, self.weights, self.count, "rows.")
        for key in ("validation", "test"):
            if not 0 <= getattr(self, key) < 1:
                raise InputError(
                    f"rows.{key} = {getattr(self, key):g}: expected a share from 0 to below 1, "
                    "e.g. 0.2."
                )
        left = self.size - round(self.test * self.size)
        if left - round(self.validation * left) < 1:
            raise InputError(
                f"rows.aligned = {self.size}: test = {self.test:g} and validation = "
                f"{self.validation:g} leave no rows to train on."
            )

    def _check_matching(self) -> None:
        if self.most_keys is not None and self.most_keys < 1:
            raise InputError(f"rows.most_keys = {self.most_keys}: expected 1 or more.")
        if self.match is None:
            for key in ("normalise", "keys", "most_keys", "partial"):
                if getattr(self, key) not in (None, False):
                    raise InputError(f'rows.{key}: is for match = "private"; leave it out.')
        elif (self.aligned is None) != (self.alignment is None):
            raise InputError(
                f'rows.aligned = {self.aligned}: with match = "{self.match}" the parties find out '
                "how many rows they have in common; leave it out."
            )

    @property
    def steps(self) -> tuple[Step, ...]:
        return USUAL if self.normalise is None else self.normalise

    @property
    def size(self) -> int:
        """Aligned rows; a number for checks while it is not known."""
        return SUPPOSED if self.aligned is None else self.aligned

    @property
    def names(self) -> tuple[str, ...]:
        """Of the classes, if the file gives them."""
        return self.classes if isinstance(self.classes, tuple) else ()

    @property
    def count(self) -> int:
        """Classes; 0: the label is a number."""
        return len(self.names) or (self.classes if isinstance(self.classes, int) else 0)

    def split(self, seed: int) -> RowSplit:
        """Which rows are for what. Nobody's labels play a part, as every party must draw the
        same."""
        unlabelled = np.zeros(self.size, dtype=np.int64)
        return split_rows(
            unlabelled,
            seed,
            official=None,
            test=self.test,
            validation=self.validation,
            given=None if self.parts is None else unpacked_parts(self.parts, self.size),
        )


class ConnectionSpec(GraphSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[network]` table of a federation."""

    transport: Literal["tls", "tcp"] = "tls"  # tcp: nothing is encrypted, nobody proves who it is
    hub: str | None = None  # the party that everybody connects to
    lease: float = 1.5  # seconds until a silent party counts as away
    patience: float = 1.0  # seconds that others wait for a slow party where they need not wait
    # Seconds that the label holder waits for everybody before it begins; not set: as long as it
    # takes. Where nobody leads: 60, then for a majority.
    gather: float | None = None
    silence: float = 30.0  # seconds that a party which is there may owe a message
    loudness: float = 1e4  # numbers so many times as large as the first ones are refused; 0: none
    extra_epochs: int = 10  # at most, at the end, while a party that is there lacks the best model
    largest: int = 64  # megabytes of one message
    quota: int | None = None  # megabytes of one sender's messages in memory; default: 8 × largest

    def __post_init__(self) -> None:
        for key in ("lease", "largest", "silence"):
            if not 0 < getattr(self, key) < math.inf:
                raise InputError(f"network.{key} = {getattr(self, key):g}: expected more than 0.")
        for key in ("patience", "gather"):
            value = getattr(self, key)
            if value is not None and not 0 <= value < math.inf:
                raise InputError(f"network.{key} = {value:g}: expected 0 or more seconds.")
        for key in ("loudness", "extra_epochs"):
            if not 0 <= getattr(self, key) < math.inf:
                raise InputError(f"network.{key} = {getattr(self, key):g}: expected 0 or more.")
        if self.quota is not None and self.quota < 2 * self.largest:
            raise InputError(
                f"network.quota = {self.quota}: expected at least twice network.largest, "
                f"{2 * self.largest} or more, for a message that waits while another one comes."
            )

    @property
    def quota_bytes(self) -> int:
        return (8 * self.largest if self.quota is None else self.quota) * 2**20

    @property
    def returns(self) -> float:
        """Seconds that those who are away are waited for, where they are worth it: before the test,
        and before a training ends whose best model they lack."""
        return 60.0 if self.gather is None else self.gather


def address(endpoint: str, where: str, *, listening: bool = False) -> tuple[str, int]:
    """Host and port. `listening`: every address of a machine (0.0.0.0) will do."""
    host, _, port = endpoint.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.endswith("]") else host
    whole = f'{where} = "{endpoint}"'
    if not host or not port.isdecimal() or (":" in host and not endpoint.startswith("[")):
        raise InputError(
            f'{whole}: expected host:port, e.g. "clinic.example:7447", or "[::1]:7447" for an '
            "IPv6 address."
        )
    if not 0 < int(port) < 2**16:
        raise InputError(f"{whole}: the port must be 1 to 65535.")
    if not (listening and host in ("0.0.0.0", "::")):
        try:
            host_names([host])
        except InputError as error:
            raise InputError(f"{whole}: {str(error).removeprefix('hosts: ')}") from None
    return host, int(port)
