"""A grid on two Ray nodes, in a network of their own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from bench.ray_nodes import on_nodes, unavailable

from colonnade.experiments.config import parse_experiment
from colonnade.experiments.runner import run_experiment

GRID: dict[str, Any] = {
    "name": "grid",
    "seeds": [0, 1, 2, 3, 4],
    "data": {"dataset": "digits", "rows": 200},
    "faults": [
        {"name": "none"},
        {"name": "clients", "kind": "client", "down": 0.3, "up": 0.0, "when": "always"},
    ],
    "methods": [
        {"algorithm": "splitnn", "epochs": 250, "patience": 250},
        {"name": "waits", "algorithm": "splitnn", "epochs": 3, "missing": "wait"},
    ],
}
TIMES = re.compile(rb'"wall_seconds":[0-9.]+')


def files(folder: Path) -> dict[str, bytes]:
    """Everything in an output folder, without the times."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(p.relative_to(folder)): TIMES.sub(b"", p.read_bytes()) for p in paths}


@pytest.mark.skipif(bool(unavailable()), reason=unavailable())
def test_a_grid_that_is_stopped_and_loses_a_node_ends_as_on_one_machine(tmp_path: Path) -> None:
    """Ctrl-C after three results, the same command again, and a node killed: all results, none
    twice, byte for byte those of one process. A run that fails by itself fails once, for its own
    reason."""
    told = on_nodes(tmp_path, GRID, kill_after=4, stop_after=3)
    local = run_experiment(parse_experiment(GRID, "grid"), tmp_path / "local")
    assert len(local.results) == 15
    assert told["results"] == [result.run for result in local.results]
    assert sorted(told["failures"]) == sorted(local.failures.values())
    assert set(told["finished"].values()) == {1}
    assert len(told["finished"]) == 20
    assert any("; it is tried again" in line for line in told["lost"])
    ray = files(tmp_path / "out")
    # Failures are written in the order in which runs end.
    ray["failures.jsonl"] = b"\n".join(sorted(ray["failures.jsonl"].split(b"\n")))
    here = files(tmp_path / "local")
    here["failures.jsonl"] = b"\n".join(sorted(here["failures.jsonl"].split(b"\n")))
    assert ray == here
