"""Versions of a model: the parts that the parties here keep, and which version is the best.

A part is a copy of all models of the parties here, taken after some round. In a real federation a
party writes it to the disk before it tells the others that it keeps it. The label holder chooses
among the versions that were *committed*: announced by the label holder, and kept on disk by every
party that took part when the version was measured. In a simulation every party keeps every version
at once.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import torch
from torch import Tensor

from colonnade.common.trouble import Trouble
from colonnade.errors import ColonnadeError, InputError
from colonnade.network import Network
from colonnade.network.parts import Kept, Parts, Version

if TYPE_CHECKING:
    from colonnade.learning.algorithm import Algorithm

log = logging.getLogger(__name__)

Part = dict[str, list[dict[str, Tensor]]]  # by stack, by member here
SUFFIX = ".part.safetensors"
PART = "part/"


def digest(tensors: Mapping[str, Mapping[str, Tensor]]) -> str:
    """Of the weights of the parties here."""
    found = hashlib.blake2b(digest_size=16)
    for party in sorted(tensors):
        for name, value in sorted(tensors[party].items()):
            found.update(name.encode())
            found.update(value.detach().contiguous().cpu().view(torch.uint8).numpy().data)
    return found.hexdigest()


class Versions:
    """The parts that the parties here keep of some versions."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.parts: dict[Version, Part | None] = {}  # None: on disk only
        self.unwritten: set[Version] = set()
        self.final: Version | None = None  # the part that does not change any more
        self.used: Version | None = None  # the version that the stacks hold, once trained
        self.store: Store | None = None  # None: parts are in memory only
        self.damaged: list[str] = []  # a remark for each file of a part that cannot be read
        self.trouble = Trouble(log)

    def take(self, net: Network, version: Version, *, final: bool = False) -> None:
        """Keep a copy of the models as a part of this version, and announce it."""
        stacks = self.algorithm.stacks.items()
        self.parts[version] = {name: stack.snapshot() for name, (_, stack) in stacks}
        self.unwritten.add(version)
        if final:
            self.final = version
        self.write(net)

    def recall(self) -> None:
        """After a restart: find the parts that are on the disk."""
        if self.store is None:
            return
        found, self.damaged = self.store.known()
        self.parts |= dict.fromkeys(found)
        self.final = max((v for v, facts in found.items() if facts.final), default=None)
        if found:
            newest = found[max(found)]  # newer than the checkpoint
            self.algorithm.training.ballot.restore(newest.ballot)

    def write(self, net: Network) -> None:
        """Write the parts that are not on the disk yet, and announce which parts are kept. If the
        disk is full, parts stay in memory until the next attempt."""
        for version in sorted(self.unwritten):
            part = self.parts[version]
            try:
                if self.store is not None and part is not None:
                    self.store.write(version, part, final=version == self.final)
                    self.trouble.over(self.store.path(version).name)
                self.unwritten.discard(version)
            except ColonnadeError as error:
                self.trouble.tell(f"{error}; it stays in memory until there is room")
        self.announce(net)

    def announce(self, net: Network) -> None:
        """Tell everybody which parts are kept."""
        kept = [Kept(v, v not in self.unwritten, v == self.final) for v in sorted(self.parts)]
        net.announce(Parts(tuple(kept), committed=self.algorithm.training.committed))

    def keep_only(self, rounds: Iterable[int]) -> None:
        """Forget the versions of other rounds. A party that has none of these rounds keeps its
        newest version, so that it can say what it has."""
        wanted = set(rounds)
        if self.parts and not any(round in wanted for _, round in self.parts):
            wanted.add(max(self.parts)[1])
        for version in [v for v in self.parts if v[1] not in wanted and v != self.final]:
            del self.parts[version]
            self.unwritten.discard(version)
            if self.store is not None:
                self.store.delete(version)

    def serving(self, version: Version) -> Version | None:
        """The version under which the part of this version is kept: a final part serves later
        versions, too. None if no part is kept."""
        for kept in self.parts:
            if Kept(kept, final=kept == self.final).serves(version):
                return kept
        return None

    def newest_of(self, round: int) -> Version | None:
        """The version of a round; the newest if the round was done again."""
        return max((version for version in self.parts if version[1] == round), default=None)

    def use(self, version: Version) -> bool:
        """Load this party's part of a version; False if there is none."""
        mine = self.serving(version)
        if mine is None:
            return False
        if self.used != version:
            self.load(mine)
            self.used = version
        return True

    def load(self, version: Version) -> None:
        """Load the part that is kept under this version into the stacks."""
        part = self.parts[version]
        if part is None:
            assert self.store is not None
            part = self.parts[version] = self.store.read(version)
        for name, snapshot in part.items():
            self.algorithm.stacks[name][1].restore(snapshot)

    # -- without a store, parts are in the checkpoints --------------------------------------------

    def tensors(self, net: Network, party: str) -> dict[str, Tensor]:
        """The parts of one party as named tensors, for its checkpoint."""
        found: dict[str, Tensor] = {}
        for version, part in self.parts.items() if self.store is None else ():
            for name, members in (part or {}).items():
                group, _ = self.algorithm.stacks[name]
                for i, member in enumerate(net.here(group)):
                    if group.parties[member] == party:
                        at = f"{PART}{version[0]}-{version[1]}/{name}/"
                        found |= {f"{at}{key}": value for key, value in members[i].items()}
        return found

    def take_up(self, net: Network, files: dict[str, dict[str, Tensor]]) -> None:
        """The inverse of `tensors`, for all parties here: `files` are their checkpoints."""
        for party, tensors in files.items():
            for key, value in tensors.items():
                if key.startswith(PART):
                    at, name, what = key.removeprefix(PART).split("/", 2)
                    generation, round = map(int, at.split("-"))
                    part = self.parts.setdefault((generation, round), {})
                    group, _ = self.algorithm.stacks[name]
                    here = [group.parties[member] for member in net.here(group)]
                    assert part is not None
                    members = part.setdefault(name, [{} for _ in here])
                    members[here.index(party)][what] = value


