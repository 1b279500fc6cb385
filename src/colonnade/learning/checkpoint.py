"""What a party keeps on disk, so that it goes on after a restart where it was.

One safetensors file per party: models, the optimisers' moments and counts, the best models so far.
It is replaced whole or not at all. What the label holder remembers is large and written once, to a
file beside it. Not kept: the states of simulated faults, of registers, and of modules that draw
random numbers.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from colonnade.common.files import replacing
from colonnade.common.user_code import Source, changes
from colonnade.errors import ColonnadeError, InputError
from colonnade.network import Network, is_absent

if TYPE_CHECKING:
    from colonnade.learning.algorithm import Algorithm

SUFFIX = ".checkpoint.safetensors"
MEMORY = ".memory.safetensors"
START_OVER = (
    "restore the file, or delete it: without it the party goes on with the parts of the model that "
    "it keeps beside it, and joins a training that is under way; --fresh forgets these, too"
)


class CheckpointError(ColonnadeError):
    """The state of a party could not be kept; the one before still holds."""


def write(
    path: Path, tensors: dict[str, Tensor], facts: dict[str, Any], *, durable: bool = True
) -> None:
    """Whole or not at all: a full disk leaves what was there before."""
    job(path, tensors, facts, durable=durable)()


def job(
    path: Path, tensors: dict[str, Tensor], facts: dict[str, Any], *, durable: bool = True
) -> Callable[[], None]:
    """The writing of these values as they are now, to be done whenever."""
    whole = {name: value.detach().contiguous().clone() for name, value in tensors.items()}
    return lambda: _write(path, whole, {"facts": json.dumps(facts)}, durable)


def _write(path: Path, whole: dict[str, Tensor], facts: dict[str, str], durable: bool) -> None:
    try:
        with replacing(path, durable=durable) as partial:
            safetensors.torch.save_file(whole, partial, facts)
    except (OSError, safetensors.SafetensorError) as error:
        raise CheckpointError(
            f"{path}: cannot be written ({error}); the last one is kept"
        ) from error


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    if not path.exists():
        return None
    try:
        with safetensors.safe_open(path, "pt") as file:  # pyright: ignore[reportPrivateImportUsage]
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, json.loads((file.metadata() or {})["facts"])
    except (OSError, safetensors.SafetensorError, KeyError, ValueError) as error:
        raise InputError(f"{path}: not a checkpoint ({error}); {START_OVER}") from error


def facts_of(path: Path) -> dict[str, Any]:
    """What stands in a file beside its tensors; nothing if the file is broken."""
    try:
        with safetensors.safe_open(path, "pt") as file:  # pyright: ignore[reportPrivateImportUsage]
            return json.loads((file.metadata() or {})["facts"])
    except (OSError, safetensors.SafetensorError, KeyError, ValueError):
        return {}


def fitting(
    path: Path, name: str, wanted: Mapping[str, Tensor], found: Mapping[str, Tensor | None]
) -> dict[str, Tensor]:
    """The tensors of a file, if they can take the place of those that are wanted."""
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


def keep(
    algorithm: Algorithm,
    net: Network,
    folder: Path,
    rounds: int,
    writer: Callable[[Callable[[], None]], None] | None = None,
) -> None:
    """Write the state of the parties here, as it is after so many rounds. `writer` does the writing
    a moment later; without it, it is done at once."""
    training = algorithm.training
    memory = {k: v for k, v in algorithm.memory.items() if not is_absent(v)}
    facts = {"rounds": rounds, "of": fingerprint(algorithm), "progress": training.progress}
    facts |= {"memory": sorted(memory), "committed": training.committed}
    facts |= {"ballot": training.ballot.facts(), "also": algorithm.also}
    facts |= {"code": msgspec.to_builtins(algorithm.own_code)}
    if memory and algorithm.memory_kept != facts["memory"]:
        write(folder / f"{algorithm.labels.parties[0]}{MEMORY}", memory, {})
        algorithm.memory_kept = facts["memory"]
    for party, tensors in state(algorithm, net).items():
        mine = tensors | training.versions.tensors(net, party)
        write_it = job(folder / f"{party}{SUFFIX}", mine, facts)
        write_it() if writer is None else writer(write_it)


def resume(algorithm: Algorithm, net: Network, folder: Path) -> bool:
    """Take up the state of the parties here, if all of them kept one."""
    parties = state(algorithm, net)
    found = {party: read(folder / f"{party}{SUFFIX}") for party in parties}
    if not found or any(stored is None for stored in found.values()):
        return False
    kept_by = {party: stored for party, stored in found.items() if stored is not None}
    told = [facts for _, facts in kept_by.values()]
    for facts in told:
        _check_code(folder, msgspec.convert(facts.get("code", {}), dict[str, Source]), algorithm)
    if any(facts["of"] != fingerprint(algorithm) for facts in told):
        raise InputError(f"{folder}: holds the state of another training; choose another folder")
    if any(facts["rounds"] != told[0]["rounds"] for facts in told):
        raise InputError(f"{folder}: holds states of different rounds; start over without it")
    for party, (tensors, _) in kept_by.items():
        fit = fitting(folder / f"{party}{SUFFIX}", "", parties[party], tensors)
        with torch.no_grad():
            for name, value in parties[party].items():
                value.copy_(fit[name])
    if told[0]["memory"]:
        stored = read(folder / f"{algorithm.labels.parties[0]}{MEMORY}")
        if stored is None:
            raise InputError(f"{folder}: the memory of {algorithm.labels.parties[0]} is missing")
        algorithm.memory |= stored[0]
        algorithm.memory_kept = sorted(stored[0])
    training = algorithm.training
    training.progress, training.committed = told[0]["progress"], told[0]["committed"]
    training.versions.take_up(net, {party: tensors for party, (tensors, _) in kept_by.items()})
    training.ballot.restore(told[0]["ballot"])
    training.frozen = training.committed is not None
    algorithm.also = told[0]["also"]
    net.resume_at = sys.maxsize if training.progress["stopped"] else told[0]["rounds"]
    for _, stack in algorithm.stacks.values():
        stack.resumed()
    return True


def _check_code(folder: Path, kept_with: dict[str, Source], algorithm: Algorithm) -> None:
    if other := changes(kept_with, algorithm.own_code):
        raise InputError(
            f"{folder}: was kept with other code: {'; '.join(other)}. Put the code back as it was, "
            "or start over with --fresh"
        )


def fingerprint(algorithm: Algorithm) -> str:
    """Of what was trained how: settings, public facts of the data, seed, code of the user's own."""
    settings = msgspec.json.encode(algorithm.set, enc_hook=lambda own: getattr(own, "__name__", ""))
    text = settings + repr(algorithm.task).encode()
    if algorithm.own_code:
        text += msgspec.json.encode(algorithm.own_code, order="sorted")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def state(algorithm: Algorithm, net: Network) -> dict[str, dict[str, Tensor]]:
    """Models and optimisers by party and name, as views."""
    files = algorithm.tensors(net)
    for name, (group, stack) in algorithm.stacks.items():
        for i, member in enumerate(net.here(group)):
            mine = files[group.parties[member]]
            mine |= {f"{name}.optimizer.{k}": v for k, v in stack.optimizer_state(i).items()}
    return files
