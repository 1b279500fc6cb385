"""Checkpoints: what a party keeps on disk, so that it goes on where it was after a restart.

One safetensors file per party: models, the optimisers' moments and counts, the best models so far,
and what the algorithm declared (`Algorithm.keeps`). The file is replaced whole or not at all. Large
state is in journals beside it (journal.py), and the file says how much of each journal belongs to
it. Not kept: the states of simulated faults, and of modules that draw random numbers.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from colonnade.common.devices import to_device
from colonnade.common.files import replacing
from colonnade.common.user_code import Source, changes
from colonnade.errors import ColonnadeError, InputError
from colonnade.learning.journal import Journal
from colonnade.learning.training import AT_FIRST
from colonnade.learning.versions import Candidate
from colonnade.network import Network
from colonnade.network.parts import Round
from colonnade.network.program_counter import ProgramCounter
from colonnade.network.wire import Count, Step

if TYPE_CHECKING:
    from colonnade.learning.algorithm import Algorithm

SUFFIX = ".checkpoint.safetensors"
FORMAT = 3  # of the file
STATE = "state/"  # begins the names of small declared state
START_OVER = (
    "restore the file, or delete it: without it the party goes on with the parts of the model that "
    "it keeps beside it, and joins a training that is under way; --fresh forgets these, too"
)


Writer = Callable[[Callable[[], None]], None]  # runs a job later, in another thread
Told = TypeVar("Told", bound=msgspec.Struct)


class Header(msgspec.Struct):
    """The facts by which a file of another version of colonnade is recognised."""

    format: int = FORMAT  # parts of versions have none


class Facts(msgspec.Struct, kw_only=True):
    """What a checkpoint holds beside its tensors."""

    format: int = FORMAT
    rounds: Count  # done
    of: str  # the fingerprint of the training
    progress: dict[str, bool | int | float]
    committed: Round | None
    taken: dict[str, list[int]] = {}
    ballot: list[Candidate]
    also: Any  # a subclass says what it holds
    programs: list[tuple[list[Step], Count]] = []  # that run side by side, and their rounds
    code: dict[str, Source] = {}
    journals: dict[str, tuple[Count, Count]] = {}

    def __post_init__(self) -> None:
        if lacking := AT_FIRST.keys() - self.progress.keys():
            raise ValueError(f"progress lacks {', '.join(sorted(lacking))}")


class CheckpointError(ColonnadeError):
    """A checkpoint could not be written; the one before is still there."""


def write(
    path: Path, tensors: dict[str, Tensor], facts: dict[str, Any], *, durable: bool = True
) -> None:
    """Write a file whole or not at all: if the disk is full, the file that was there stays.
    `facts`: whatever JSON can hold. `durable`: see `replacing`."""
    _write(path, copies(tensors), facts, durable)


def copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies of the tensors, which can be written while the originals change."""
    return {
        name: value.detach().contiguous().to("cpu", copy=True) for name, value in tensors.items()
    }


def _write(path: Path, whole: dict[str, Tensor], facts: dict[str, Any], durable: bool) -> None:
    try:
        with replacing(path, durable=durable) as partial:
            safetensors.torch.save_file(whole, partial, {"facts": json.dumps(facts)})
    except (OSError, safetensors.SafetensorError) as error:
        raise CheckpointError(
            f"{path}: cannot be written ({error}); the last one is kept"
        ) from error


@contextmanager
def _opened(path: Path, kind: type[Told]) -> Iterator[tuple[Any, Told]]:
    """A file, and its facts; InputError if the file is damaged."""
    try:
        with safetensors.safe_open(path, "pt") as file:  # pyright: ignore[reportPrivateImportUsage]
            facts = json.loads((file.metadata() or {})["facts"])
            if msgspec.convert(facts, Header).format != FORMAT:
                raise ValueError("it was kept by another version of colonnade")
            yield file, msgspec.convert(facts, kind)
    except (
        OSError,
        safetensors.SafetensorError,
        msgspec.ValidationError,
        KeyError,
        ValueError,
    ) as error:
        raise InputError(f"{path}: not a checkpoint ({error}); {START_OVER}") from error


def read(path: Path, kind: type[Told]) -> tuple[dict[str, Tensor], Told] | None:
    if not path.exists():
        return None
    with _opened(path, kind) as (file, facts):
        names = list(file.keys())
        return {name: to_device(file.get_tensor(name)) for name in names}, facts


def facts_of(path: Path, kind: type[Told]) -> Told:
    """The facts in a file, without reading its tensors."""
    with _opened(path, kind) as (_, facts):
        return facts


