"""What nobody types: how many rows the parties have, how many numbers their columns become, and
which rows are for test where a column says it.

The numbers of columns are known only after each party has prepared its own table, and every party
needs all of them to build the models. So before the training the parties tell them to each other:
each party asks its neighbours what they know, until it knows all. What is found completes the
federation file, and parties compare the digests of the complete file when they meet, as ever: who
was told something else than the others is refused. After a restart, a party that has a checkpoint
reads `found.json` in its folder and asks nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Protocol

import msgspec

from colonnade.common.files import replacing
from colonnade.common.text import with_reasons
from colonnade.data.preprocessing import cells
from colonnade.data.row_splits import packed_parts, parts_by
from colonnade.data.table_files import opened
from colonnade.errors import InputError, Unsuited
from colonnade.federation.agreement.alignment_file import AGAIN as MATCH
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.party_file import PartyFile
from colonnade.federation.member.own_data import (
    FileRows,
    count_rows,
    read_file,
)
from colonnade.federation.member.own_rows import row_order
from colonnade.network.clock import SECOND, Clock, Signal
from colonnade.network.transport.zenoh_config import FACTS
from colonnade.network.wire import Name, WireError, read_note

log = logging.getLogger(__name__)

FOUND = "found.json"
AGAIN = SECOND // 4  # between two questions
FAREWELL = 2 * SECOND  # until a party that cannot go on ends
PATIENCE = 20 * SECOND  # until the log says whom this party waits for

Rows = Annotated[int, msgspec.Meta(ge=1, le=2**40)]
Width = Annotated[int, msgspec.Meta(ge=1, le=2**24)]


class Fact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one party tells of its file."""

    rows: Rows | None = None
    width: Width | None = None  # numbers in a row, once they are prepared
    parts: Annotated[str, msgspec.Meta(max_length=2**25)] = ""  # where its column splits the rows


