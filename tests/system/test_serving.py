"""`colonnade serve` as a process, beside four parties of which two are killed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from bench.serving import ASKED, KILLED, federation
from tests.command_line import colonnade

from colonnade.federation.member.local_processes import Local

PREDICT = {"keys": ["1", "2", "no such key"], "seconds": 20}


def serve(party: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "colonnade", "serve", str(party), *words],
        stderr=subprocess.PIPE,
        text=True,
    )


def test_programs_are_answered_while_two_of_four_parties_are_killed(tmp_path: Path) -> None:
    """No request fails, every answer after the kill names both, and the server ends in good
    order."""
    party = tmp_path / "out" / f"{ASKED}.toml"
    with federation(tmp_path) as local:
        assert colonnade("serve", str(party), "--new-token", folder=tmp_path).returncode == 0
        token = (tmp_path / "out" / ASKED / "serve.token").read_text().strip()
        server = serve(party, "--port", "0")
        try:
            assert server.stderr is not None
            found = re.search(r"http://[0-9.:]+", server.stderr.readline())
            assert found is not None
            with httpx.Client(base_url=found[0], trust_env=False, timeout=60) as client:
                assert client.post("/predict", json=PREDICT).status_code == 401
                assert client.get("/health").json() == {"status": "ok"}
                client.headers["authorization"] = f"Bearer {token}"
                killed_in_the_middle(client, local)
        finally:
            server.send_signal(signal.SIGTERM)
            ended = server.wait(60)
        assert ended == 0
        assert f"{ASKED} is not served any more" in server.stderr.read()


def killed_in_the_middle(client: httpx.Client, local: Local) -> None:
    def ask(_: int) -> httpx.Response:
        return client.post("/predict", json=PREDICT)

    def kill() -> None:
        for name in KILLED:
            local.kill(name)

    with ThreadPoolExecutor(8) as pool:
        before = list(pool.map(ask, range(20)))
        meanwhile = [pool.submit(ask, i) for i in range(20)]
        pool.submit(kill).result()
        after = list(pool.map(ask, range(20)))
        answers = [*before, *(one.result() for one in meanwhile), *after]
    assert {one.status_code for one in answers} == {200}
    assert all(one.json()["complete"] for one in before)
    for one in after:
        told = one.json()
        assert told["absent"] == dict.fromkeys(KILLED, "away")
        assert [row["status"] for row in told["rows"]] == [200, 200, 404]
        assert told["rows"][0]["absent"] == dict.fromkeys(KILLED, "away")
    limit = time.monotonic() + 30
    while set((status := client.get("/status").json())["party"]["away"]) != set(KILLED):
        assert time.monotonic() < limit, status  # a party writes its status twice a second
        time.sleep(0.1)
    assert status["served"]["requests"] == len(answers)
