"""Two organisations as two processes: split learning over mutual TLS, and one exchange of 80 KB.

Beside it the way a researcher would write it: two processes of plain PyTorch that send each other
pickled tensors over a local socket, with no faults, no deadlines and no ledger. Models,
batch and data (random, of MNIST's size) are the same. The steps per second of a FATE neural network
with two local parties were 29.5 on a machine of the same kind.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Client, Listener
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from rich import box
from rich.table import Table
from torch import nn

from bench.timing import Figure, Measure, Spread, Target
from colonnade.cli import main
from colonnade.common.results import read_history
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.keys.certificates import make_authority, make_certificate
from colonnade.federation.keys.identity import Identity
from colonnade.federation.member.local_files import free_addresses
from colonnade.federation.member.local_processes import up
from colonnade.learning.models import default_encoder, default_head
from colonnade.models import mlp
from colonnade.network.clock import Signal, WallClock
from colonnade.network.transport.zenoh import Place, ZenohTransport

ROWS, WIDTH, CLASSES, BATCH, EPOCHS = 12_800, 784, 10, 128, 6
REPEATS, TRIPS, SIZE = 3, 2000, 80_000
SECRET = b"not a secret"


def run() -> list[Figure]:
    ours, plain = [], []
    for _ in range(REPEATS):
        plain.append(plain_steps())
        ours.append(our_steps())
    direct, whole = plain_trips(), our_trips()
    ratio = [one / other for one, other in zip(ours, plain, strict=True)]
    return [
        _figure("steps per second, plain PyTorch, local socket, pickle", plain),
        _figure("steps per second, Colonnade, mutual TLS", ours, Target(100)),
        _figure("Colonnade relative to plain", ratio),
        _figure("80 KB there and back, local socket, ms", direct),
        _figure("80 KB there and back, Colonnade, mutual TLS, ms", whole, Target(2, False)),
    ]


def _figure(variant: str, values: list[float], target: Target | None = None) -> Figure:
    spread = Spread.of(values)
    return Figure("processes", variant, 0.0, "", Measure(spread, spread), target)


def table(figures: list[Figure]) -> Table:
    result = Table(
        box=box.SIMPLE_HEAD, caption="median (smallest – largest)", caption_justify="left"
    )
    result.add_column(figures[0].benchmark)
    for header in ("measured", "target", "reached"):
        result.add_column(header, justify="right", no_wrap=True)
    for figure in figures:
        assert figure.result is not None
        wall, target = figure.result.wall, figure.target
        result.add_row(
            figure.variant,
            f"{wall.median:.2f} ({wall.low:.2f} – {wall.high:.2f})",
            f"{'≥' if target.at_least else '≤'} {target.limit:g}" if target else "",
            "" if figure.reached is None else "yes" if figure.reached else "no",
        )
    return result


# -- training --------------------------------------------------------------------------------------


def our_steps() -> float:
    """Of the epochs after the first."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        random = np.random.default_rng(0)
        x = random.integers(0, 256, (ROWS, WIDTH), dtype=np.uint8)
        y = random.integers(0, CLASSES, ROWS)
        np.savez(folder / "data.npz", x=x, y=y)
        federation = parse_federation(
            {
                "name": "two",
                "data": {
                    "path": str(folder / "data.npz"),
                    "parties": 2,
                    "split": "columns",
                    "validation": 0.0,
                    "test": 0.0,
                },
                "method": {"algorithm": "splitnn", "epochs": EPOCHS, "batch": BATCH},
                "parties": [
                    {"name": "host", "role": "clients"},
                    {"name": "guest", "roles": ["clients", "server"]},
                ],
            },
            "bench",
        )
        _, result = up(federation, folder / "federation.toml", folder / "out", main)
        points = read_history(folder / "out" / "guest", result.run)
    first, last = points[0], points[-1]
    seconds = last["virtual_seconds"] - first["virtual_seconds"]
    return (last["round"] - first["round"]) / seconds


def plain_steps() -> float:
    with TemporaryDirectory() as folder:
        address = f"{folder}/socket"
        host = get_context("spawn").Process(target=plain_host, args=(address,), daemon=True)
        with Listener(address, authkey=SECRET) as listener:
            host.start()
            with listener.accept() as line:
                return plain_guest(line)


