"""A trained model of an estimator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.algorithms import registry
from colonnade.common.devices import computing_on
from colonnade.data import Rows, VerticalData
from colonnade.errors import ColonnadeError
from colonnade.experiments.run import drive
from colonnade.learning.algorithm import Algorithm
from colonnade.learning.settings import Settings
from colonnade.learning.task import Task
from colonnade.network import Fault, StackedNetwork


@dataclass(frozen=True)
class Trained:
    """What prediction needs and nothing more: no row of the training data is in here."""

    settings: Settings
    fault: Fault
    task: Task
    layout: VerticalData  # without rows: which party holds which columns, and their scales
    weights: dict[str, list[dict[str, Tensor]]]  # by stack, then by member

    @classmethod
    def of(cls, algorithm: Algorithm, data: VerticalData, fault: Fault) -> Trained:
        weights = {
            name: [{k: v.cpu() for k, v in member.items()} for member in stack.snapshot()]
            for name, (_, stack) in algorithm.stacks.items()
        }
        values = (v for members in weights.values() for state in members for v in state.values())
        if not all(bool(value.isfinite().all()) for value in values):
            raise ColonnadeError("the weights are not finite numbers any more; try a smaller lr")
        none = Rows(tuple(torch.zeros(0, width) for width in data.widths), data.train.y[:0].clone())
        layout = replace(data, train=none, validation=none, test=none, extra=())
        return cls(algorithm.set, fault, algorithm.task, layout, weights)

    def answers(self, x: NDArray[Any]) -> Tensor:
        """Logits, or numbers in the unit of the label. [rows, outputs]"""
        with computing_on(self.settings.device):
            return self._answers(x).cpu()

    def _answers(self, x: NDArray[Any]) -> Tensor:
        algorithm = registry()[self.settings.algorithm](self.settings, self.task)
        net = StackedNetwork(algorithm.world(fault=self.fault))
        unknown = torch.zeros(len(x), dtype=torch.int64)  # labels: prediction does not read them
        new = Rows(self.layout.apply_split(x), unknown)
        algorithm.join(net, replace(self.layout, test=new))
        for name, (_, stack) in algorithm.stacks.items():
            stack.restore(self.weights[name])
        outputs = drive(algorithm.predict(net.within("inference"), algorithm.data.test))
        return algorithm.unscaled(outputs)