def fitting(
    path: Path, name: str, wanted: Mapping[str, Tensor], found: Mapping[str, Tensor | None]
) -> dict[str, Tensor]:
    """The tensors of a file by the names in `wanted`; InputError if one is missing, differs in
    shape or dtype from the wanted one, or is not finite."""
    fit: dict[str, Tensor] = {}
    for key, like in wanted.items():
        value = found.get(key)
        what = f"{name}.{key}" if name else key
        if value is None:
            raise InputError(f"{path}: has no tensor {what}; {START_OVER}")
        if value.shape != like.shape or value.dtype != like.dtype:
            raise InputError(
                f"{path}: {what} is {value.dtype} {tuple(value.shape)}, expected {like.dtype} "
                f"{tuple(like.shape)}; {START_OVER}"
            )
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise InputError(f"{path}: {what} holds values that are not finite; {START_OVER}")
        fit[key] = value
    return fit


class Checkpoint:
    """The checkpoints of the parties here, in one folder. `kind`: says what `also` holds."""

    def __init__(self, algorithm: Algorithm, folder: Path, kind: type[Facts] = Facts) -> None:
        self.algorithm, self.folder, self.kind = algorithm, folder, kind
        self.journals: dict[tuple[str, str], Journal] = {}  # by party and state

    def path(self, party: str) -> Path:
        return self.folder / f"{party}{SUFFIX}"

    def keep(self, net: Network, rounds: int, also: Any, writer: Writer | None = None) -> None:
        """Write the state of the parties here, as it is after so many rounds. `also`: further
        facts, which `resume` gives back. `writer`: writes in another thread; without it, the files
        are written before this returns."""
        algorithm, training = self.algorithm, self.algorithm.training
        facts = self.kind(
            rounds=rounds,
            of=fingerprint(algorithm),
            progress={**training.progress},
            committed=training.committed,
            taken=training.taken,
            ballot=training.ballot.candidates,
            also=also,
            programs=[(list(origin), done) for origin, done in net.rounds_by_program.items()],
            code=dict(algorithm.own_code),
        )
        now = msgspec.to_builtins(facts)  # a copy: the training goes on while it is written
        entries, small = self._entries(net), self._small(net)
        for party, tensors in state(algorithm, net).items():
            mine = tensors | training.versions.tensors(net, party) | small.get(party, {})
            save = partial(self._save, party, copies(mine), now, entries.get(party, {}))
            save() if writer is None else writer(save)

    def _small(self, net: Network) -> dict[str, dict[str, Tensor]]:
        """Declared state that is written into the checkpoint itself, by party."""
        found: dict[str, dict[str, Tensor]] = {}
        for name, (group, one) in self.algorithm.state.items():
            parties = [group.parties[i] for i in net.here(group)]
            for party, tensors in zip(parties, [] if one.large else one.whole(), strict=False):
                mine = found.setdefault(party, {})
                mine |= {f"{STATE}{name}/{key}": value for key, value in tensors.items()}
        return found

    def _entries(self, net: Network) -> dict[str, dict[str, tuple[bool, dict[str, Tensor]]]]:
        """The next entry of each journal, by party and state, and whether it holds all of the
        state."""
        found: dict[str, dict[str, tuple[bool, dict[str, Tensor]]]] = {}
        for name, (group, large) in self.algorithm.state.items():
            parties = [group.parties[i] for i in net.here(group)]
            if not large.large or not parties:
                continue
            journals = [self._journal(party, name) for party in parties]
            everything = any(journal.wants_all for journal in journals)
            news = large.changes()  # asked in any case, so that the same changes are not told again
            news = large.whole() if everything else news
            for party, tensors in zip(parties, news or [{} for _ in parties], strict=True):
                found.setdefault(party, {})[name] = everything, tensors
        return found

    def _journal(self, party: str, name: str) -> Journal:
        return self.journals.setdefault((party, name), Journal(self.folder, party, name))

    def _save(
        self,
        party: str,
        tensors: dict[str, Tensor],
        facts: dict[str, Any],
        entries: dict[str, tuple[bool, dict[str, Tensor]]],
    ) -> None:
        journals = {name: self._journal(party, name) for name in entries}
        try:
            for name, (everything, news) in entries.items():
                if everything:
                    journals[name].begin()
                if news:
                    journals[name].add(news)
            at = {name: journal.at for name, journal in journals.items()}
            _write(self.path(party), tensors, facts | {"journals": at}, durable=True)
        except (OSError, CheckpointError) as error:
            for journal in journals.values():
                journal.incomplete = True  # no checkpoint refers to these entries
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(f"{self.folder}: cannot be written ({error})") from error
        for journal in journals.values():
            journal.incomplete = False
            journal.tidy()

    def resume(self, net: Network) -> Any:
        """Restore the state of the parties here, if all of them have a checkpoint. Returns the
        facts that were given to `keep` (`also`); None: nothing was restored."""
        algorithm, folder = self.algorithm, self.folder
        parties = state(algorithm, net)
        found = {party: read(self.path(party), self.kind) for party in parties}
        if not found or any(stored is None for stored in found.values()):
            return None
        kept_by = {party: stored for party, stored in found.items() if stored is not None}
        told = [facts for _, facts in kept_by.values()]
        for facts in told:
            _check_code(folder, facts.code, algorithm)
        if any(facts.of != fingerprint(algorithm) for facts in told):
            raise InputError(
                f"{folder}: holds the state of another training, with other settings or data; "
                "choose another folder, or start over there with --fresh"
            )
        if any(facts.rounds != told[0].rounds for facts in told):
            raise InputError(f"{folder}: holds states of different rounds; start over without it")
        for party, (tensors, _) in kept_by.items():
            fit = fitting(self.path(party), "", parties[party], tensors)
            with torch.no_grad():
                for name, value in parties[party].items():
                    value.copy_(fit[name])
        self._restore_declared(net, kept_by)
        training, facts = algorithm.training, told[0]
        training.progress, training.committed = dict(facts.progress), facts.committed
        training.taken = facts.taken
        training.versions.take_up(net, {party: tensors for party, (tensors, _) in kept_by.items()})
        training.ballot.restore(facts.ballot)
        training.frozen = training.committed is not None
        net.resume_at = sys.maxsize if training.progress["stopped"] else facts.rounds
        net.rounds_by_program |= {ProgramCounter(origin): done for origin, done in facts.programs}
        for _, stack in algorithm.stacks.values():
            stack.resumed()
        return facts.also

    def _restore_declared(
        self, net: Network, kept_by: dict[str, tuple[dict[str, Tensor], Facts]]
    ) -> None:
        for name, (group, one) in self.algorithm.state.items():
            parties = [group.parties[i] for i in net.here(group)]
            if not parties:
                continue
            if one.large:
                at = [kept_by[party][1].journals.get(name, (0, 0)) for party in parties]
                journals = [self._journal(party, name) for party in parties]
                entries = [j.read(*where) for j, where in zip(journals, at, strict=True)]
                found = list(zip(*entries, strict=True))
            else:
                begin = f"{STATE}{name}/"
                mine = [_named(kept_by[party][0], begin) for party in parties]
                found = [mine] if all(mine) else []
            try:
                for members in found:
                    one.restore([_finite(tensors) for tensors in members])
            except (KeyError, ValueError, RuntimeError, IndexError) as error:
                text = f"{self.folder}: {name} does not fit ({error}); {START_OVER}"
                raise InputError(text) from error


