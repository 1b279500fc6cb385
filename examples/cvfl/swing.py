"""The validation loss after every round, by the classes of each active party: why a model is worse
twenty rounds later, where slow parties have classes of their own.

python examples/cvfl/swing.py examples/cvfl/q.toml [--method "q = auto"] [--seed 3] [--from 900]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from colonnade.algorithms.cvfl import CVFL
from colonnade.common.processes import one_thread
from colonnade.data import VerticalData, load
from colonnade.experiments.config import read_experiment
from colonnade.experiments.run import drive
from colonnade.learning.label_split import neighbouring
from colonnade.learning.task import Task
from colonnade.network import Inbox, StackedNetwork


class Watched(CVFL):
    """Measures the model as it learns, and its mean if there is one, after rounds from `first`."""

    first, last = 0, 0
    rounds = 0

    def step_bottoms(self, h: Tensor, gradient: Tensor | Inbox, where: Tensor) -> None:
        super().step_bottoms(h, gradient, where)
        self.rounds += 1
        if self.first <= self.rounds <= self.last:
            nets = [(self.bottoms.learning, self.tops.learning)]
            if self.set.average:
                nets.append((self.bottoms.asked, self.tops.asked))
            figures = [figure for pair in nets for figure in self.losses(*pair)]
            print(f"{self.rounds:6d}", *(f"{figure:7.3f}" for figure in figures), flush=True)

    @torch.no_grad()
    def losses(self, bottoms: Any, tops: Any) -> list[float]:
        """Of all rows, and of those of each active party's classes."""
        part = self.data.validation
        joined = torch.cat(list(bottoms.predict(part.x)), 1)
        rows = torch.nn.functional.cross_entropy(
            tops.predict(joined[None])[0], part.y, reduction="none"
        )
        owned = neighbouring(self.task.classes, len(self.active))
        return [float(rows.mean())] + [
            float(rows[torch.isin(part.y, torch.tensor(classes))].mean()) for classes in owned
        ]


def watch(settings: Any, data: VerticalData, seed: int, first: int, rounds: int) -> None:
    algorithm = Watched(settings, Task.of(data, seed=seed))
    algorithm.first, algorithm.last = first, first + rounds
    net = StackedNetwork(algorithm.world())
    algorithm.join(net, data)
    print(" round     all", *(f" party {k}" for k in range(len(algorithm.active))))
    with one_thread():
        drive(algorithm.train(net))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--method", default="q = auto, average")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--from", type=int, default=900, dest="first")
    parser.add_argument("--rounds", type=int, default=70)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args(arguments)
    experiment = read_experiment(given.file, given.set)
    settings = next(method for method in experiment.methods if method.name == given.method)
    watch(settings, load(experiment.data, given.seed), given.seed, given.first, given.rounds)


if __name__ == "__main__":
    main()
