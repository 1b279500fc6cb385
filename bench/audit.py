"""What `colonnade audit` costs: processor time of a training that is recorded and attacked, over
that of the plain training; and of all that the commands `audit` and `run` do for a run, which load
data, train, test and write files, besides.

Every method on digits, where a training takes a second or less, and some on MNIST, if it is there.
What libraries do once in a process is not counted: the first attack imports scikit-learn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from rich import box
from rich.table import Table

from bench.timing import Figure, Measure, Spread, Target
from colonnade.data.datasets import present
from colonnade.experiments.audit.findings import ALL
from colonnade.experiments.audit.measure import recorded
from colonnade.experiments.config import Experiment, read_experiment
from colonnade.experiments.grid import grid
from colonnade.experiments.run import RunSpec, train_and_test

EXAMPLES = Path(__file__).parents[1] / "examples"
DIGITS: tuple[str, ...] = ()  # methods of examples/audit.toml; (): all
MNIST: tuple[str, ...] = (  # methods of examples/leakage/mnist.toml
    "SplitNN",
    "MAGS, one aggregator",
    "MAGS, all",
    "CVFL",
    "VIM, SGD",
    "FedVS",
)
REPEATS = 3
EPOCHS: int | None = None  # None: as many as the examples say
LIMIT = Target(2.0, at_least=False)


@dataclass(frozen=True)
class Seconds:
    """Of processor time."""

    training: float  # with attacks, if there are any
    whole: float


@dataclass(frozen=True)
class Cost:
    plain: float  # seconds of processor time of the plain training, median
    training: Spread  # audit over training
    whole: Spread  # `audit` over `run`


def run() -> list[Figure]:
    figures = _costs("digits", EXAMPLES / "audit.toml", DIGITS)
    if MNIST and present("mnist"):
        figures += _costs("MNIST", EXAMPLES / "leakage" / "mnist.toml", MNIST)
    worst = max(figures, key=lambda one: one.detail.training.median)
    return [*figures, _figure(f"worst: {worst.variant}", worst.detail)]


def _costs(data: str, path: Path, names: Sequence[str]) -> list[Figure]:
    experiment = read_experiment(path, [] if EPOCHS is None else [f"methods.*.epochs={EPOCHS}"])
    runs = [one.spec(experiment) for one in grid(experiment) if one.fault == one.seed == 0]
    chosen = [one for one in runs if not names or one.settings.name in names]
    spent(experiment, chosen[0], audits=True)  # what is done once in a process
    return [_figure(f"{data}: {one.settings.name}", cost(experiment, one)) for one in chosen]


def _figure(variant: str, found: Cost) -> Figure:
    measure = Measure(found.training, found.training)
    told = "audit over training, by processor time"
    return Figure("audit", variant, 1e3 * found.plain, told, measure, LIMIT, detail=found)


def cost(experiment: Experiment, spec: RunSpec) -> Cost:
    turns = [
        [spent(experiment, spec, audits=audits) for audits in (False, True)] for _ in range(REPEATS)
    ]
    return Cost(
        median(plain.training for plain, _ in turns),
        Spread.of([audited.training / plain.training for plain, audited in turns]),
        Spread.of([audited.whole / plain.whole for plain, audited in turns]),
    )


def spent(experiment: Experiment, spec: RunSpec, *, audits: bool) -> Seconds:
    took: list[float] = []

    def look(*training: Any) -> Callable[[], None]:
        began = time.process_time()
        attack = recorded(ALL, *training) if audits else lambda: None

        def trained() -> None:
            attack()
            took.append(time.process_time() - began)

        return trained

    began = time.process_time()
    with TemporaryDirectory() as folder:
        train_and_test(experiment, [spec], Path(folder), look=look)
    return Seconds(took[0], time.process_time() - began)


def table(figures: list[Figure]) -> Table:
    caption = "processor time; median (smallest – largest) over turns"
    result = Table(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left")
    result.add_column("audit")
    headers = ("training, s", "audit over training", "`audit` over `run`", "target", "reached")
    for header in headers:
        result.add_column(header, justify="right")
    for figure in figures:
        found = figure.detail
        ratios = [f"{s.median:.2f} ({s.low:.2f} – {s.high:.2f})" for s in _spreads(found)]
        reached = "yes" if figure.reached else "no"
        limit = f"≤ {LIMIT.limit:g}"
        result.add_row(figure.variant, f"{found.plain:.2f}", *ratios, limit, reached)
    return result


def _spreads(found: Cost) -> tuple[Spread, Spread]:
    return found.training, found.whole
