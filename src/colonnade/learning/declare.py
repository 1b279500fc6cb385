"""Groups and exchanges, as an algorithm declares them in the body of its class:

class SplitNN(Algorithm):
    clients = Columns()
    server = LabelHolder("aggregator")
    embedding = Exchange(clients, server, "an encoding of the columns, row by row", width="widths")

At an algorithm that has been made, `self.clients` is a `Group` and `self.embedding` is a `Channel`,
which is what `Network.send` takes.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from colonnade.errors import InputError
from colonnade.network.channel import Channel, Numbers
from colonnade.network.rounding import Residuals
from colonnade.network.topology import Group

if TYPE_CHECKING:
    from colonnade.learning.algorithm import Algorithm

Role = Literal["client", "aggregator", "owner"]


class Members:
    """A group of parties. `role` says which faults strike them; `who` names them, given the
    algorithm with its settings and its task."""

    def __init__(self, role: Role, who: Callable[[Any], tuple[str, ...]]) -> None:
        self.name, self.who = "", who
        self.role: Role = role

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, algorithm: None, owner: type) -> Self: ...
    @overload
    def __get__(self, algorithm: Algorithm, owner: type) -> Group: ...
    def __get__(self, algorithm: Algorithm | None, owner: type) -> Self | Group:
        if algorithm is None:
            return self
        group = Group(self.name, self.who(algorithm), self.role)
        vars(algorithm)[self.name] = group  # found there from now on
        return group


class Columns(Members):
    """The parties that hold columns."""

    def __init__(self) -> None:
        super().__init__("client", lambda algorithm: algorithm.task.clients)


class LabelHolder(Members):
    """The one party that holds the labels. A real federation may name a column holder for it."""

    def __init__(self, role: Role) -> None:
        super().__init__(role, self._holder)

    def _holder(self, algorithm: Algorithm) -> tuple[str, ...]:
        task = algorithm.task
        if self.name in task.players:
            return task.players[self.name]
        if self.name in task.clients:
            raise InputError(
                f"data.columns: {self.name!r} is the label holder; name the client otherwise"
            )
        return (self.name,)


class LabelHolders(LabelHolder):
    """Several parties that hold labels, each those of its own rows; the first of them decides when
    the training stops."""

    def __init__(self, role: Role, who: Callable[[Any], tuple[str, ...]]) -> None:
        Members.__init__(self, role, who)


class Numbered(Members):
    """So many parties as a setting says, with names of their own: aggregator0, aggregator1, … for a
    group `aggregators`. A real federation may name column holders for them."""

    def __init__(self, role: Role, setting: str) -> None:
        super().__init__(role, self._numbered)
        self.setting = setting

    def _numbered(self, algorithm: Algorithm) -> tuple[str, ...]:
        count, task = getattr(algorithm.set, self.setting), algorithm.task
        kind = self.name.removesuffix("s")
        own = tuple(f"{kind}{i}" for i in range(count))
        names = task.players.get(self.name, own)
        if len(names) != count:
            raise InputError(f"{self.setting} = {count}: but {len(names)} parties are {self.name}")
        if names is own and (taken := [name for name in own if name in task.clients]):
            raise InputError(
                f"data.columns: {taken[0]!r} is one of the {self.name}; name the client otherwise"
            )
        return names


EVERYONE = Members("owner", lambda algorithm: algorithm.world().parties)
EVERYONE.name = "everyone"


class Exchange:
    """A kind of content that goes from one group to another.

    `what` tells a reader what the content tells its receiver. `width` is the size of a message's
    last axis: a number, or the name of the algorithm's attribute that holds it (a number, or one by
    sender; by receiver with `each`, unless `by` says otherwise). `each`: a sender has a message of
    its own for each receiver.
    `encodes`: it is an encoding of the sender's own rows, so that the setting `noise` is for it;
    unless given, that is what floating-point numbers from the column holders are. `columns`: it is
    by this that others hear of the sender's columns, so that a party whose columns are left out
    does not send it; unless given, that is so if it encodes.
    `labels`: it is about single rows and tells of their labels, so that the setting `hide_labels`
    is for it; unless given, that is what floating-point numbers from a label holder to the column
    holders are.
    `exact`: the setting `wire` is not for it; that is so for whole numbers and for number types
    that are given. `repeated`: messages are of the same numbers every time, such as those of one
    model, and add up at the receiver: what rounding takes from one is added to the next.
    `kind` is the name in the ledger; the attribute's name unless given.
    """

    def __init__(
        self,
        src: Members,
        dst: Members,
        what: str,
        *,
        width: int | str,
        each: bool = False,
        by: Literal["sender", "receiver"] | None = None,
        numbers: Numbers = "float",
        bounded: bool = True,
        encodes: bool | None = None,
        columns: bool | None = None,
        labels: bool | None = None,
        exact: bool = False,
        repeated: bool = False,
        kind: str = "",
    ) -> None:
        self.src, self.dst, self.what, self.kind = src, dst, what, kind
        self.width = width
        of_columns = isinstance(src, Columns) and numbers.startswith("float")
        self.encodes = of_columns if encodes is None else encodes
        self.columns = self.encodes if columns is None else columns
        self.facts: Any = {"each": each, "by": by, "numbers": numbers, "bounded": bounded}
        self.exact, self.repeated = exact or numbers != "float", repeated
        told = isinstance(src, LabelHolder) and isinstance(dst, Columns) and not self.exact
        self.tells_labels = told if labels is None else labels
        self.name = ""

    def back(
        self, what: str, *, each: bool = True, kind: str = "", labels: bool | None = None
    ) -> Exchange:
        """The exchange that answers this one: the other way round, of the same widths and the same
        number type. Usually each sender of the first is told something of its own."""
        facts = {**self.facts, "each": each, "labels": labels}
        return Exchange(self.dst, self.src, what, width=self.width, kind=kind, **facts)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name, self.kind = name, self.kind or name.replace("_", "-")

    @property
    def ends(self) -> tuple[str, str, str]:
        """Kind, and the names of the two groups: what the ledger knows of it."""
        return self.kind, self.src.name, self.dst.name

    @overload
    def __get__(self, algorithm: None, owner: type) -> Self: ...
    @overload
    def __get__(self, algorithm: Algorithm, owner: type) -> Channel: ...
    def __get__(self, algorithm: Algorithm | None, owner: type) -> Self | Channel:
        if algorithm is None:
            return self
        width = self.width if isinstance(self.width, int) else attrgetter(self.width)(algorithm)
        src, dst = (end.__get__(algorithm, owner) for end in (self.src, self.dst))
        hidden = algorithm.hidden_labels if self.tells_labels else None
        gate = algorithm.releases if self.encodes else hidden
        rounding = None if self.exact else algorithm.rounding
        again = rounding is not None and rounding.wire == "int8" and self.repeated
        of_rows = self.encodes or (self.tells_labels and isinstance(self.dst, Columns))
        channel = Channel(
            src,
            dst,
            self.kind,
            width,
            gate=gate,
            columns=self.columns,
            rounding=rounding,
            residuals=Residuals(rounding) if rounding is not None and again else None,
            row_gate=algorithm.held_rows if of_rows else None,
            **self.facts,
        )
        vars(algorithm)[self.name] = channel  # found there from now on
        return channel


Declaration = TypeVar("Declaration", Members, Exchange)


def declared(kind: type, of: type[Declaration]) -> tuple[Declaration, ...]:
    """The declarations in a class, those of the classes it inherits from first."""
    found = {name: value for base in reversed(kind.__mro__) for name, value in vars(base).items()}
    return tuple(value for value in found.values() if isinstance(value, of))
