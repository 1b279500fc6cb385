"""Predictions over HTTP: four local parties, one of which holds the labels as well and is asked.

Five processes, with mutual TLS between the parties, and a load generator in this one. It listens
and connects on the loopback interface only. Requests are sent at a fixed rate, whether or not the
answers to those before have come; each is timed from the moment at which it was due. Each asks for
one row. Then the same once more, and two of the four parties are killed in the middle.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.timing import Figure, Measure, Spread, Target
from colonnade.cli import main
from colonnade.federation.agreement.federation_file import parse_federation, read_federation
from colonnade.federation.member.local_files import FEDERATION, prepare
from colonnade.federation.member.local_processes import Local, running
from colonnade.federation.member.stage import Stage

RATE, REQUESTS, REPEATS = 250, 2500, 3  # requests per second; of one measurement; measurements
CONNECTIONS = 16
LIMIT = 60.0  # seconds for one measurement
READY = 60.0  # seconds for processes to be ready
ASKED, KILLED = "hospital", ("clinic", "lab")
PARTIES = [
    {"name": "clinic", "role": "clients"},
    {"name": "lab", "role": "clients"},
    {"name": "ward", "role": "clients"},
    {"name": ASKED, "roles": ["clients", "server"]},
]


@dataclass(frozen=True)
class Reply:
    """One request, from the moment at which it was due."""

    begun: float
    ended: float
    status: int
    absent: frozenset[str] = frozenset()

    @property
    def milliseconds(self) -> float:
        return 1e3 * (self.ended - self.begun)


def run() -> list[Figure]:
    with TemporaryDirectory() as name, federation(Path(name)) as local, http(Path(name)) as port:
        load(port, min(100, REQUESTS))  # the first requests open sessions and import modules
        calm = [load(port, REQUESTS) for _ in range(REPEATS)]
        disturbed, killed = load_while_killing(port, local)
    rates = [len(replies) / _duration(replies) for replies in calm]
    late = [reply for reply in disturbed if reply.begun > killed]
    unnamed = [reply for reply in late if reply.absent != frozenset(KILLED)]
    failed = [r for replies in (*calm, disturbed) for r in replies if r.status != 200]
    return [
        _figure("predictions per second", rates, Target(200)),
        _figure("median, ms", [_share(replies, 0.5) for replies in calm]),
        _figure("99 of 100 within, ms", [_share(r, 0.99) for r in calm], Target(50, False)),
        _figure("99 of 100, two of four parties killed, ms", [_share(disturbed, 0.99)]),
        _figure("longest, two of four parties killed, ms", [_share(disturbed, 1.0)]),
        _figure("answers after the kill", [float(len(late))]),
        _figure("of these, not naming both killed", [float(len(unnamed))], Target(0, False)),
        _figure("requests that failed", [float(len(failed))], Target(0, False)),
    ]


def _figure(variant: str, values: list[float], target: Target | None = None) -> Figure:
    spread = Spread.of(values)
    return Figure("serve", variant, 0.0, "", Measure(spread, spread), target)


def _duration(replies: Sequence[Reply]) -> float:
    return max(r.ended for r in replies) - min(r.begun for r in replies)


def _share(replies: Sequence[Reply], share: float) -> float:
    """So many of the requests took no longer than this many milliseconds."""
    times = sorted(reply.milliseconds for reply in replies)
    return times[min(len(times) - 1, int(share * len(times)))]


# -- the federation --------------------------------------------------------------------------------


@contextmanager
def federation(folder: Path) -> Iterator[Local]:
    """Four parties that train, and then answer."""
    table = {
        "name": "four",
        "data": {"dataset": "digits", "parties": 4, "split": "bands"},
        "method": {"algorithm": "splitnn", "epochs": 2},
        "parties": PARTIES,
    }
    prepare(parse_federation(table, "bench"), folder / FEDERATION, folder / "out")
    known = read_federation(folder / "out" / FEDERATION)
    with running(Local(known, folder / "out", main, serve=True)) as local:
        deadline = time.monotonic() + READY
        while local.stage() != Stage.ANSWERING and time.monotonic() < deadline:
            local.check()
            time.sleep(0.1)
        yield local


@contextmanager
def http(folder: Path) -> Iterator[int]:
    """`colonnade serve` at the label holder; its port."""
    words = ["serve", str(folder / "out" / f"{ASKED}.toml"), "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "colonnade", *words],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "200", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        if found is None:
            raise RuntimeError(f"colonnade serve did not start: {line}{process.stderr.read()}")
        yield int(found[1])
    finally:
        process.terminate()
        process.wait(30)


# -- the load --------------------------------------------------------------------------------------


def load(port: int, requests: int) -> list[Reply]:
    return asyncio.run(_bounded(port, requests))


def load_while_killing(port: int, local: Local) -> tuple[list[Reply], float]:
    """The replies, and the moment at which both parties were dead."""
    killed = 0.0

    def kill() -> None:
        nonlocal killed
        for party in KILLED:
            local.kill(party)
        killed = time.perf_counter()

    async def whole() -> list[Reply]:
        loop = asyncio.get_running_loop()
        replies = asyncio.create_task(_bounded(port, REQUESTS))
        await asyncio.sleep(REQUESTS / RATE / 2)
        await loop.run_in_executor(None, kill)
        return await replies

    return asyncio.run(whole()), killed


async def _bounded(port: int, requests: int) -> list[Reply]:
    async with asyncio.timeout(LIMIT):
        return await _load(port, requests)


async def _load(port: int, requests: int) -> list[Reply]:
    begun, due = time.perf_counter(), iter(range(requests))
    replies: list[Reply] = []

    async def one_connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in due:
            moment = begun + number / RATE
            await asyncio.sleep(max(0.0, moment - time.perf_counter()))
            status, body = await _post(reader, writer, str(number % 300 + 1))
            absent = frozenset(json.loads(body).get("absent", ()))
            replies.append(Reply(moment, time.perf_counter(), status, absent))
        writer.close()

    await asyncio.gather(*[one_connection() for _ in range(CONNECTIONS)])
    return replies


async def _post(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str
) -> tuple[int, bytes]:
    body = json.dumps({"keys": [key]}).encode()
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    told = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = re.search(rb"content-length: (\d+)", told)
    assert length is not None
    return int(told.split()[1]), await reader.readexactly(int(length[1]))