class PartFacts(msgspec.Struct):
    """What the file of a part holds beside its tensors."""

    of: str  # the fingerprint of the training
    version: Version
    final: bool
    ballot: list[Candidate]


class Store:
    """Parts on disk: one file per party and version."""

    def __init__(self, algorithm: Algorithm, folder: Path, party: str) -> None:
        self.algorithm, self.folder, self.party = algorithm, folder, party

    def path(self, version: Version) -> Path:
        return self.folder / f"{self.party}.{version[0]}-{version[1]}{SUFFIX}"

    def write(self, version: Version, part: Part, *, final: bool) -> None:
        from colonnade.learning.checkpoint import fingerprint, write

        tensors = {f"{n}.{k}": v for n, (m,) in _mine(part) for k, v in m.items()}
        ballot = self.algorithm.training.ballot.candidates
        facts = PartFacts(fingerprint(self.algorithm), version, final, ballot)
        write(self.path(version), tensors, msgspec.to_builtins(facts))

    def delete(self, version: Version) -> None:
        try:
            self.path(version).unlink(missing_ok=True)
        except OSError as error:
            log.error("%s: cannot be deleted (%s)", self.path(version), error)

    def read(self, version: Version) -> Part:
        from colonnade.learning.checkpoint import fitting, read

        found = read(self.path(version), PartFacts)
        if found is None:
            raise InputError(f"{self.path(version)}: is gone; start the party again")
        part: Part = {}
        for name, (_, stack) in self.algorithm.stacks.items():
            if stack.members:
                wanted = stack.member_state(0)
                mine = {k: found[0].get(f"{name}.{k}") for k in wanted}
                part[name] = [fitting(self.path(version), name, wanted, mine)]
        return part

    def known(self) -> tuple[dict[Version, PartFacts], list[str]]:
        """The versions on disk, each with the facts in its file, and a remark for each file that is
        damaged. Files of a training with other settings are left alone."""
        from colonnade.learning.checkpoint import facts_of, fingerprint

        found, damaged = dict[Version, PartFacts](), list[str]()
        for path in sorted(self.folder.glob(f"{self.party}.*{SUFFIX}")):
            try:
                facts = facts_of(path, PartFacts)
            except InputError as error:
                log.warning("a part of the model is damaged and is not used: %s", error)
                damaged.append(f"{path.name} is damaged and is not used")
                continue
            if facts.of == fingerprint(self.algorithm) and self.path(facts.version) == path:
                found[facts.version] = facts
        return found, damaged


