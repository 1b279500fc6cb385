"""What a party keeps on disk, so that it goes on after a restart where it was.

One safetensors file per party: models, the optimisers' moments and counts, the best models so far,
and whatever else the algorithm remembers. It is replaced whole or not at all.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from colonnade.network import Network, is_absent

if TYPE_CHECKING:
    from colonnade.algorithms.algorithm import Algorithm

SUFFIX = ".checkpoint.safetensors"


def write(folder: Path, party: str, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{party}{SUFFIX}"
    partial = path.with_name(path.name + ".partial")
    whole = {name: value.detach().contiguous().clone() for name, value in tensors.items()}
    safetensors.torch.save_file(whole, partial, {"facts": json.dumps(facts)})
    os.replace(partial, path)


def read(folder: Path, party: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    path = folder / f"{party}{SUFFIX}"
    if not path.exists():
        return None
    with safetensors.safe_open(path, "pt") as file:  # pyright: ignore[reportPrivateImportUsage]
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, json.loads((file.metadata() or {})["facts"])


def keep(algorithm: Algorithm, net: Network, folder: Path) -> None:
    """Write the state of the parties here, as it is at the end of this round."""
    facts = {"round": net.round, **algorithm.progress}
    memory = {k: v for k, v in algorithm.memory.items() if not is_absent(v)}
    for party, tensors in state(algorithm, net).items():
        mine = dict(tensors)
        if party in algorithm.labels.parties:
            mine |= {f"memory.{name}": value for name, value in memory.items()}
        for name, snapshot in algorithm.best_models.items():
            group, _ = algorithm.stacks[name]
            for i, member in enumerate(net.here(group)):
                if group.parties[member] == party:
                    mine |= {f"best.{name}.{key}": value for key, value in snapshot[i].items()}
        write(folder, party, mine, facts)


def resume(algorithm: Algorithm, net: Network, folder: Path) -> bool:
    """Take up the state of the parties here, if all of them kept one."""
    parties = state(algorithm, net)
    found = {party: read(folder, party) for party in parties}
    if not found or any(stored is None for stored in found.values()):
        return False
    best: dict[str, list[dict[str, Tensor]]] = {}
    for party, stored in found.items():
        assert stored is not None
        tensors, facts = stored
        with torch.no_grad():
            for name, value in parties[party].items():
                value.copy_(tensors[name])
        for name, value in tensors.items():
            if name.startswith("memory."):
                algorithm.memory[name.removeprefix("memory.")] = value
        for name, (group, _) in algorithm.stacks.items():
            prefix = f"best.{name}."
            kept = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            if kept and party in group.parties:
                best.setdefault(name, []).append(kept)
        algorithm.progress = {k: v for k, v in facts.items() if k != "round"}
        net.resume_at = facts["round"] + 1
    algorithm.best_models = best
    for _, stack in algorithm.stacks.values():
        stack.resumed()
    return True


def state(algorithm: Algorithm, net: Network) -> dict[str, dict[str, Tensor]]:
    """Models and optimisers by party and name, as views."""
    files = algorithm.tensors(net)
    for name, (group, stack) in algorithm.stacks.items():
        for i, member in enumerate(net.here(group)):
            mine = files[group.parties[member]]
            mine |= {f"{name}.optimizer.{k}": v for k, v in stack.optimizer_state(i).items()}
    return files
