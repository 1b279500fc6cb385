"""DVFL on MNIST as a researcher would write it: a module and an optimiser per party, Python loops
over parties, a list as replay; no faults, no messages."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from colonnade.data.partition import Rows, VerticalData
from colonnade.models import mlp
from colonnade.network.network import Schedule

AGGREGATORS = 4


class Autoencoder(nn.Module):
    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder


def client() -> Autoencoder:
    return Autoencoder(mlp([196, 100, 80], last=nn.ReLU), mlp([80, 100, 196], last=nn.Sigmoid))


def aggregator() -> Autoencoder:
    return Autoencoder(mlp([320, 200, 160], last=nn.LeakyReLU), mlp([160, 200, 320], last=nn.ReLU))


def adam(model: nn.Module, fused: bool) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-5, fused=fused)


class PlainLoop:
    def __init__(self, data: VerticalData, schedules: list[Schedule[Any]], fused: bool) -> None:
        """`schedules` of the three loops over rounds, each read when its loop begins. `fused`: with
        torch's fused Adam, which is not its default."""
        self.clients = [client() for _ in data.clients]
        self.aggregators = [aggregator() for _ in range(AGGREGATORS)]
        self.head = mlp([AGGREGATORS * 160, 160, 40, data.classes])
        self.client_optimizers = [adam(model, fused) for model in self.clients]
        self.aggregator_optimizers = [adam(model, fused) for model in self.aggregators]
        self.head_optimizer = torch.optim.SGD(self.head.parameters(), lr=8e-2)
        self.data, self.schedules = data, schedules
        self.replay: list[list[Tensor]] = [[] for _ in self.aggregators]

    def train(self) -> Iterator[int]:
        """Gives the number of the loop over rounds before each round and after the last."""
        for number, loop in enumerate((self.encode, self.compress, self.supervise)):
            for _ in loop(self.schedules[number]):
                yield number

    def encode(self, batches: Schedule[Any]) -> Iterator[None]:
        for t in range(len(batches)):
            yield
            rows = batches[t].rows
            encodings = []
            for model, optimizer, columns in zip(
                self.clients, self.client_optimizers, self.data.train.x, strict=True
            ):
                x = columns[rows]
                h = model.encoder(x)
                learn(optimizer, F.mse_loss(model.decoder(h), x))
                encodings.append(h.detach())
            b = torch.cat(encodings, 1)
            for replay in self.replay:
                replay.append(b)
            self.learn_to_compress([b] * len(self.aggregators))
        yield

    def compress(self, rounds: Schedule[Any]) -> Iterator[None]:
        for t in range(len(rounds)):
            yield
            self.learn_to_compress([replay[t % len(replay)] for replay in self.replay])
        yield

    def learn_to_compress(self, inputs: list[Tensor]) -> None:
        for model, optimizer, b in zip(
            self.aggregators, self.aggregator_optimizers, inputs, strict=True
        ):
            learn(optimizer, F.mse_loss(model.decoder(model.encoder(b)), b))

    def supervise(self, batches: Schedule[Any]) -> Iterator[None]:
        train, validation = self.collect(self.data.train), self.collect(self.data.validation)
        best, state = (-1.0, 0.0), self.head.state_dict()
        for t in range(len(batches)):
            yield
            batch = batches[t]
            logits, y = self.head(train[batch.rows]), self.data.train.y[batch.rows]
            learn(self.head_optimizer, F.cross_entropy(logits, y))
            if batch.last:
                score = self.score(validation, self.data.validation.y)
                if score > best:
                    best, state = score, copy.deepcopy(self.head.state_dict())
        yield
        self.head.load_state_dict(state)

    @torch.no_grad()
    def collect(self, part: Rows) -> Tensor:
        pairs = zip(self.clients, part.x, strict=True)
        b = torch.cat([model.encoder(columns) for model, columns in pairs], 1)
        return torch.cat([model.encoder(b) for model in self.aggregators], 1)

    @torch.no_grad()
    def score(self, collected: Tensor, y: Tensor) -> tuple[float, float]:
        """Accuracy, and minus the loss to tell equals apart."""
        logits = self.head(collected)
        return float((logits.argmax(1) == y).double().mean()), -float(F.cross_entropy(logits, y))

    def test_accuracy(self) -> float:
        return self.score(self.collect(self.data.test), self.data.test.y)[0]

    def parameters(self) -> list[Tensor]:
        """Party by party, in the order of `Module.parameters()`."""
        return [p for m in (*self.clients, *self.aggregators, self.head) for p in m.parameters()]


def learn(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
