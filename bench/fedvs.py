"""FedVS on images of FashionMNIST's size: 28 clients with a row of 28 pixels each, one layer,
batches of 256 rows.

The plain loop is the same network in the clear, as a researcher writes it: a linear layer and a
slice of the image per client, the mean of what they give, autograd through all of it. In FedVS all
28 clients share models, multiply shares and send them, in one process and one thread. Times are
those of a step; an epoch is 235 of them (on noise: the pixels make no difference). Sharing the
columns, once before the training, is left out.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from bench.mags import CLASSES, noise
from bench.pausing import PausingNetwork, Training, pauses
from bench.timing import (
    Figure,
    Measure,
    Spread,
    Target,
    Variant,
    compare,
    milliseconds,
    take_turns,
)
from colonnade.algorithms.fedvs import FedVS
from colonnade.algorithms.fedvs_settings import FedVSSettings
from colonnade.data import VerticalData
from colonnade.learning.task import Task
from colonnade.models import mlp

CLIENTS, PIXELS, WIDTH, BATCH = 28, 28, 64, 256
HEAD = [64, 64]
ROWS, REPEATS = 6_400, 15
PARTITIONS = (2, 4, 6)
CHOSEN = 4  # K: 9 of 28 answers are enough
FACTOR = Target(15.0, at_least=False)  # plain steps that one may cost
SHARE = Target(0.1, at_least=False)
PARTS = {  # of a step → whether its share is limited
    "encode": True,
    "multiply": False,
    "decode": True,
}


class PlainLoop:
    def __init__(self, data: VerticalData) -> None:
        self.x, self.y, self.rows = data.train.x, data.train.y, len(data.train)
        self.clients = [nn.Linear(PIXELS, WIDTH) for _ in range(CLIENTS)]
        self.head = mlp([WIDTH, *HEAD, CLASSES])
        models = nn.ModuleList([*self.clients, self.head])
        self.sgd = torch.optim.SGD(models.parameters(), lr=5e-2, momentum=0.9)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            rows = torch.randint(self.rows, (BATCH,))
            h = [client(x[rows]) for client, x in zip(self.clients, self.x, strict=True)]
            loss = F.cross_entropy(self.head(torch.stack(h).mean(0)), self.y[rows])
            self.sgd.zero_grad()
            loss.backward()
            self.sgd.step()


class Ours:
    """A training that goes on by a few rounds at a time, and where its time went."""

    def __init__(self, data: VerticalData, partitions: int) -> None:
        method = FedVSSettings(
            name="fedvs",
            algorithm="fedvs",
            partitions=partitions,
            degree=1,
            encoder=[WIDTH],
            head=HEAD,
            epochs=1000,
        )
        self.algorithm = FedVS(method, Task.of(data, seed=0))
        self.net = PausingNetwork(self.algorithm.world())
        self.algorithm.join(self.net, data)
        self.spent: dict[str, float] = defaultdict(float)
        field: Any = self.algorithm.field
        self.algorithm.shared_models = self._timed("encode", self.algorithm.shared_models)
        field.answers = self._timed("multiply", field.answers)
        self.algorithm.opened = self._timed("decode", self.algorithm.opened)
        self.training = Training(pauses(self.algorithm, self.net))
        self.training.begin()  # the columns are shared in loops of their own
        while len(self.net.schedules[-1]) < 1000:
            next(self.training.pauses)
        self.training.loop = len(self.net.schedules) - 1

    def run(self, steps: int) -> None:
        began = time.process_time()
        self.training.advance(steps)
        self.spent["step"] += time.process_time() - began

    def _timed(self, part: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **named: Any) -> Any:
            began = time.process_time()
            try:
                return work(*args, **named)
            finally:
                self.spent[part] += time.process_time() - began

        return timed


def run() -> list[Figure]:
    data = noise(CLIENTS, (1, 1, PIXELS), ROWS, validation=0)
    plain, ours = PlainLoop(data), {f"K = {k}": Ours(data, k) for k in PARTITIONS}
    for one in ours.values():
        one.spent.clear()
    variants = {"plain loop": Variant(plain.run, 10)}
    variants |= {name: Variant(one.run, 5) for name, one in ours.items()}
    turns = take_turns(variants, REPEATS)
    figures = [Figure("fedvs", "plain loop", milliseconds(turns, "plain loop"))]
    for name, one in ours.items():
        factor = compare(turns, name, "plain loop", lambda own, base: own / base)
        target = FACTOR if name == f"K = {CHOSEN}" else None
        took = milliseconds(turns, name)
        figures.append(Figure("fedvs", name, took, "plain steps", factor, target))
        figures += [_share(name, part, one, took) for part in PARTS]
    return figures


def _share(name: str, part: str, one: Ours, took: float) -> Figure:
    """By processor time: other work on the machine strikes parts unequally."""
    share = one.spent[part] / max(one.spent["step"], 1e-9)
    spread = Measure(Spread.of([share]), Spread.of([share]))
    target = SHARE if PARTS[part] and name == f"K = {CHOSEN}" else None
    return Figure("fedvs", f"{name}, {part}", share * took, "share", spread, target, percent=True)
