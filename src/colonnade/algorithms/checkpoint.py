"""What a party keeps on disk, so that it goes on after a restart where it was.

One safetensors file per party: models, the optimisers' moments and counts, the best models so far.
It is replaced whole or not at all. What the label holder remembers is large and written once, to a
file beside it. Not kept: the states of simulated faults, of registers, and of modules that draw
random numbers.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from colonnade.errors import ColonnadeError, InputError
from colonnade.network import Network, is_absent

if TYPE_CHECKING:
    from colonnade.algorithms.algorithm import Algorithm

SUFFIX = ".checkpoint.safetensors"
MEMORY = ".memory.safetensors"


class CheckpointError(ColonnadeError):
    """The state of a party could not be kept; the one before still holds."""


def write(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Whole or not at all: a full disk leaves what was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    whole = {name: value.detach().contiguous().clone() for name, value in tensors.items()}
    try:
        safetensors.torch.save_file(whole, partial, {"facts": json.dumps(facts)})
        with partial.open("rb") as file:
            os.fsync(file.fileno())  # a power cut must not leave an empty file under the name
        os.replace(partial, path)
    except (OSError, safetensors.SafetensorError) as error:
        partial.unlink(missing_ok=True)
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
        raise InputError(f"{path}: not a checkpoint ({error})") from error


def keep(algorithm: Algorithm, net: Network, folder: Path, rounds: int) -> None:
    """Write the state of the parties here, as it is after so many rounds."""
    memory = {k: v for k, v in algorithm.memory.items() if not is_absent(v)}
    facts = {"rounds": rounds, "of": fingerprint(algorithm), "progress": algorithm.progress}
    facts |= {"memory": sorted(memory)}
    if memory and algorithm.memory_kept != facts["memory"]:
        write(folder / f"{algorithm.labels.parties[0]}{MEMORY}", memory, {})
        algorithm.memory_kept = facts["memory"]
    for party, tensors in state(algorithm, net).items():
        mine = dict(tensors)
        for name, snapshot in algorithm.best_models.items():
            group, _ = algorithm.stacks[name]
            for i, member in enumerate(net.here(group)):
                if group.parties[member] == party:
                    mine |= {f"best.{name}.{key}": value for key, value in snapshot[i].items()}
        write(folder / f"{party}{SUFFIX}", mine, facts)


def resume(algorithm: Algorithm, net: Network, folder: Path) -> bool:
    """Take up the state of the parties here, if all of them kept one."""
    parties = state(algorithm, net)
    found = {party: read(folder / f"{party}{SUFFIX}") for party in parties}
    if not found or any(stored is None for stored in found.values()):
        return False
    kept_by = {party: stored for party, stored in found.items() if stored is not None}
    told = [facts for _, facts in kept_by.values()]
    if any(facts["of"] != fingerprint(algorithm) for facts in told):
        raise InputError(f"{folder}: holds the state of another training; choose another folder")
    if any(facts["rounds"] != told[0]["rounds"] for facts in told):
        raise InputError(f"{folder}: holds states of different rounds; start over without it")
    best: dict[str, list[dict[str, Tensor]]] = {}
    for party, (tensors, _) in kept_by.items():
        with torch.no_grad():
            for name, value in parties[party].items():
                value.copy_(tensors[name])
        for name, (group, _) in algorithm.stacks.items():
            prefix = f"best.{name}."
            kept = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            if kept and party in group.parties:
                best.setdefault(name, []).append(kept)
    if told[0]["memory"]:
        stored = read(folder / f"{algorithm.labels.parties[0]}{MEMORY}")
        if stored is None:
            raise InputError(f"{folder}: the memory of {algorithm.labels.parties[0]} is missing")
        algorithm.memory |= stored[0]
        algorithm.memory_kept = sorted(stored[0])
    algorithm.best_models, algorithm.progress = best, told[0]["progress"]
    net.resume_at = sys.maxsize if algorithm.progress["stopped"] else told[0]["rounds"]
    for _, stack in algorithm.stacks.values():
        stack.resumed()
    return True


def fingerprint(algorithm: Algorithm) -> str:
    """Of what was trained how: settings, public facts of the data, seed."""
    settings = msgspec.json.encode(algorithm.set, enc_hook=lambda own: getattr(own, "__name__", ""))
    text = settings + repr(algorithm.task).encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def state(algorithm: Algorithm, net: Network) -> dict[str, dict[str, Tensor]]:
    """Models and optimisers by party and name, as views."""
    files = algorithm.tensors(net)
    for name, (group, stack) in algorithm.stacks.items():
        for i, member in enumerate(net.here(group)):
            mine = files[group.parties[member]]
            mine |= {f"{name}.optimizer.{k}": v for k, v in stack.optimizer_state(i).items()}
    return files
