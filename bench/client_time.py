"""How long a client's process has to live: DVFL and SplitNN, as in DVFL's appendix F.3.

Processor time per epoch of MNIST (60,000 rows) in the models of a party: forward with the loss,
backward with the optimiser's step, and, in SplitNN, waiting for the server's forward and backward.
Messages and the handling of data count for nothing. Every party runs its own part of the ordinary
program, on one thread, over a network in memory. The paper's machine is an Apple M2: what can be
compared are the ratios.

The paper's totals for the client's process are 20 epochs for every method, although it trains
SplitNN for 60 and clients with SimCLR for 5; both totals are shown. And its clients' backward pass
of SplitNN takes 1 ms per epoch, too little for one: we take it to be part of the waiting there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from time import process_time
from typing import Any
from unittest.mock import patch

import torch
from rich import box
from rich.table import Table
from torch import Tensor

from bench.timing import Figure, Measure, Spread
from colonnade.algorithms.dvfl import DVFLSettings
from colonnade.algorithms.splitnn import SplitNNSettings
from colonnade.common.seeds import torch_stream
from colonnade.data.partition import Rows, VerticalData
from colonnade.learning.settings import Settings
from colonnade.models import Stack
from colonnade.testing import projected

ROWS = 60_000
REPEATS = 15
COUNTED = 20  # epochs in the paper's totals

EPOCH = "client, one epoch"
AS_COUNTED, AS_TRAINED = "client, 20 epochs", "client, all epochs"
QUANTITIES = (
    "client forward",
    "client waiting",
    "client backward",
    EPOCH,
    AS_COUNTED,
    AS_TRAINED,
    "aggregator forward",
    "aggregator backward",
    "owner forward",
    "owner backward",
)


@dataclass(frozen=True)
class Method:
    settings: Settings
    batches: int  # in a turn
    epochs: int  # a client takes part in
    paper: Mapping[str, float]  # table 8: seconds per epoch, and the total it gives


DVFL_MSE, SIMCLR, SPLITNN = "DVFL", "SimCLR", "SplitNN"  # SimCLR: DVFL with this objective
ONE_EPOCH: dict[str, Any] = {"client_epochs": 1, "aggregator_epochs": 1, "epochs": 1}


def methods() -> dict[str, Method]:
    found = {
        SPLITNN: Method(
            SplitNNSettings(
                name="SplitNN",
                algorithm="splitnn",
                optimizer="sgd",
                lr=1e-2,
                momentum=0.5,
                epochs=1,
            ),
            20,
            60,
            {
                "client forward": 1.830,
                "client waiting": 2.180,
                "client backward": 0.001,
                "aggregator forward": 0.982,
                "aggregator backward": 0.274,
                AS_COUNTED: 80.220,
            },
        ),
        DVFL_MSE: Method(
            DVFLSettings(name="DVFL", algorithm="dvfl", **ONE_EPOCH),
            20,
            20,
            {
                "client forward": 2.144,
                "client waiting": 0.0,
                "client backward": 0.650,
                "aggregator forward": 1.748,
                "aggregator backward": 0.806,
                "owner forward": 1.271,
                "owner backward": 0.564,
                AS_COUNTED: 55.883,
            },
        ),
    }
    if "objective" in DVFLSettings.__struct_fields__:
        found[SIMCLR] = simclr()
    return found


def simclr() -> Method:
    settings: dict[str, Any] = {
        "objective": "simclr",
        "aggregators": 0,
        "batch": 600,
        "lr": {"clients": 4e-3, "owner": 1e-1},
        "momentum": 0.9,
    }
    paper = {
        "client forward": 4.872,
        "client waiting": 0.0,
        "client backward": 10.488,
        "owner forward": 1.149,
        "owner backward": 2.430,
        AS_COUNTED: 305.596,
    }
    chosen = DVFLSettings(name="SimCLR", algorithm="dvfl", **ONE_EPOCH, **settings)
    return Method(chosen, 4, 5, paper)


class StackClock:
    """Processor time in the calls of each stack: what precedes differentiation is forward."""

    def __init__(self) -> None:
        self.forward: dict[Stack, float] = defaultdict(float)
        self.backward: dict[Stack, float] = defaultdict(float)
        self._turned: float | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        with ExitStack() as patches:
            for name in ("__call__", "learn", "fit", "backward"):
                timed = self._timed(getattr(Stack, name))
                patches.enter_context(patch.object(Stack, name, timed))
            turning = self._turning(torch.autograd.grad)
            patches.enter_context(patch.object(torch.autograd, "grad", turning))
            yield

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def timed(stack: Stack, *args: Any, **kwargs: Any) -> Any:
            self._turned, begun = None, process_time()
            result = method(stack, *args, **kwargs)
            ended = process_time()
            turned = ended if self._turned is None else self._turned
            self.forward[stack] += turned - begun
            self.backward[stack] += ended - turned
            return result

        return timed

    def _turning(self, differentiate: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(differentiate)
        def turning(*args: Any, **kwargs: Any) -> Any:
            self._turned = process_time()
            return differentiate(*args, **kwargs)

        return turning


def images(rows: int) -> VerticalData:
    """Noise in the shape of MNIST, in four bands; nothing to validate or to test on."""
    stream = torch_stream(0, "images")

    def part(rows: int) -> Rows:
        x: tuple[Tensor, ...] = tuple(torch.rand(rows, 196, generator=stream) for _ in range(4))
        return Rows(x, torch.randint(10, (rows,), generator=stream))

    return VerticalData(
        name="images",
        clients=tuple(f"client{i}" for i in range(4)),
        classes=10,
        shapes=((1, 7, 28),) * 4,
        train=part(rows),
        validation=part(0),
        test=part(0),
    )


def measure(method: Method, data: VerticalData) -> dict[str, float]:
    """Seconds per epoch by quantity, the mean over the members of a group."""
    clock = StackClock()
    with clock.running():
        parties = projected(method.settings, data)
    spent: dict[str, float] = defaultdict(float)
    for party in parties.values():
        for group, stack in party.algorithm.stacks.values():
            share = ROWS / len(data.train) / len(group)
            spent[f"{group.role} forward"] += clock.forward[stack] * share
            spent[f"{group.role} backward"] += clock.backward[stack] * share
    spent["client waiting"] = 0.0
    if isinstance(method.settings, SplitNNSettings):
        spent["client waiting"] = spent["aggregator forward"] + spent["aggregator backward"]
    return with_totals(spent, method.epochs)


def with_totals(spent: Mapping[str, float], epochs: int) -> dict[str, float]:
    total = sum(spent[f"client {part}"] for part in ("forward", "waiting", "backward"))
    return {**spent, EPOCH: total, AS_COUNTED: COUNTED * total, AS_TRAINED: epochs * total}


def run() -> list[Figure]:
    torch.set_num_threads(1)
    chosen = methods()
    data = {name: images(m.batches * m.settings.batch) for name, m in chosen.items()}
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
    for turn in range(REPEATS + 1):
        for name, method in chosen.items():
            measured = measure(method, data[name])
            if turn:  # the first turn allocates
                turns[name].append(measured)
    return [
        figure(name, quantity, method, turns)
        for name, method in chosen.items()
        for quantity in QUANTITIES
        if quantity in turns[name][0]
    ]


def figure(
    name: str, quantity: str, method: Method, turns: Mapping[str, list[dict[str, float]]]
) -> Figure:
    mine = [turn[quantity] for turn in turns[name]]
    other = [turn.get(quantity, 0.0) for turn in turns[SPLITNN]]
    ratio = None
    if name != SPLITNN and all(other):
        spread = Spread.of([a / b for a, b in zip(mine, other, strict=True)])
        ratio = Measure(spread, spread)
    return Figure(
        "client",
        f"{name}: {quantity}",
        1e3 * Spread.of(mine).median,
        "relative to SplitNN, processor time" if ratio else "processor time",
        ratio,
        paper=1e3 * (with_totals(method.paper, method.epochs) | dict(method.paper))[quantity],
    )


CAPTION = f"""\
seconds of processor time, per epoch of {ROWS:,} rows where nothing else is said; paper: Apple M2
all epochs: DVFL 20, DVFL with SimCLR 5, SplitNN 60; the paper's totals count 20 for each
÷: relative to SplitNN, which can be compared between machines"""


def table(figures: list[Figure]) -> Table:
    known = {figure.variant: figure for figure in figures}
    names = [n for n in (DVFL_MSE, SIMCLR, SPLITNN) if f"{n}: {EPOCH}" in known]
    result = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=CAPTION, caption_justify="left"
    )
    result.add_column("", no_wrap=True)
    for header in (*names, *(f"{name} ÷" for name in names[:-1])):
        result.add_column(header, justify="right", no_wrap=True)
        result.add_column("paper", justify="right", no_wrap=True)
    for quantity in QUANTITIES:
        row = [known.get(f"{name}: {quantity}") for name in names]
        cells = [cell for figure in row for cell in seconds(figure)]
        cells += [cell for figure in row[:-1] for cell in ratios(figure, row[-1])]
        result.add_row(quantity, *cells)
    return result


def seconds(figure: Figure | None) -> tuple[str, str]:
    if figure is None or figure.paper is None:
        return "", ""
    return _digits(figure.milliseconds / 1e3), _digits(figure.paper / 1e3)


def _digits(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def ratios(figure: Figure | None, splitnn: Figure | None) -> tuple[str, str]:
    if figure is None or splitnn is None or figure.result is None:
        return "", ""
    paper = (figure.paper or 0.0) / (splitnn.paper or 1.0)
    # 1 ms per epoch cannot be the client's backward pass: nothing to compare with.
    return f"{figure.result.cpu.median:.2f}", f"{paper:.2f}" if paper < 100 else "–"