class Told(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer of a party: all that it knows."""

    federation: Name  # hash of the file as it was written, with the alignment of rows
    facts: dict[Name, Fact]
    matching: bool = False  # it matches its rows, and has no alignment yet


class Found(msgspec.Struct, frozen=True):
    """What completes a federation file, as a party keeps it."""

    federation: str  # `Federation.training` of the file as it was written
    aligned: int
    columns: dict[str, int]
    parts: str | None = None

    def complete(self, federation: Federation) -> Federation:
        whole = federation.with_found(self.columns, aligned=self.aligned, parts=self.parts)
        whole.check()
        return whole


class Asking(Protocol):
    """A transport that can ask another party."""

    @property
    def clock(self) -> Clock: ...

    def ask(self, party: str, name: str, take: Callable[[bytes], None]) -> None: ...


class Finding:
    """What one party knows so far. Its own file is read as soon as that is possible: at once,
    unless the column of another party says which rows are for training."""

    def __init__(self, party: PartyFile) -> None:
        self.party, self.written = party, party.federation
        assert self.written.rows is not None
        self.rows = self.written.rows
        self.known: dict[str, Fact] = {}
        self.read: FileRows | None = None
        self.news = Signal()
        if party.data is not None:
            self.known[party.party] = Fact(rows=self.rows.aligned or count_rows(party))

    def answer(self) -> bytes:
        """To a party that asks."""
        return msgspec.json.encode(Told(self.written.hash, self.known))

    def take(self, sender: str, answer: bytes) -> None:
        """What another party knows. What a party says of itself counts more than hearsay."""
        if not answer:  # its rows are matched, and it has not read its file yet
            return
        try:
            told = read_note(answer, Told)
        except WireError as error:
            log.warning("%s: its facts cannot be read: %s", sender, error)
            return
        if told.matching and self.rows.alignment:
            raise Unsuited(
                f"{sender} matches its rows anew, but the rows of this party were matched before; "
                f"{MATCH}"
            )
        if told.federation != self.written.hash:
            advice = f", or its alignment of rows does; {MATCH}" if self.rows.match else ""
            raise Unsuited(
                f"the federation file of {sender} differs from ours{advice}; all parties need the "
                "same"
            )
        before = dict(self.known)
        for name, fact in told.facts.items():
            known = self.known.get(name, Fact())
            if name != self.party.party and name in self.written.data_holders:
                self.known[name] = fact if name == sender else _merged(known, fact)
        if self.known != before:  # else answers and questions would chase each other
            self.news.notify()

    async def find(self, transport: Asking) -> Found:
        """Ask neighbours until all is known."""
        clock, neighbours = transport.clock, self.written.neighbours(self.party.party)
        begun, told = clock.now, False
        while (found := await self._next(clock)) is None:
            for other in neighbours:
                transport.ask(other, FACTS, lambda data, who=other: self.take(who, data))
            await clock.wait(self.news, clock.now + AGAIN)
            if not told and clock.now - begun > PATIENCE:
                told = True
                log.info("waiting for what others tell of their files: %s", self.missing())
        return found

    async def _next(self, clock: Clock) -> Found | None:
        """A party that cannot go on stays a moment, so that others hear why from its facts."""
        try:
            return self.advance()
        except Unsuited:
            await clock.sleep_until(clock.now + FAREWELL)
            raise

    def advance(self) -> Found | None:
        """As far as one gets with what is known; the result once all is known."""
        federation = self._with_rows()
        if federation is None or federation.rows is None:
            return None
        me = self.party.party
        if self.read is None:
            self.read = read_file(replace(self.party, federation=federation))
            if self.read.features is not None:
                width = self.read.features.fitted.width
                self.known[me] = msgspec.structs.replace(self.known[me], width=width)
        if any(self._fact(name).rows is None for name in self.written.data_holders):
            return None
        columns = {name: self._width(name) or 0 for name in self.written.clients}
        if not all(columns.values()):
            return None
        return Found(self.written.training, federation.rows.size, columns, federation.rows.parts)

    def _fact(self, name: str) -> Fact:
        return self.known.get(name, Fact())

    def _width(self, name: str) -> int | None:
        return self.written.party(name).columns or self._fact(name).width

    def _with_rows(self) -> Federation | None:
        """The federation with its number of rows and their parts, once they are known."""
        counts = {name: fact.rows for name, fact in self.known.items() if fact.rows}
        if not counts:
            return None
        federation = self.written.with_found(aligned=_equal(counts))
        by, me = self.rows.split_by, self.party.party
        if by is None:
            return federation
        if by.party == me and not self._fact(me).parts:
            parts = own_parts(replace(self.party, federation=federation))
            self.known[me] = msgspec.structs.replace(self._fact(me), parts=parts)
        told = self._fact(by.party or "").parts
        return federation.with_found(parts=told) if told else None

    def tell(self, federation: Federation) -> None:
        """What others are told once all is known: everything."""
        rows = federation.rows
        assert rows is not None
        for name in federation.data_holders:
            parts = rows.parts if rows.split_by and rows.split_by.party == name else None
            width = federation.party(name).columns if name in federation.clients else None
            self.known[name] = Fact(rows.size, width, parts or "")

    def missing(self) -> str:
        """Of whom nothing, or not all, is known."""
        lacking = {
            name: "number of rows" if self._fact(name).rows is None else "columns"
            for name in self.written.data_holders
            if name not in self.known or (name in self.written.clients and not self._width(name))
        }
        return with_reasons(lacking)


def matching(federation: Federation) -> bytes:
    """The answer of a party that has no alignment of rows yet."""
    return msgspec.json.encode(Told(federation.hash, {}, matching=True))


def own_parts(party: PartyFile) -> str:
    """Which rows are for test, as this party's column says, in the common order."""
    federation, spec, rows = party.federation, party.data, party.federation.rows
    assert rows is not None
    by = rows.split_by
    if spec is None or by is None:
        raise InputError(f"rows.split_by.party: {party.party!r} has no file; name who has it.")
    path = Path(spec.path)
    with opened(path, spec.sql, party.folder) as columns:
        if by.name not in columns:
            raise InputError(f"{path}: no column {by.name!r}, which rows.split_by names.")
        order = row_order(columns, party).order[: rows.size]
        values = cells.take(columns[by.name], order)
    shares = {"test": rows.test, "validation": rows.validation}
    return packed_parts(parts_by(by, values, str(path), **shares, seed=federation.seed))


def kept(party: PartyFile) -> Found | None:
    """What an earlier process of this party found, if it has begun to train since."""
    path = party.folder / FOUND
    if not path.exists() or not any((party.folder / "checkpoints").glob("*")):
        return None
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Found)
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(f"{path}: cannot be read ({error}); start over with --fresh.") from error
    return found if found.federation == party.federation.training else None


def keep(folder: Path, found: Found) -> None:
    with replacing(folder / FOUND) as partial:
        partial.write_bytes(msgspec.json.encode(found))


def _merged(known: Fact, fact: Fact) -> Fact:
    """What is known stays; hearsay fills what is not."""
    return Fact(known.rows or fact.rows, known.width or fact.width, known.parts or fact.parts)


def _equal(counts: dict[str, int]) -> int:
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        raise Unsuited(
            f"the files have different numbers of rows ({told}). Bring the same rows in every "
            "file, or say in the federation file how many of the first rows are the same: "
            "rows.aligned"
        )
    return next(iter(counts.values()))
