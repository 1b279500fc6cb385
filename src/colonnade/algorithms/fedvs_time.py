"""How long a round of FedVS takes, and the number of partitions (K) that makes it shortest.

More partitions mean smaller products and more answers that the server has to wait for. The paper
tunes K by hand (section 6.3); `partitions = "auto"` plays rounds with the configured delays for
each possible K, message by message as the engines count them, and takes the fastest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from colonnade.algorithms.fedvs_settings import FedVSSettings
from colonnade.coding import LagrangeCode
from colonnade.coding.lagrange import most_partitions
from colonnade.learning import Task
from colonnade.learning.segments import Segments
from colonnade.network import Delays, Group, Topology
from colonnade.network.clock import SECOND
from colonnade.network.topology import links_between

ROUNDS = 400  # the mean of so many is known to about 3 %
NUMBER = 4  # bytes


@dataclass(frozen=True)
class Steps:
    """One round in numbers. Work is counted in plain steps, one client's model on its columns of a
    batch, by multiplications."""

    code: LagrangeCode
    rows: int  # of the training
    batch: int
    width: int  # of the embeddings
    features: tuple[int, ...]  # by client

    @property
    def coded(self) -> int:
        """Coded rows in a step."""
        return max(1, self.batch // self.code.partitions)

    @property
    def rounds(self) -> int:
        """In an epoch."""
        return -(-Segments(self.rows, self.code.partitions).length // self.coded)

    @property
    def answer(self) -> float:
        """A client multiplies the shares of N clients, each 1/K of the batch."""
        return self.code.clients / self.code.partitions

    @property
    def models(self) -> float:
        """N shares of a model, from it and T masks."""
        return self.code.clients * (1 + self.code.colluders) / self.batch

    def columns(self, rows: int) -> float:
        """N shares of so many coded rows, from K segments and T masks."""
        return self.code.clients * self.code.points * rows / (self.batch * self.width)

    def seconds(self, delays: Delays, clients: Group, server: Group) -> float:
        """Of an epoch, expected: those of a round, averaged over many that follow each other."""
        sampler, everybody = delays.sampler(0), clients.parties
        among, up, down = (
            links_between(a, b, everybody, Topology())
            for a, b in ((clients, clients), (clients, server), (server, clients))
        )
        model = NUMBER * (self.width + 1) * np.array(self.features)[among.senders]
        answer, gradient = (NUMBER * rows * self.width for rows in (self.coded + 1, self.batch))
        time, serving = np.zeros(len(clients), dtype=np.int64), 0
        for _ in range(ROUNDS):
            time += sampler.compute(clients, self.models)
            time = (time[among.senders] + sampler.transfer(among, model, "model-share")).max(1)
            time += sampler.compute(clients, self.answer)
            answers = time + sampler.transfer(up, answer, "coded-embedding")[0]
            enough = int(np.partition(answers, self.code.threshold - 1)[self.code.threshold - 1])
            serving = max(serving, enough) + int(sampler.compute(server)[0])
            time = np.maximum(time, serving + sampler.transfer(down, gradient, "gradient")[:, 0])
        return self.rounds * int(time.max()) / ROUNDS / SECOND


def steps_of(settings: FedVSSettings, task: Task, partitions: int) -> Steps:
    """With so many partitions."""
    features = tuple(settings.degree * (width + 1) for width in task.widths)
    code = settings.code(task, partitions)
    return Steps(code, task.rows["train"], settings.batch, settings.width, features)


def fastest(settings: FedVSSettings, task: Task, clients: Group, server: Group) -> Steps:
    """Of all K that the clients and their rows allow, the one with the shortest expected epoch
    under the configured delays, of which everybody knows; 1 where there are none."""
    most = most_partitions(len(clients), settings.colluders) if task.delays.any else 1
    possible = [steps_of(settings, task, k) for k in range(1, min(most, task.rows["train"]) + 1)]
    # The first of equal ones.
    return min(possible, key=lambda steps: steps.seconds(task.delays, clients, server))
