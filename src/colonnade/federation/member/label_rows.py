"""Which rows each of several label holders has labels of, as parties tell when they meet.

Every party that holds columns must know it, because it is asked for the embeddings of these rows;
so a label holder tells these parties its row numbers, and all others only how many rows they are.
Label holders also tell each other which classes they have, and compare their labels of those rows
that both have by a test of equality (`privacy.equality`): no label is told. Whoever claims rows
that it has no labels of can try out one guess by each message. So a party that tells other rows
than before is refused, and so is one that begins the test more than `TESTS` times.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from colonnade.federation.agreement.federation import Federation
from colonnade.federation.member.messages import text
from colonnade.federation.member.own_data import OwnData
from colonnade.federation.member.own_labels import NOBODYS
from colonnade.learning.algorithm import Algorithm
from colonnade.learning.task import Part
from colonnade.network.wire import WireError, read_note
from colonnade.privacy.equality import EqualityTest

PARTS = ("train", "validation", "test")
TESTS = 16  # of one label holder, in one life of this party: it begins anew when it restarts
Digits = Annotated[str, msgspec.Meta(max_length=512)]
Rows = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class LabelNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a label holder tells another party."""

    # Rows with labels, by part of the data.
    counts: Annotated[list[Rows], msgspec.Meta(min_length=3, max_length=3)]
    rows: str = ""  # a bit for each aligned row, in base 64; only to those who hold columns
    classes: Annotated[list[Rows], msgspec.Meta(max_length=2**20)] = []  # to label holders only
    # To label holders, once it is known which rows both have: the sender's element of the test of
    # equality, the receiver's that it has heard, and its proof.
    element: Digits = ""
    heard: Digits = ""
    proof: Digits = ""