def _mine(part: Part) -> list[tuple[str, list[dict[str, Tensor]]]]:
    return [(name, members) for name, members in part.items() if members]


class Candidate(msgspec.Struct):
    """A version that may be the best, as the label holder measured it."""

    version: Version
    score: float  # the deciding metric, higher is better
    loss: float
    company: list[str]  # parties that took part when the version was measured
    told: float  # when the version was announced (`net.now`)
    error: float = 0.0  # standard error of the score
    kept_by: list[str] = []  # parties of the company that have said that they keep their part


class Ballot:
    """The versions that may be the best, as the label holder knows them. `settle` forgets
    all but the best ones."""

    def __init__(self, parties: Sequence[str]) -> None:
        self.parties = list(parties)
        self.candidates: list[Candidate] = []

    def add(
        self, net: Network, version: Version, score: float, loss: float, error: float = 0.0
    ) -> Candidate:
        """Add the version that was just measured on `net`."""
        missing = net.missing()
        company = [party for party in self.parties if party not in missing]
        # A party that has said nothing since this process started was not needed to measure this
        # version: its part was final before, and serves.
        new = Candidate(version, score, loss, company, net.now, error, net.unheard(company))
        self.candidates = [c for c in self.candidates if c.version != version]
        self.candidates.append(new)
        return new

    def hear(self, net: Network) -> None:
        """Note which parties keep their parts. What a party acknowledged to an earlier process of
        the label holder holds until the party says what it keeps now: a party that is away when the
        label holder restarts has lost nothing."""
        for one in self.candidates:
            lacking = net.lacking(one.version, one.company)
            unheard = set(net.unheard(lacking)).intersection(one.kept_by)
            one.kept_by = [p for p in one.company if p not in lacking or p in unheard]

    def committed(self, one: Candidate) -> bool:
        """Whether every party that took part has said that it keeps its part."""
        return len(one.kept_by) == len(one.company)

    def pending(self, net: Network, one: Candidate) -> bool:
        """Whether it may still be committed: parties that have not said that they keep their part
        were never away since it was announced, and have not gone on without it."""
        lacking = net.lacking(one.version, one.company)
        return not net.away_since(one.told, lacking) and not net.past_without(one.version, lacking)

    def complete(self, one: Candidate) -> bool:
        """Whether all parties took part."""
        return len(one.company) == len(self.parties)

    def settle(self, net: Network) -> tuple[Candidate, Candidate | None]:
        """The best version, and the best committed one (None: there is none); all others are
        forgotten."""
        self.hear(net)
        alive = [c for c in self.candidates if self.committed(c) or self.pending(net, c)]
        best = self._best(alive or self.candidates)
        sure = self._best([c for c in alive if self.committed(c)])
        assert best is not None
        self.candidates = [best] if sure is None or sure is best else [sure, best]
        return best, sure

    def _best(self, candidates: Sequence[Candidate]) -> Candidate | None:
        """The best candidate. A candidate in which all parties took part wins over one whose score
        is higher by less than its standard error."""
        rank = lambda one: (one.score, self.complete(one), -one.loss)  # noqa: E731
        best = max(candidates, key=rank, default=None)
        whole = max(filter(self.complete, candidates), key=rank, default=None)
        if best is None or whole is None:
            return best
        return whole if whole.score >= best.score - best.error else best

    def chosen(self, net: Network, have: Callable[[str, Version], bool]) -> Candidate | None:
        """The version to use at the end: the best committed one; if there is none, one that most
        parties have. `have`: whether a party has its part of a version."""
        self.hear(net)
        sure = [c for c in self.candidates if self.committed(c)]
        if sure:
            return self._best(sure)
        count = lambda c: sum(have(party, c.version) for party in self.parties)  # noqa: E731
        most = max(map(count, self.candidates), default=0)
        return self._best([c for c in self.candidates if count(c) == most])

    def restore(self, candidates: Iterable[Candidate]) -> None:
        """Add the candidates that an earlier life of this process wrote."""
        known = {one.version: one for one in self.candidates}
        for one in candidates:
            one.told = 0.0  # a time of another process
            if one.version not in known:
                self.candidates.append(one)
            elif len(one.kept_by) > len(known[one.version].kept_by):
                known[one.version].kept_by = one.kept_by
