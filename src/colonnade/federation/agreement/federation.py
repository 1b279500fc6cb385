"""What every party of a federation knows and has the same.

torch takes seconds to import, and is imported when it is first needed: what can be found wrong in a
file without it is told at once.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import tomli_w

from colonnade.algorithms import registry
from colonnade.common.text import nearest
from colonnade.common.toml import Table, plain, prefixed
from colonnade.data import DataSpec, VerticalData
from colonnade.errors import InputError
from colonnade.federation.agreement import checks
from colonnade.federation.agreement.digest import digest, flat
from colonnade.federation.agreement.specs import ConnectionSpec, PartySpec, Roles, RowsSpec
from colonnade.learning.settings import Settings
from colonnade.network import Group
from colonnade.network.topology import Links, links_between

if TYPE_CHECKING:
    from colonnade.learning.algorithm import Algorithm
    from colonnade.learning.task import Task
    from colonnade.models.factories import Factory


class Federation(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Who takes part, in what, and how they reach each other."""

    name: str
    method: Settings
    parties: tuple[PartySpec, ...]
    seed: int = 0
    rows: RowsSpec | None = None  # the parties bring files of their own…
    data: DataSpec | None = None  # …or, to try things, each takes its columns of this
    network: ConnectionSpec = msgspec.field(default_factory=ConnectionSpec)
    plugins: tuple[str, ...] | None = None  # modules with algorithms; each party has them
    code: str | None = None  # the folder where they may be, on this machine

    def __post_init__(self) -> None:
        if (self.rows is None) == (self.data is None):
            raise InputError(
                "rows: give exactly one of [rows] (parties bring their own files) and [data] "
                "(each takes its columns of one data set)"
            )
        checks.names(self.parties)
        checks.roles(self.parties, self.roles)
        checks.columns(self.parties, self.roles)
        checks.addresses(self.parties)
        if self.rows is not None:
            checks.class_names(self.parties, self.roles, self.rows)
        if self.network.hub is not None and self.network.hub not in self.members:
            raise InputError(
                f'network.hub = "{self.network.hub}": is not a party'
                f"{nearest(self.network.hub, self.members)}"
            )

    @cached_property
    def roles(self) -> Roles:
        return Roles.of(registry()[self.method.algorithm])

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(party.name for party in self.parties)

    @property
    def leader(self) -> str | None:
        """The party that holds the labels, or the first of several; None where nobody leads."""
        return self.playing(self.roles.labels)[0] if self.roles.labels else None

    @property
    def speaker(self) -> str:
        """Whose result stands for all: the label holder's, or that of the first of them."""
        return self.label_holders[0]

    @cached_property
    def label_holders(self) -> tuple[str, ...]:
        return self.playing(self.roles.labels or "") or self.algorithm().labels.parties

    def party(self, name: str) -> PartySpec:
        for party in self.parties:
            if party.name == name:
                return party
        raise InputError(
            f'party = "{name}": is not a party of "{self.name}"{nearest(name, self.members)}'
        )

    def playing(self, role: str) -> tuple[str, ...]:
        return tuple(party.name for party in self.parties if role in party.roles)

    # -- what the parties' files tell -------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether it is known how many rows and columns there are. If not, checks suppose some
        numbers until the parties have told theirs."""
        rows = self.rows
        if rows is None:
            return True
        known = all(self.party(name).columns is not None for name in self.clients)
        return (
            known and rows.aligned is not None and (rows.split_by is None) == (rows.parts is None)
        )

    @property
    def data_holders(self) -> tuple[str, ...]:
        """The parties that bring files, where each brings its own."""
        return tuple(dict.fromkeys((*self.clients, *self.label_holders)))

    def with_found(
        self, columns: Mapping[str, int] | None = None, /, **rows: str | int | None
    ) -> Federation:
        """With what the parties have found out: numbers of columns, and keys of `[rows]`."""
        assert self.rows is not None
        told = {key: value for key, value in rows.items() if value is not None}
        found = msgspec.structs.replace(self.rows, **told)
        parties = tuple(
            msgspec.structs.replace(party, columns=(columns or {}).get(party.name, party.columns))
            for party in self.parties
        )
        return msgspec.structs.replace(self, rows=found, parties=parties)

    # -- what is trained --------------------------------------------------------------------------

    @cached_property
    def clients(self) -> tuple[str, ...]:
        """The column holders, in the order of their columns."""
        named = self.playing(self.roles.columns)
        if self.data is None:
            return named
        found = loaded(self.data, self.seed).clients
        if len(named) != len(found):
            raise InputError(
                f"parties: {len(named)} have the role {self.roles.columns!r}, but the columns of "
                f"[data] are split over {len(found)}; set data.parties, or name as many"
            )
        if set(named) == set(found):
            return found
        if self.data.columns is not None:
            raise InputError(
                f"parties: those with the role {self.roles.columns!r} are {', '.join(named)}, but "
                f"data.columns names {', '.join(found)}; use the same names"
            )
        return named

    def vertical_data(self) -> VerticalData:
        """The data set of a federation with `[data]`."""
        if self.data is None:
            raise InputError("data: this federation has [rows], so each party has its own file")
        return replace(loaded(self.data, self.seed), clients=self.clients)

    def task(self) -> Task:
        from colonnade.learning.task import Task

        named = [role for role in self.roles.all if role != self.roles.columns]
        players = {role: self.playing(role) for role in named}
        players |= dict.fromkeys(registry()[self.method.algorithm].outside, ())
        if self.rows is None:
            task = replace(Task.of(self.vertical_data(), self.seed), players=players)
            checks.widths(self.parties, task)
            return task
        widths = tuple(self.party(client).columns or 1 for client in self.clients)
        split = self.rows.split(self.seed)
        counts = {part: len(getattr(split, part)) for part in ("train", "validation", "test")}
        counts["extra"] = self.rows.extra or 0
        shapes = tuple((width,) for width in widths)
        return Task(
            self.clients,
            widths,
            shapes,
            self.rows.count,
            counts,
            self.seed,
            players,
            metric=self.rows.metric,
            weights=self.rows.weights,
            partial=self.rows.partial,
        )

    def algorithm(self, own: Mapping[str, Factory] | None = None) -> Algorithm:
        """A fresh one, which has not joined yet. `own`: the models of the party that runs here."""
        task, method = self.task(), msgspec.structs.replace(self.method, **own or {})

        def made() -> Algorithm:
            algorithm = registry()[self.method.algorithm](method, task)
            assert algorithm.groups  # names that clash are found here
            algorithm.labels_are_told = self.rows is not None and self.roles.several
            return algorithm

        return prefixed("method", made)

    def edges(self) -> list[tuple[str, str]]:
        """The pairs that exchange anything; a label holder talks to everybody."""
        place = {name: i for i, name in enumerate(self.members)}
        pairs = {(place[self.leader], i) for i in place.values()} if self.leader else set()
        pairs |= {(place[sender], place[receiver]) for sender, receiver in self._sends}
        ordered = sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})
        return [(self.members[a], self.members[b]) for a, b in ordered]

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Whom a party exchanges anything with."""
        return tuple(b if a == name else a for a, b in self.edges() if name in (a, b))

    def hears(self, receiver: str, sender: str) -> bool:
        """Whether the method has an exchange by which one party is sent something by another."""
        return (sender, receiver) in self._sends

    @cached_property
    def _sends(self) -> frozenset[tuple[str, str]]:
        """Sender and receiver of every link of every exchange."""
        found: set[tuple[str, str]] = set()
        for links in self._links:
            sources, targets = links.src.parties, links.dst.parties
            for r, j in zip(*np.nonzero(links.real), strict=True):
                found.add((sources[links.senders[r, j]], targets[r]))
        return frozenset(found)

    @cached_property
    def _links(self) -> list[Links]:
        algorithm = self.algorithm()
        groups = {group.name: group for group in algorithm.groups}
        groups["everyone"] = Group("everyone", self.members)
        ends = [exchange.ends[1:] for exchange in algorithm.exchanges]
        return [
            links_between(groups[a], groups[b], algorithm.columns.parties, self.network.graph)
            for a, b in ends
            if a in groups and b in groups
        ]

    # -- as text ----------------------------------------------------------------------------------

    def table(self) -> Table:
        return plain(self)

    def toml(self) -> str:
        return tomli_w.dumps(self.table())

    def with_endpoints(self, endpoints: Mapping[str, str]) -> Federation:
        for name in endpoints:
            self.party(name)
        parties = tuple(
            msgspec.structs.replace(party, endpoint=endpoints.get(party.name, party.endpoint))
            for party in self.parties
        )
        return msgspec.structs.replace(self, parties=parties)

    @cached_property
    def hash(self) -> str:
        """Equal at parties that may train together."""
        return digest(self._content, 16)

    @cached_property
    def training(self) -> str:
        """As `hash`, but rows that were added later, which are not trained on, do not change it."""
        content = self._content
        content.pop("rows.added", None)
        return digest(content, 16)

    @cached_property
    def matching(self) -> str:
        """Of all that decides which rows are the common ones; other settings may change."""
        rows = self.rows
        assert rows is not None
        roles = {party.name: list(party.roles) for party in self.parties}
        partial = ["partial"] if rows.partial else []
        return digest([roles, rows.match, rows.steps, rows.keys, self.learns_alone, *partial], 16)

    @cached_property
    def learns_alone(self) -> bool:
        """Whether column holders learn from rows of their own, without labels."""
        return self.algorithm().epochs_alone > 0

    @cached_property
    def digests(self) -> dict[str, str]:
        """By dotted key, so that a mismatch can say where it is; see `differences`."""
        return {key: digest(value, 4) for key, value in self._content.items()}

    @property
    def _content(self) -> dict[str, Any]:
        """Everything but addresses and folders: these may differ from place to place."""
        content = dict(flat(self.table()))
        content.pop("code", None)
        if "data.path" in content:
            content["data.path"] = Path(content["data.path"]).name
        return {key: value for key, value in content.items() if not key.endswith(".endpoint")}

    # -- what can be wrong ------------------------------------------------------------------------

    def check(self) -> None:
        """What takes the data or the algorithm to know."""
        task = self.task()
        prefixed("method", lambda: self.method.check(task))
        if self.rows is not None and self.rows.weights and self.roles.several:
            raise InputError(
                f'rows.weights = "{self.rows.weights}": is for one label holder, which knows how '
                "often each class occurs; leave it out"
            )
        checks.partial_rows(self.rows, self.leader)
        checks.connected(self.network.graph, self.clients)
        for links in self._links:
            if self.leader and links.dst.name != "everyone":
                checks.linked(self.network.graph, links)

    def check_endpoints(self) -> None:
        """Check that every party that others connect to has an endpoint; `up` needs none."""
        for i, party in enumerate(self.parties):
            if party.endpoint is None and self.network.hub in (None, party.name):
                raise InputError(
                    f"parties[{i}].endpoint: missing for {party.name!r}; others connect to it, so "
                    f'expected host:port, e.g. "{party.name}.example:7447"'
                )


def loaded(spec: DataSpec, seed: int) -> VerticalData:
    """Asked for many times by one process, always for the same."""
    return _loaded_once(msgspec.json.encode(spec), seed)


@functools.lru_cache(maxsize=1)
def _loaded_once(spec: bytes, seed: int) -> VerticalData:
    from colonnade.data import load

    return load(msgspec.json.decode(spec, type=DataSpec), seed)
