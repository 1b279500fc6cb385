"""The party file: private, at one party. Who it is, its keys, its data.

party = read_party(Path("clinic.toml"))
party.check()                           # its certificate, and that others can reach it
party.federation, party.identity, party.listening, party.folder
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from colonnade.common.file_kinds import PARTY, read_kind
from colonnade.common.toml import Table, convert
from colonnade.common.user_code import FACTORIES, REFERENCE, code_folder
from colonnade.data.preprocessing import check_treatment
from colonnade.data.sql import Query
from colonnade.errors import InputError
from colonnade.federation.agreement.alignment_file import (
    AGAIN,
    ALIGNMENT,
    Alignment,
    read_alignment,
)
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.federation_file import read_federation
from colonnade.federation.agreement.specs import address
from colonnade.federation.keys.certificates import describe
from colonnade.federation.keys.identity import Identity

FILES = ("certificate", "key", "authority")


class OwnSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[data]` table of a party."""

    path: str  # a CSV, Parquet or .npz file, or a database
    query: str | None = None  # SQL over it, whose result is the table
    attach: dict[str, str] = {}  # name in the query → a database file
    id: str | None = None  # rows are put in the order of this column
    label: str | None = None
    columns: list[str] | None = None  # default: all but id and label
    prepare: dict[str, str] = {}  # column → what is done with it; others are decided by their cells

    @property
    def sql(self) -> Query | None:
        return Query.of(self.query, self.attach)

    def __post_init__(self) -> None:
        Query.of(self.query, self.attach)
        for column, treatment in self.prepare.items():
            check_treatment(treatment, f"data.prepare.{column}")


@dataclass(frozen=True)
class PartyFile:
    """What a process needs to be this party. Paths are those of the machine it runs on."""

    source: str  # for errors
    federation: Federation
    party: str
    folder: Path  # of checkpoints and results
    identity: Identity | None = None  # None: plain TCP
    listen: str | None = None
    data: OwnSpec | None = None
    models: Mapping[str, str] = field(default_factory=dict)  # "module:name" by key
    code: Path | None = None  # the folder where these modules may be
    # Which rows are the common ones, where `rows.match` finds them and has done so.
    alignment: Alignment | None = None

    @property
    def matches(self) -> bool:
        """Whether the parties find their common rows by their keys."""
        rows = self.federation.rows
        return rows is not None and rows.match is not None

    @property
    def needs_alignment(self) -> bool:
        """Whether rows have to be matched before this party can take part."""
        return self.matches and self.alignment is None

    @property
    def listening(self) -> str | None:
        """host:port; None if it only connects."""
        return self.listen or self.federation.party(self.party).endpoint

    @property
    def holds_columns(self) -> bool:
        return self.party in self.federation.playing(self.federation.roles.columns)

    @property
    def holds_labels(self) -> bool:
        return self.party in self.federation.label_holders

    def check(self, now: datetime | None = None) -> None:
        """What must hold before anyone connects."""
        with errors_of(Path(self.source)):
            self.federation.check_endpoints()
        if self.identity is not None:
            self.identity.check(self.party, now)
            self._check_hosts(self.identity.certificate)

    def _check_hosts(self, certificate: Path) -> None:
        """Others refuse a certificate that is not for the host they connect to."""
        endpoint = self.federation.party(self.party).endpoint
        if endpoint is None or self.federation.network.hub not in (None, self.party):
            return
        host, hosts = address(endpoint, "endpoint")[0], describe(certificate).hosts
        if not covers(hosts, host):
            raise InputError(
                f"{certificate}: is for {', '.join(hosts) or 'no host'}, but others connect to "
                f"{host}, the endpoint in the federation file. Have a new one made: colonnade keys "
                f"party {self.party} --host {host}"
            )


def covers(hosts: tuple[str, ...], host: str) -> bool:
    """Whether a certificate for these hosts will do; `*.example` stands for clinic.example."""
    known = {name.lower() for name in hosts}
    return host.lower() in known or f"*.{host.lower().partition('.')[2]}" in known


def read_party(path: Path, *, aligned: bool = True) -> PartyFile:
    """`aligned`: with the alignment of rows in the party's folder, if there is one."""
    table = read_kind(path, PARTY)
    with errors_of(path):
        words, data = _words(table), _own(table.get("data"), path)
    federation = read_federation(_place(path, words["federation"]))
    with errors_of(path):
        party = PartyFile(
            source=str(path),
            federation=federation,
            party=federation.party(words["party"]).name,
            folder=_place(path, words.get("folder", words["party"])),
            identity=_identity(federation, words, path),
            listen=words.get("listen"),
            data=data,
            models={key: words[key] for key in FACTORIES if key in words},
            code=code_folder(words.get("code"), path.parent),
        )
        _check_data(party)
        _check_models(party)
    return with_alignment(party) if aligned else party


