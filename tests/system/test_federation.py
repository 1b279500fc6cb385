"""Real processes: started, killed, restarted, asked."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from colonnade.cli import main
from colonnade.federation.agreement.federation_file import read_federation
from colonnade.federation.agreement.party_file import read_party
from colonnade.federation.asking.parties import find_party
from colonnade.federation.asking.statuses import statuses
from colonnade.federation.member.local_files import free_addresses, prepare
from colonnade.federation.member.local_processes import Local
from colonnade.federation.member.status import read_status
from colonnade.testing import stacked

FEDERATION = """
name = "trial"
[data]
dataset = "digits"
rows = 400
[method]
algorithm = "splitnn"
epochs = 4
"""
CHAOS = """
name = "chaos"
[data]
dataset = "digits"
rows = 600
parties = 2
[method]
algorithm = "dvfl"
aggregators = 1
client_epochs = 90
aggregator_epochs = 90
epochs = 60
optimizer = "adam"
lr = 3e-3
missing = "retry"
"""
HUB = """
name = "hub"
[data]
dataset = "digits"
rows = 400
parties = 2
[method]
algorithm = "splitnn"
epochs = 2
[network]
hub = "server"
"""


def colonnade(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "colonnade", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def told(folder: Path, *words: str, seconds: float = 120) -> str:
    process = colonnade(folder, *words)
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, err + out
    return out


def test_processes_train_what_one_process_trains_and_answer_later(tmp_path: Path) -> None:
    (tmp_path / "trial.toml").write_text(FEDERATION)
    document = json.loads(told(tmp_path, "up", "trial.toml", "--out", "out", "--json"))
    fed = read_federation(tmp_path / "out" / "federation.toml")
    one = stacked(fed.method, fed.vertical_data(), fed.seed)
    for party, tensors in one.weights.items():
        (file,) = (tmp_path / "out" / party / "models").rglob(f"{party}.safetensors")
        mine = safetensors.torch.load_file(file)
        assert all(torch.allclose(mine[k], v, atol=1e-5, rtol=0) for k, v in tensors.items())
    assert document["result"]["metrics"]["test_accuracy"] == one.metrics["test_accuracy"]
    assert (tmp_path / "out" / "server" / "results.jsonl").exists()
    assert read_status(tmp_path / "out" / "server")["stage"] == "done"
    rows = list(csv.DictReader(io.StringIO(told(tmp_path, "predict", "out", "--ids", "1,2,3"))))
    assert [row["id"] for row in rows] == ["1", "2", "3"]
    assert {row["absent"] for row in rows} == {""}
    assert all(0 <= int(row["prediction"]) < 10 for row in rows)


def test_a_training_ends_although_processes_are_killed_all_the_time(tmp_path: Path) -> None:
    (tmp_path / "chaos.toml").write_text(CHAOS)
    words = ("up", "chaos.toml", "--out", "out", "--kill-every", "2", "--chaos-seed", "4", "--json")
    process = colonnade(tmp_path, *words)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    # The training takes a few seconds, and who is away for three of them misses half of it, so no
    # accuracy is asked for here. What chaos costs a longer training is measured in
    # docs/explanation/real-federations.md.
    result = json.loads(out)["result"]
    assert result["cost"]["rounds"] > 300
    assert result["metrics"]["test_accuracy"] is not None
    kills = re.search(r"(\d+) processes were killed", err)
    assert kills
    assert int(kills[1]) > 0
    assert "--chaos-seed 4" in err


def test_a_party_waits_for_the_others_tells_who_is_away_and_leaves_politely(tmp_path: Path) -> None:
    (tmp_path / "trial.toml").write_text(FEDERATION)
    prepare(read_federation(tmp_path / "trial.toml"), tmp_path / "trial.toml", tmp_path / "out")
    server, client = (colonnade(tmp_path, "join", f"out/{p}.toml") for p in ("server", "client2"))
    try:
        known: dict[str, Any] = {}
        end = time.monotonic() + 60
        party = find_party(tmp_path / "out")
        while not known.get("away") or "client2" in known["away"]:
            assert time.monotonic() < end, known
            assert server.poll() is None, server.communicate()
            known = statuses(party, timeout=1.0)["server"]
        assert known["away"].keys() == {"client0", "client1", "client3"}
        client.kill()
        while "client2" not in known["away"]:
            assert time.monotonic() < end, known
            known = statuses(party, timeout=1.0)["server"]
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=20)
        assert server.returncode == 0
        assert "has left" in err + out
        assert "Traceback" not in err
        asked = json.loads(told(tmp_path, "status", "out", "--json"))
        assert asked["server"]["stage"] == "left"
        assert asked["server"]["ended"]["during"] == "waiting for the others"
        assert asked["client2"]["stage"] == "gone", "it was killed"
        assert asked["client0"] == {}
        assert "killed" in told(tmp_path, "status", "out")
    finally:
        for process in (server, client):
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
            process.communicate()


@contextmanager
def twin_of_client1(source: str, folder: Path) -> Iterator[tuple[Local, dict[str, str]]]:
    """The server and client1 run; a second process of client1, in another folder and at another
    port, has been refused. With what each of them logged."""
    file = folder.parent / "federation.toml"
    file.write_text(source)
    prepare(read_federation(file), file, folder)
    mine, (address,) = (folder / "client1.toml").read_text(), free_addresses(1)
    twin = mine.replace('folder = "client1"', f'folder = "twin"\nlisten = "{address}"')
    (folder / "twin.toml").write_text(twin)
    local = Local(read_federation(folder / "federation.toml"), folder, main, serve=True)
    try:
        local.start("server")
        local.start("client1")
        wait_until(folder, lambda away: "client1" not in away)
        local.start("twin")
        local.processes["twin"].join(60)
        assert local.processes["twin"].exitcode == 2
        yield local, {one: (folder / one / "log.txt").read_text() for one in local.processes}
    finally:
        local.stop()


def test_a_second_process_with_the_same_certificate_is_refused(tmp_path: Path) -> None:
    """While the first is there it ends with an error, and when the first was killed it takes its
    place."""
    folder = tmp_path / "out"
    with twin_of_client1(HUB, folder) as (local, said):
        assert "client1: a second process has its certificate" in said["server"]
        assert "a second process has our certificate; server listens to us only" in said["client1"]
        assert "takes part already" in " ".join(said["twin"].split())
        local.kill("client1")
        wait_until(folder, lambda away: "client1" in away)
        local.start("twin")
        wait_until(folder, lambda away: "client1" not in away)
        assert local.processes["twin"].exitcode is None


def test_a_second_process_to_which_nobody_would_connect_is_refused(tmp_path: Path) -> None:
    """Clients come before the server in this file, so that the server connects to them: where the
    file says. A second process of a client that listens elsewhere would wait for ever."""
    with twin_of_client1(FEDERATION, tmp_path / "out") as (_, said):
        assert "client1 takes part already" in " ".join(said["twin"].split())
        assert "a second process with our certificate was started" in said["client1"]


def wait_until(folder: Path, ready: Callable[[dict[str, float]], bool]) -> None:
    """Until the server tells so of those who are away."""
    end, party = time.monotonic() + 60, read_party(folder / "server.toml")
    while True:
        told = statuses(party, timeout=1.0)["server"]
        if told and ready(told["away"]):
            return
        assert time.monotonic() < end, told
