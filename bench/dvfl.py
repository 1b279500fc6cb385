"""One DVFL training at the paper's widths for MNIST, against the loop a researcher would write.

Four clients 196 → 100 → 80, four aggregators 320 → 200 → 160, all with mirrored decoders and Adam;
an owner 640 → 160 → 40 → 10 with SGD; batches of 64. 1,280 training rows of MNIST (where it is not
in the data folder, of scikit-learn's digits, enlarged) for 10, 20 and 30 epochs: the paper's 20, 40
and 60 in proportion. All trainings start from the same weights, see the same batches, and go
through their rounds in turns. `fused Adam` is the plain loop with torch's fused Adam, which is not
its default; `products alone` are the matrix products of a round: the limit.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.dvfl_loop import PlainLoop
from bench.pausing import PausingNetwork, Training, pauses
from bench.products import Products
from bench.timing import (
    Figure,
    Measure,
    Spread,
    Turn,
    Turns,
    Variant,
    largest_difference,
    milliseconds,
    take_turns,
    times_as_fast,
)
from colonnade.algorithms.dvfl import DVFL, DVFLSettings
from colonnade.data import DataSpec, VerticalData, load
from colonnade.data.datasets import load_raw, present
from colonnade.data.partition import Rows
from colonnade.experiments.run import drive
from colonnade.learning.task import Task

BATCH, ROWS, VALIDATION = 64, 1280, 142
EPOCHS, EXACT_EPOCHS = (10, 20, 30), (1, 2, 3)  # clients, aggregators, owner
PAPER_ROWS, PAPER_EPOCHS = 54_000, (20, 40, 60)  # after a tenth is set aside for validation
ROUNDS_PER_TURN = (10, 10, 20)  # the owner's: an epoch, so that each turn validates once
LOOPS = ("clients", "replay", "owner")  # with the clients' rounds, the aggregators' on what comes
CLIENT, AGGREGATOR = (4, [196, 100, 80, 100, 196]), (4, [320, 200, 160, 200, 320])
PRODUCTS = ((CLIENT, AGGREGATOR), (AGGREGATOR,), ((1, [640, 160, 40, 10]),))  # by loop
PLAIN, FUSED, LIMIT = "plain loop", "fused Adam", "products alone"
ORDER: list[str] = [PLAIN, FUSED, "eager", "compiled", LIMIT]


class Ours:
    def __init__(
        self,
        data: VerticalData,
        *,
        compile: bool = False,
        epochs: tuple[int, int, int] | None = None,
    ) -> None:
        clients, aggregators, owner = epochs or EPOCHS
        settings = DVFLSettings(
            name="DVFL",
            algorithm="dvfl",
            client_epochs=clients,
            aggregator_epochs=aggregators,
            epochs=owner,
            patience=owner + 1,
            centre=False,  # as published, and as the plain loop
            compile=compile,
        )
        self.algorithm = DVFL(settings, Task.of(data, seed=0))
        self.net = PausingNetwork(self.algorithm.world())
        self.algorithm.join(self.net, data)
        self.training = Training(pauses(self.algorithm, self.net))

    def parameters(self) -> list[Tensor]:
        """Party by party, in the order of `Module.parameters()`."""
        parties = self.algorithm.tensors(self.net).values()
        return [
            value
            for tensors in parties
            for name, value in tensors.items()
            if not name.startswith("centre.")  # which is the identity here
        ]

    def test_accuracy(self) -> float:
        return drive(self.algorithm.evaluate(self.net))["test_accuracy"]


class Plain:
    def __init__(self, data: VerticalData, start: Ours, *, fused: bool = False) -> None:
        self.loop = PlainLoop(data, start.net.schedules, fused)
        with torch.no_grad():
            for mine, value in zip(self.parameters(), start.parameters(), strict=True):
                mine.copy_(value)
        self.training = Training(self.loop.train())

    def parameters(self) -> list[Tensor]:
        return self.loop.parameters()

    def test_accuracy(self) -> float:
        return self.loop.test_accuracy()


@dataclass(frozen=True)
class Loop:
    """What a loop over rounds took, by trainer."""

    begin: Turns  # what precedes its first round: the owner collects the encodings
    first: Turns  # its first turn, in which torch compiles
    turns: Turns  # the others
    differences: Mapping[str, float]  # of parameters from the plain loop's, after the first turn

    def total(self, name: str, rounds: int, rows: int) -> Turn:
        """Seconds of so many rounds, compiling left out."""
        begin = self.begin[name][0] if name in self.begin else Turn(0, 0)
        turns, share = self.turns[name], rows / ROWS
        return Turn(
            begin.wall * share + rounds * median(turn.wall for turn in turns),
            begin.cpu * share + rounds * median(turn.cpu for turn in turns),
        )


def run() -> list[Figure]:
    data = mnist() if present("mnist") else enlarged_digits()
    eager = Ours(data)
    trainers = {
        "eager": eager,  # first, because the plain loop takes its batches
        PLAIN: Plain(data, eager),
        FUSED: Plain(data, eager, fused=True),
        "compiled": Ours(data, compile=True),
    }
    loops = [train(trainers, loop) for loop in range(len(LOOPS))]
    for trainer in trainers.values():
        trainer.training.finish()
    accuracy = {name: trainer.test_accuracy() for name, trainer in trainers.items()}
    here = {name: f"whole, {accuracy[name]:.1%} right" for name in ORDER if name != LIMIT}
    there = dict.fromkeys(ORDER, f"{PAPER_ROWS:,} rows, extrapolated")
    return [
        *(figure for i, loop in enumerate(loops) for figure in of_loop(i, loop)),
        *whole(loops, ROWS, EPOCHS, here, {"eager": exact_difference(data)}),
        *whole(loops, PAPER_ROWS, PAPER_EPOCHS, there),
        compiling(loops),
    ]


def train(trainers: Mapping[str, Ours | Plain], loop: int) -> Loop:
    """All rounds of one loop."""
    trainings = {name: trainer.training for name, trainer in trainers.items()}
    begin = take_turns({name: Variant(t.begin, 1) for name, t in trainings.items()}, repeats=1)
    variants = {name: Variant(t.advance, ROUNDS_PER_TURN[loop]) for name, t in trainings.items()}
    first = take_turns(variants, repeats=1)
    plain = trainers[PLAIN].parameters()
    differences = {
        name: largest_difference(trainer.parameters(), plain) for name, trainer in trainers.items()
    }
    variants[LIMIT] = Variant(Products(BATCH, *PRODUCTS[loop]).run, ROUNDS_PER_TURN[loop])
    turns = take_turns(variants, rounds(ROWS, EPOCHS)[loop] // ROUNDS_PER_TURN[loop] - 1)
    return Loop(begin, first, turns, differences)


def exact_difference(data: VerticalData) -> float:
    """Of parameters after a tenth of the epochs in double precision, where rounding cannot lead two
    trainings apart."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        exact = in_double(data)
        ours = Ours(exact, epochs=EXACT_EPOCHS)
        plain = Plain(exact, ours)
        for count in rounds(ROWS, EXACT_EPOCHS):
            for trainer in (ours, plain):
                trainer.training.begin()
                trainer.training.advance(count)
        for trainer in (ours, plain):
            trainer.training.finish()
        return largest_difference(ours.parameters(), plain.parameters())
    finally:
        torch.set_default_dtype(usual)