def with_alignment(party: PartyFile) -> PartyFile:
    """With the alignment in the party's folder, if there is one and it is needed."""
    federation = party.federation
    if not party.needs_alignment or (found := read_alignment(party.folder)) is None:
        return party
    facts = found.facts
    if facts.federation != federation.matching:
        raise InputError(
            f"{party.folder / ALIGNMENT}: the parties, their roles or how rows are matched have "
            f"changed in the federation file since; {AGAIN}"
        )
    with errors_of(Path(party.source)):
        resolved = federation.with_found(**facts.found)
        resolved.check()
    return replace(party, federation=resolved, alignment=found)


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _words(table: Table) -> dict[str, str]:
    """Everything but the data."""
    PARTY.check(table)
    for key in FACTORIES:
        if key in table and not (isinstance(table[key], str) and REFERENCE.fullmatch(table[key])):
            raise InputError(
                f'{key}: expected "module:name", a class or function of your own, e.g. {key} = '
                f'"my_models:Tower"; widths for all parties are in [method] of the federation file'
            )
    words = {key: convert(table[key], str, key) for key in table if key != "data"}
    if "listen" in words:
        address(words["listen"], "listen", listening=True)
    return words


def _own(table: Any, path: Path) -> OwnSpec | None:
    if table is None:
        return None
    spec = convert(table, OwnSpec, "data")
    attach = {name: str(_place(path, file)) for name, file in spec.attach.items()}
    return msgspec.structs.replace(spec, path=str(_place(path, spec.path)), attach=attach)


def _place(path: Path, name: str) -> Path:
    """A path in the file is relative to the file."""
    return path.parent / Path(name).expanduser()


def _identity(federation: Federation, words: Mapping[str, str], path: Path) -> Identity | None:
    if federation.network.transport == "tcp":
        return None
    given = [key for key in FILES if key in words]
    if "keys" in words and not given:
        return Identity.of(_place(path, words["keys"]), words["party"])
    if "keys" not in words and len(given) == len(FILES):
        return Identity(**{key: _place(path, words[key]) for key in FILES})
    raise InputError(
        "keys: expected the folder that holds authority.pem and this party's certificate and key "
        f"(see colonnade keys), or each file by itself: {', '.join(FILES)}"
    )


def _check_data(party: PartyFile) -> None:
    """Whoever holds columns or labels brings them, and nobody else does."""
    federation, data, who = party.federation, party.data, repr(party.party)
    if federation.data is not None:
        if data is not None:
            raise InputError("data: the federation file has a [data] table for all; leave this out")
        return
    if data is None:
        if party.holds_columns or party.holds_labels:
            what = "columns" if party.holds_columns else "the labels"
            raise InputError(
                f'data: missing; {who} holds {what}, so expected [data] with path = "file.csv"'
            )
        return
    if not (party.holds_columns or party.holds_labels):
        raise InputError(f"data: {who} holds neither columns nor labels; leave [data] out")
    if federation.rows is not None and federation.rows.match and data.id is None:
        raise InputError(
            "data.id: missing; the federation file says that rows are matched, so expected the "
            "column that holds the keys of the rows"
        )
    if party.holds_labels and data.label is None:
        raise InputError(f"data.label: missing; {who} holds the labels: in which column are they?")
    holders = ", ".join(map(repr, federation.label_holders))
    if data.label is not None and not party.holds_labels:
        raise InputError(
            f"data.label: the labels are those of {holders}, not of {who}; leave it "
            "out. To leave a column of the file out, list the others in data.columns"
        )
    if data.columns is not None and not party.holds_columns:
        raise InputError(f"data.columns: {who} holds labels only; leave it out")


def _check_models(party: PartyFile) -> None:
    """A party makes the models that it runs, and no others."""
    federation, who = party.federation, repr(party.party)
    for key in party.models:
        if key not in federation.method.__struct_fields__:
            raise InputError(f"{key}: {federation.method.algorithm} has none; leave it out")
        holds = party.holds_labels if key == "head" else party.holds_columns
        if not holds:
            what = "labels, so it has no head" if key == "head" else f"columns, so it has no {key}"
            raise InputError(f"{key}: {who} holds no {what}; leave it out")