def plain_host(address: str) -> None:
    torch.set_num_threads(1)
    width = WIDTH // 2
    encoder = mlp([width, *default_encoder(width)], last=nn.ReLU)
    learner = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    x = torch.randn(ROWS, width)
    with Client(address, authkey=SECRET) as line:
        while (rows := line.recv()) is not None:
            h = encoder(x[rows])
            line.send(h.detach().numpy())
            learner.zero_grad()
            h.backward(torch.from_numpy(line.recv()))
            learner.step()


def plain_guest(line: Any) -> float:
    torch.set_num_threads(1)
    width = WIDTH // 2
    encoder = mlp([width, *default_encoder(width)], last=nn.ReLU)
    joined = 2 * default_encoder(width)[-1]
    head = mlp([joined, *default_head(joined), CLASSES])
    learner = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=1e-3)
    x, y = torch.randn(ROWS, width), torch.randint(CLASSES, (ROWS,))
    begun = 0.0
    for epoch in range(EPOCHS):
        if epoch == 1:
            begun = time.perf_counter()
        for rows in torch.randperm(ROWS).split(BATCH):
            line.send(rows.numpy())
            mine = encoder(x[rows])
            theirs = torch.from_numpy(line.recv()).requires_grad_()
            learner.zero_grad()
            F.cross_entropy(head(torch.cat([mine, theirs], 1)), y[rows]).backward()
            assert theirs.grad is not None
            line.send(theirs.grad.numpy())
            learner.step()
    steps = (EPOCHS - 1) * -(-ROWS // BATCH)
    seconds = time.perf_counter() - begun
    line.send(None)
    return steps / seconds


# -- one exchange ----------------------------------------------------------------------------------


def our_trips() -> list[float]:
    """Milliseconds, through the whole transport."""
    with TemporaryDirectory() as name, _echo(Path(name)) as place:
        clock, answered, times = WallClock(), Signal(), list[float]()
        there = Signal()
        transport = ZenohTransport(place, clock)
        transport.listen(lambda *_: answered.notify(), lambda *_: there.notify())

        async def measure() -> None:
            await clock.wait(there)
            for _ in range(TRIPS):
                begun = time.perf_counter()
                transport.publish("echo", bytes(SIZE))
                await clock.wait(answered)
                times.append(1e3 * (time.perf_counter() - begun))

        try:
            clock.run(("measure", measure()))
        finally:
            transport.close()
        return times


@contextmanager
def _echo(keys: Path) -> Iterator[Place]:
    make_authority(keys, "bench")
    for party in ("ask", "echo"):
        make_certificate(keys, party)
    mine, theirs = free_addresses(2)
    members = ("ask", "echo")
    ask = Place("ask", mine, {"echo": theirs}, members, ("echo",), Identity.of(keys, "ask"))
    echo = Place("echo", theirs, {}, members, ("ask",), Identity.of(keys, "echo"))
    process = get_context("spawn").Process(target=answer, args=(echo,), daemon=True)
    process.start()
    try:
        yield ask
    finally:
        process.kill()
        process.join()


def answer(place: Place) -> None:
    clock = WallClock()
    transport = ZenohTransport(place, clock)
    transport.listen(lambda sender, data: transport.publish(sender, data), lambda *_: None)

    async def wait() -> None:
        await clock.wait(Signal())

    clock.run(("answer", wait()))


def plain_trips() -> list[float]:
    with TemporaryDirectory() as folder:
        address = f"{folder}/socket"
        process = get_context("spawn").Process(target=plain_echo, args=(address,), daemon=True)
        with Listener(address, authkey=SECRET) as listener:
            process.start()
            with listener.accept() as line:
                return [_trip(line) for _ in range(TRIPS)]


def _trip(line: Any) -> float:
    begun = time.perf_counter()
    line.send_bytes(bytes(SIZE))
    line.recv_bytes()
    return 1e3 * (time.perf_counter() - begun)


def plain_echo(address: str) -> None:
    with Client(address, authkey=SECRET) as line, suppress(EOFError):
        while data := line.recv_bytes():
            line.send_bytes(data)