def _named(tensors: dict[str, Tensor], begin: str) -> dict[str, Tensor]:
    return {k.removeprefix(begin): v for k, v in tensors.items() if k.startswith(begin)}


def _finite(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    for name, value in tensors.items():
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise ValueError(f"{name} holds values that are not finite")
    return tensors


def _check_code(folder: Path, kept_with: dict[str, Source], algorithm: Algorithm) -> None:
    if other := changes(kept_with, algorithm.own_code):
        raise InputError(
            f"{folder}: was kept with other code: {'; '.join(other)}. Put the code back as it was, "
            "or start over with --fresh"
        )


def fingerprint(algorithm: Algorithm) -> str:
    """A digest of what decides the training: settings, public facts of the data, seed, and code of
    the user's own."""
    settings = msgspec.json.encode(algorithm.set, enc_hook=lambda own: getattr(own, "__name__", ""))
    text = settings + repr(algorithm.task).encode()
    if algorithm.own_code:
        text += msgspec.json.encode(algorithm.own_code, order="sorted")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def state(algorithm: Algorithm, net: Network) -> dict[str, dict[str, Tensor]]:
    """Models and optimisers by party and name, as views. A party without a model has progress to
    keep as well."""
    learners = [group for group in algorithm.groups if group.name not in algorithm.outside]
    files = {group.parties[i]: dict[str, Tensor]() for group in learners for i in net.here(group)}
    files |= {party: dict(tensors) for party, tensors in algorithm.tensors(net).items()}
    for name, (group, stack) in algorithm.stacks.items():
        for i, member in enumerate(net.here(group)):
            mine = files[group.parties[member]]
            mine |= {f"{name}.optimizer.{k}": v for k, v in stack.optimizer_state(i).items()}
    return files