def in_double(data: VerticalData) -> VerticalData:
    def rows(part: Rows) -> Rows:
        return Rows(tuple(x.double() for x in part.x), part.y)

    parts = {name: rows(getattr(data, name)) for name in ("train", "validation", "test")}
    return replace(data, **parts)


def of_loop(loop: int, measured: Loop) -> list[Figure]:
    """Milliseconds per round. After the first loop, rounding has led single precision apart."""
    differences = {} if loop else measured.differences
    return [
        Figure(
            "dvfl",
            f"{LOOPS[loop]}: {name}",
            milliseconds(measured.turns, name),
            "times as fast",
            None if name == PLAIN else times_as_fast(measured.turns, name, PLAIN),
            difference=None if name == PLAIN else differences.get(name),
        )
        for name in ORDER
    ]


def whole(
    loops: list[Loop],
    rows: int,
    epochs: tuple[int, int, int],
    notes: Mapping[str, str],
    differences: Mapping[str, float] | None = None,
) -> list[Figure]:
    """Milliseconds of all rounds of a training, by processor time: beside other work, wall time
    would add up to more than a run takes on a core of its own."""
    counts = rounds(rows, epochs)
    totals = {
        name: [loop.total(name, n, rows) for loop, n in zip(loops, counts, strict=True)]
        for name in notes
    }
    wall = {name: sum(turn.wall for turn in turns) for name, turns in totals.items()}
    cpu = {name: sum(turn.cpu for turn in turns) for name, turns in totals.items()}
    return [
        Figure(
            "dvfl",
            f"{note}: {name}",
            1e3 * cpu[name],
            "times as fast",
            None
            if name == PLAIN
            else Measure(one(wall[PLAIN] / wall[name]), one(cpu[PLAIN] / cpu[name])),
            difference=(differences or {}).get(name),
        )
        for name, note in notes.items()
    ]


def compiling(loops: list[Loop]) -> Figure:
    """What the first rounds take longer than others."""
    seconds = sum(
        steps
        * (loop.first["compiled"][0].wall - median(turn.wall for turn in loop.turns["compiled"]))
        for steps, loop in zip(ROUNDS_PER_TURN, loops, strict=True)
    )
    return Figure("dvfl", "compiling", 1e3 * seconds)


def one(value: float) -> Spread:
    return Spread(value, value, value)


def rounds(rows: int, epochs: tuple[int, int, int]) -> tuple[int, int, int]:
    """Of each loop. In the first, aggregators have as many epochs as clients."""
    clients, aggregators, owner = epochs
    per_epoch = -(-rows // BATCH)
    return clients * per_epoch, (aggregators - clients) * per_epoch, owner * per_epoch


# -- data -----------------------------------------------------------------------------------------


def mnist() -> VerticalData:
    return load(DataSpec(dataset="mnist", rows=ROWS + VALIDATION), seed=0)


def enlarged_digits() -> VerticalData:
    """8 × 8 pixels made 28 × 28."""
    raw = load_raw("digits")
    images = torch.from_numpy(raw.x).float().view(-1, 1, 8, 8)
    large = F.interpolate(images, size=(28, 28), mode="bilinear")[:, 0] * (255 / 16)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.npz"
        np.savez(path, x=large.round().byte().numpy(), y=raw.y)
        spec = DataSpec(path=str(path), parties=4, split="bands", rows=ROWS + VALIDATION)
        return load(spec, seed=0)