class LabelRows:
    """What one party knows of them. `tell`: sends a note to a party."""

    def __init__(
        self,
        federation: Federation,
        own: OwnData,
        party: str,
        algorithm: Algorithm,
        tell: Callable[[str, str], None],
    ) -> None:
        assert federation.rows is not None
        self.federation, self.party, self.algorithm, self.tell = federation, party, algorithm, tell
        self.aligned, self.split = federation.rows.size, federation.rows.split(federation.seed)
        self.labels = own.labels  # of the aligned rows, where this party holds any
        self.notes: dict[str, LabelNote] = {}  # by label holder
        self.tests: dict[str, EqualityTest] = {}  # with each other label holder
        self.elements: dict[str, list[str]] = {}  # theirs, the newest last
        self.told: dict[str, str] = {}  # the newest note to each of them
        self.agreed: set[str] = set()  # those whose labels of common rows are equal

    def begin(self) -> None:
        """Once the algorithm has joined: what this party has itself."""
        if self.labels is not None:
            self._use(self.party, self._rows_here())

    # -- telling ----------------------------------------------------------------------------------

    def note_for(self, to: str) -> str:
        """What this party tells another one; "" if it holds no labels."""
        if self.labels is None:
            return ""
        have, fed = self._have(), self.federation
        bits = base64.b64encode(np.packbits(have).tobytes()).decode()
        counts = [int(have[getattr(self.split, part)].sum()) for part in PARTS]
        if to in fed.label_holders:
            classes = np.unique(self.labels.numpy()[self.split.train])
            mine = [int(n) for n in classes if n != NOBODYS]
            self.told[to] = text(LabelNote(counts, bits, mine, *self._comparison(to)))
            return self.told[to]
        return text(LabelNote(counts, bits if to in fed.clients else ""))

    def _have(self) -> Any:
        assert self.labels is not None
        return self.labels.numpy() != NOBODYS

    def _rows_here(self) -> dict[str, Tensor]:
        return self._by_part(self._have())

    def _by_part(self, have: Any) -> dict[str, Tensor]:
        """Places in each part of the data."""
        return {p: torch.from_numpy(have[getattr(self.split, p)].nonzero()[0]) for p in PARTS}

    def _comparison(self, other: str) -> tuple[str, str, str]:
        """Element, the other one's element, and proof, as far as they are known."""
        if self.labels is None or other not in self.notes:
            return "", "", ""
        if other not in self.tests:
            both = self._have() & _bits(self.notes[other].rows, self.aligned)
            content = self.federation.hash.encode() + self.labels.numpy()[both].tobytes()
            self.tests[other] = EqualityTest(content, self.party, other)
        test, heard = self.tests[other], (self.elements.get(other) or [""])[-1]
        return test.element, heard, test.proof(heard) if heard else ""

    # -- hearing ----------------------------------------------------------------------------------

    def hear(self, sender: str, note: str) -> str:
        """Take what a label holder tells; why the two, or all, cannot work together, or ""."""
        told = read_note(note, LabelNote)
        if sender not in self.federation.label_holders:
            raise WireError("labels of a party that holds none")
        self._take(sender, told)
        if self.labels is None:
            return ""
        self._comparison(sender)
        self._hear_element(sender, told.element)
        before = self.told.get(sender, "")
        if self.note_for(sender) != before:
            self.tell(sender, self.told[sender])
        if told.proof and told.heard == self.tests[sender].element:
            if not self.tests[sender].fits(told.element, told.proof):
                return (
                    f"{sender} and {self.party} have different labels for some of the rows that "
                    "both have labels of; one of the two must correct them, or leave them empty"
                )
            self.agreed.add(sender)
        return self._nobodys_class()

    def _hear_element(self, sender: str, element: str) -> None:
        known = self.elements.setdefault(sender, [])
        if element and element not in known:
            if len(known) >= TESTS:
                raise WireError("labels to compare too many times")
            self.tests[sender].proof(element)  # or it is none
            known.append(element)

    def _take(self, sender: str, told: LabelNote) -> None:
        counts = dict(zip(PARTS, told.counts, strict=True))
        if any(count > len(getattr(self.split, part)) for part, count in counts.items()):
            raise WireError("labels of more rows than there are")
        rows = {part: torch.arange(count) for part, count in counts.items()}
        if told.rows:
            rows = self._by_part(_bits(told.rows, self.aligned))
        elif self.party in self.federation.clients or self.labels is not None:
            raise WireError("labels without row numbers")
        if not len(rows["train"]):
            raise WireError("labels of no training row")
        before = self.notes.get(sender, told)
        if _claim(before) != _claim(told):
            raise WireError("labels of other rows than it told before; start this party again")
        self.notes[sender] = told
        self._use(sender, rows)

    def _nobodys_class(self) -> str:
        """Once all have told: a class that could not be learnt."""
        if not self.known(*self.federation.label_holders) or self.federation.rows is None:
            return ""
        mine = read_note(self.note_for(self.federation.label_holders[0]), LabelNote).classes
        found = {n for note in self.notes.values() for n in note.classes} | set(mine)
        missing = [n for n in range(self.federation.rows.count) if n not in found]
        if not missing:
            return ""
        name = [*self.federation.rows.names, *map(str, missing)][missing[0]]
        return f"no party has a training row of class {name!r}; the model could not learn it"

    def known(self, *parties: str) -> bool:
        """Whether these parties hold no labels, or have told which."""
        holders = self.federation.label_holders
        return all(p in self.notes or p == self.party or p not in holders for p in parties)

    def compared(self, party: str) -> bool:
        """Whether it is also known that the labels of this party and of another one fit."""
        both = self.labels is not None and party in self.federation.label_holders
        return self.known(party) and (not both or party == self.party or party in self.agreed)

    # -- using ------------------------------------------------------------------------------------

    def _use(self, party: str, rows: dict[str, Tensor]) -> None:
        algorithm, first = self.algorithm, self.federation.label_holders[0]
        algorithm.hear_of_labels(party, rows["train"])
        if party == first:  # it measures, on rows of its own
            data = algorithm.data
            parts = {p: self._whole[p].only(rows[p]) for p in PARTS[1:]}
            algorithm.data = replace(data, **parts)

    @cached_property
    def _whole(self) -> dict[str, Part]:
        """The parts of the data with all their rows."""
        return {p: getattr(self.algorithm.data, p) for p in PARTS}

    def facts(self) -> dict[str, str]:
        return {party: text(note) for party, note in self.notes.items()}

    def restore(self, facts: dict[str, str]) -> None:
        """What a checkpoint holds; those who are there tell it anew."""
        for party, note in facts.items():
            if party in self.federation.label_holders:
                self._take(party, read_note(note, LabelNote))


def _claim(note: LabelNote) -> LabelNote:
    """What must not change."""
    return msgspec.structs.replace(note, element="", heard="", proof="")


def _bits(told: str, aligned: int) -> Any:
    try:
        raw = np.frombuffer(base64.b64decode(told, validate=True), dtype=np.uint8)
    except (binascii.Error, ValueError) as error:
        raise WireError("labels of rows that cannot be read", str(error)) from error
    if len(raw) != -(-aligned // 8):
        raise WireError("labels of another number of rows")
    return np.unpackbits(raw, count=aligned).astype(bool)
