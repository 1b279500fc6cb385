"""FedVS as real processes, of which one stands still for a while and others are killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from colonnade.cli import main
from colonnade.common.results import read_results
from colonnade.federation.agreement.federation_file import read_federation
from colonnade.federation.member.local_files import prepare
from colonnade.federation.member.local_processes import Local
from colonnade.federation.member.status import read_status
from colonnade.testing import stacked

FEDERATION = """
name = "shares"
[data]
dataset = "digits"
rows = 120
parties = 4
[method]
algorithm = "fedvs"
encoder = [16]
batch = {batch}
epochs = {epochs}
patience = {epochs}
missing = "{missing}"
[network]
extra_epochs = 0
lease = 1.0
"""


def started(folder: Path, **facts: Any) -> Local:
    source = folder / "shares.toml"
    source.write_text(FEDERATION.format(**facts))
    prepare(read_federation(source), source, folder / "out")
    fed = read_federation(folder / "out" / "federation.toml")
    local = Local(fed, folder / "out", main)
    for party in fed.members:
        local.start(party)
    return local


def until(local: Local, ready: Callable[[dict[str, Any]], bool], seconds: float = 150) -> None:
    end = time.monotonic() + seconds
    while not ready(status := read_status(local.folder / "server")):
        local.check()
        assert time.monotonic() < end, status
        time.sleep(0.02)


def after_round(number: int) -> Callable[[dict[str, Any]], bool]:
    return lambda status: status.get("round", 0) >= number


def test_a_process_that_stands_still_for_longer_than_its_lease_costs_no_weight(
    tmp_path: Path,
) -> None:
    local = started(tmp_path, batch=16, epochs=8, missing="wait")
    try:
        until(local, after_round(4))
        pid = local.processes["client1"].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        until(local, lambda status: "client1" in status.get("away", {}))
        os.kill(pid, signal.SIGCONT)
        until(local, lambda status: local.over())
    finally:
        local.stop()
    one = stacked(local.federation.method, local.federation.vertical_data(), local.federation.seed)
    for party, tensors in one.weights.items():
        (file,) = (local.folder / party / "models").rglob(f"{party}.safetensors")
        mine = safetensors.torch.load_file(file)
        assert all(torch.allclose(mine[k], v, atol=1e-5, rtol=0) for k, v in tensors.items())


def test_one_killed_process_stops_nobody_and_two_stop_all_until_one_is_back(tmp_path: Path) -> None:
    """Three of four must answer. The last epoch is long, because the server waits at its end."""
    local = started(tmp_path, batch=2, epochs=3, missing="last")
    try:
        until(local, after_round(4))
        local.kill("client1")
        reached = read_status(local.folder / "server")["round"]
        until(local, lambda status: "client1" in status.get("away", {}))
        until(local, after_round(reached + 8))
        local.kill("client2")
        until(local, lambda status: status.get("away", {}).get("client2", 0) > 1)
        stood = read_status(local.folder / "server")["round"]
        until(local, lambda status: status["away"]["client2"] > 2)
        assert read_status(local.folder / "server")["round"] == stood
        local.start("client2")
        until(local, after_round(stood + 4))
        local.start("client1")
        until(local, lambda status: local.over())
    finally:
        local.stop()
    (result,) = read_results(local.folder / "server")
    assert result.metrics["test_accuracy"] is not None
    assert result.cost["rounds"] == 1 + 3 * 54
