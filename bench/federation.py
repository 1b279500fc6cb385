"""Devices that encode, exchange and predict: a step of MAGS with no algorithm around it.

Every device encodes its columns, sends the embedding to its neighbours, and predicts from what
arrives. The gradient of each embedding that arrived goes back; the encoder learns from the sum.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np
import torch
from torch import Tensor, nn

from colonnade.common.seeds import numpy_stream, torch_stream
from colonnade.experiments.run import drive
from colonnade.models import Optimizer, Stack, cross_entropy, mlp
from colonnade.network import Channel, Fault, Group, Inbox, StackedNetwork, World
from colonnade.network.samplers import CLEAR, Calm, Passage, Sampler
from colonnade.network.topology import Links

WIDTH, EMBEDDING, CLASSES = 49, 4, 10
BATCH = 64
DROPPED = 0.3  # share of the links between different devices, drawn anew for each batch


def dropping_stream() -> np.random.Generator:
    """Every variant draws its faults from a stream of its own, and all streams are equal."""
    return numpy_stream(0, "dropped links")


class DroppedLinks(Fault, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Embeddings get lost; the gradient of what arrived comes back, as in a loop with autograd."""

    def sampler(self, seed: int, groups: Sequence[Group], settled: bool = False) -> Sampler:
        return _Dropping(dropping_stream())


@dataclass(frozen=True)
class _Dropping(Calm):
    stream: np.random.Generator

    def exchange(self, links: Links, round: int, again: bool = False) -> Passage:
        if links.src.role != "client":
            return CLEAR
        arrives = (self.stream.random(links.shape) >= DROPPED) | links.own
        return Passage(arrives, arrives)


@dataclass(frozen=True)
class Problem:
    """What all variants start from: untrained models, data and batches."""

    encoders: list[nn.Sequential]
    heads: list[nn.Sequential]
    x: Tensor  # [devices, rows, columns]
    y: Tensor  # [rows]
    rows: list[Tensor]  # of each batch

    @classmethod
    def of(cls, devices: int, neighbours: int, rows: int) -> Problem:
        """`neighbours`: how many embeddings a device predicts from, its own included."""
        stream = torch_stream(0, "data")
        torch.manual_seed(0)  # modules initialise themselves from the global state
        return cls(
            [mlp([WIDTH, 16, EMBEDDING], hidden=nn.ReLU, last=nn.ReLU) for _ in range(devices)],
            [mlp([neighbours * EMBEDDING, 64, CLASSES], hidden=nn.ReLU) for _ in range(devices)],
            torch.rand(devices, rows, WIDTH, generator=stream),
            torch.randint(CLASSES, (rows,), generator=stream),
            [torch.randint(rows, (BATCH,), generator=stream) for _ in range(100)],
        )

    def batches(self) -> Iterator[Tensor]:
        return cycle(self.rows)


class Federation:
    """The workload as a choreography on the stacked engine."""

    def __init__(self, problem: Problem) -> None:
        names = tuple(f"device {i}" for i in range(len(problem.encoders)))
        self.devices = Group("devices", names, "client")
        self.aggregators = Group("aggregators", names, "aggregator")
        self.upwards = Channel(self.devices, self.aggregators, "embedding", EMBEDDING)
        self.back = Channel(self.aggregators, self.devices, "gradient", EMBEDDING, each=True)
        self.net = StackedNetwork(
            World(
                (self.devices, self.aggregators),
                columns=self.devices,
                fault=DroppedLinks(name="dropped links"),
            )
        )
        # A stack takes over the tensors it is given, and variants must not train each other's.
        self.encoders = Stack(copy.deepcopy(problem.encoders), Optimizer())
        self.heads = Stack(copy.deepcopy(problem.heads), Optimizer())
        self.problem = problem
        self.batches = problem.batches()

    def run(self, steps: int) -> None:
        drive(self.train(list(islice(self.batches, steps))))

    async def train(self, batches: list[Tensor]) -> None:
        async for rows in self.net.rounds(batches):
            x, y = self.fetch(rows)
            h = self.encoders(x)  # [devices, rows, embedding]
            inbox = await self.send_embeddings(h)
            _, gradient = self.heads.learn(inbox.concat(), y, cross_entropy)
            back = await self.send_gradients(inbox, gradient)
            self.encoders.backward(h, back.total())

    async def send_embeddings(self, h: Tensor) -> Inbox:
        return await self.net.send(h, self.upwards, BATCH)

    async def send_gradients(self, inbox: Inbox, gradient: Tensor) -> Inbox:
        shares = inbox.split(gradient)  # [aggregators, neighbours, rows, embedding]
        return await self.net.send(shares, self.back, BATCH, where=inbox.arrived)

    def fetch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.problem.x.index_select(1, rows), self.problem.y.index_select(0, rows)
