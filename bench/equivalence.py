"""Split learning under crashing clients, all parties in one process and each on its own.

Both engines train 200 rounds with equal seeds and so equal faults, for every policy about missing
embeddings and with both optimisers. `differs by` is the largest difference of any weight (at most
1e-6 is the aim); the ratio is what real messages cost in one process.
"""

from __future__ import annotations

from time import perf_counter, process_time

from bench.timing import Figure, Measure, Spread
from colonnade.algorithms.splitnn import SplitNNSettings
from colonnade.data import DataSpec, load
from colonnade.network.faults import Client
from colonnade.testing import difference, projected, stacked

POLICIES = ("wait", "skip", "zeros", "buffer", "stale")
FAULT = Client(name="clients .3/.5", down=0.3, up=0.5)
ROUNDS = 200


def run() -> list[Figure]:
    return [_figure(policy, optimizer) for policy in POLICIES for optimizer in ("sgd", "adam")]


def _figure(policy: str, optimizer: str) -> Figure:
    data = load(
        DataSpec(dataset="digits", rows=710), seed=0
    )  # 639 training rows: 10 rounds an epoch
    settings = SplitNNSettings(
        name=policy,
        algorithm="splitnn",
        missing=policy,  # pyright: ignore[reportArgumentType]
        optimizer=optimizer,  # pyright: ignore[reportArgumentType]
        lr=1e-2 if optimizer == "sgd" else 1e-3,
        epochs=ROUNDS // 10,
        patience=ROUNDS,
    )
    started = perf_counter(), process_time()
    one = stacked(settings, data, fault=FAULT)
    between = perf_counter(), process_time()
    each = projected(settings, data, fault=FAULT)
    ended = perf_counter(), process_time()
    assert one.net.round + 1 == ROUNDS
    wall, cpu = ((c - b) / (b - a) for a, b, c in zip(started, between, ended, strict=True))
    cost = Measure(Spread(wall, wall, wall), Spread(cpu, cpu, cpu))
    milliseconds = 1e3 * (between[0] - started[0]) / ROUNDS
    name = f"{policy}, {optimizer}"
    return Figure("equivalence", name, milliseconds, "", cost, None, False, difference(one, each))
