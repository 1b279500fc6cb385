"""A trained model of an output folder, to ask it about rows: with some of its parties only, or with
noise in the place of a party's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from colonnade.common.explanations import Verdict
from colonnade.common.seeds import torch_stream
from colonnade.data import VerticalData
from colonnade.errors import InputError, Unanswerable
from colonnade.experiments.config import Experiment
from colonnade.experiments.run import RunSpec, build, drive
from colonnade.learning.algorithm import Algorithm
from colonnade.learning.readout import LEAST, tells
from colonnade.learning.task import Part
from colonnade.models.stack import Stack
from colonnade.network import StackedNetwork

DRAWS = 3  # of the noise, for each party
TO_FIT = 4000  # training rows that embeddings are read by, at most


class TrainedModel:
    """A trained model with all its parties in this process, to ask it about some rows."""

    def __init__(self, algorithm: Algorithm, net: StackedNetwork, part: Part) -> None:
        self.algorithm, self.net = algorithm, net
        self.asked = 0  # evaluations on all rows
        self.watch: Callable[[int], None] = lambda asked: None
        self._memory: Memory | None = None
        self.look_at(part)

    @property
    def parties(self) -> tuple[str, ...]:
        return self.algorithm.task.clients

    @property
    def part(self) -> Part:
        return self.algorithm.data.test

    def look_at(self, part: Part) -> None:
        """Ask about these rows from now on. They are a part of their own: an algorithm may know
        others from the training."""
        self.algorithm.data = replace(self.algorithm.data, test=replace(part))

    def score(self, heard: frozenset[str]) -> float:
        """Of the model that hears of these parties' columns only; higher is better. Where too few
        of them are heard for an answer, the prior of the training labels answers."""
        algorithm, apart = self.algorithm, self.net.within("inference")
        apart.without = frozenset(self.parties) - heard
        if self._memory is not None:
            self._memory.next = 0
        try:
            value = drive(algorithm.score(apart))
        except Unanswerable:
            value = algorithm.blind_score()
        self.asked += 1
        self.watch(self.asked)
        return algorithm.task.goal.deciding.score(value)

    @contextmanager
    def embedded_once(self) -> Iterator[None]:
        """Coalitions differ in who is heard, not in what is said: within the block, encoders
        compute each batch once."""
        known = self.algorithm.stacks.get("encoder")
        if known is None:
            yield
            return
        self._memory = Memory(known[1])
        vars(known[1])["predict"] = self._memory
        try:
            yield
        finally:
            del vars(known[1])["predict"]
            self._memory = None

    def noised(self, party: str, sigma: float) -> tuple[float, ...]:
        """Scores when Gaussian noise takes the place of a party's columns: each with the mean of
        the column, and `sigma` times its standard deviation."""
        part, i = self.part, self.parties.index(party)
        own = part.x[i, :, : self.algorithm.task.widths[i]]
        mean, spread = own.mean(0), own.std(0, correction=0)
        scores = []
        for draw in range(DRAWS):
            stream = torch_stream(self.algorithm.task.seed, party, "noised", draw)
            x = part.x.clone()
            normal = torch.randn(own.shape, generator=stream)
            x[i, :, : own.shape[1]] = mean + sigma * spread * normal
            self.look_at(replace(part, x=x))
            scores.append(self.score(frozenset(self.parties)))
        self.look_at(part)
        return tuple(scores)

    def error(self) -> float:
        """The standard error of the score with all parties, from the choice of rows."""
        outputs = drive(self.algorithm.predict(self.net.within("inference"), self.part))
        return self.algorithm.task.goal.deciding.error(
            self.algorithm.unscaled(outputs), self.part.y
        )

    def tells(self) -> dict[str, tuple[float | None, Verdict]] | None:
        """Whether each party's embeddings have anything to do with the labels; None where nobody
        sees them."""
        train = self.algorithm.data.train
        few = train.only(torch.arange(min(TO_FIT, train.rows)))
        known, new = self.algorithm.embed(few), self.algorithm.embed(self.part)
        if known is None or new is None:
            return None
        found = {}
        for i, party in enumerate(self.parties):
            pair = (known[i], few.y), (new[i], self.part.y)
            told = tells(*pair, self.algorithm.task.classes)
            noise = told is not None and told < LEAST
            verdict = "the same for every row" if told is None else "looks like noise" * noise
            found[party] = told, verdict
        return found


class Memory:
    """What a stack gave for each batch, to be given again in the same order."""

    def __init__(self, stack: Stack) -> None:
        self.compute, self.known, self.next = stack.predict, list[Tensor](), 0

    def __call__(self, x: Tensor) -> Tensor:
        if self.next == len(self.known):
            self.known.append(self.compute(x))
        self.next += 1
        return self.known[self.next - 1]


def trained_model(
    folder: Path, experiment: Experiment, spec: RunSpec, data: VerticalData
) -> TrainedModel:
    """The model of a run, as it was saved. Nothing fails and nothing takes time while it is
    asked."""
    models = folder / "models" / spec.run
    algorithm, net = build(spec.settings, data, spec.seed, topology=experiment.network.graph)
    try:
        algorithm.load(models, net)
    except (OSError, KeyError, RuntimeError) as error:
        raise InputError(
            f"{models}: the models of this run cannot be read ({error}); run it anew with --fresh"
        ) from error
    return TrainedModel(algorithm, net, algorithm.data.test)
