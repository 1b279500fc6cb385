"""What a machine of a Ray cluster does for an experiment. Nothing here imports Ray."""

from __future__ import annotations

import platform
import socket
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module, metadata
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import TypeVar

import msgspec

from colonnade.common.results import Result
from colonnade.common.user_code import sha256_of
from colonnade.data.loading import Source
from colonnade.errors import ColonnadeError, InputError
from colonnade.experiments.config import Experiment, parse_experiment
from colonnade.experiments.engine import Setting, attempt
from colonnade.experiments.grid import Bundle

T = TypeVar("T")
Versions = tuple[tuple[str, str], ...]

SECONDS_BETWEEN_NEWS = 0.5


@cache
def versions() -> Versions:
    """What must be equal on all machines, so that results do not depend on where a run was. Builds
    of torch for other processors (`+cpu`, `+cu128`) count as equal."""
    colonnade = import_module("colonnade")
    code = sha256_of(colonnade, "colonnade")[:12]
    found = {name: metadata.version(name).partition("+")[0] for name in ("ray", "torch", "numpy")}
    python = ".".join(platform.python_version_tuple()[:2])
    return (
        ("Python", python),
        *found.items(),
        ("colonnade", f"{colonnade.__version__} (code {code})"),
    )


@dataclass(frozen=True)
class Order:
    """What every task of an experiment gets, beside the rows."""

    config: bytes  # the experiment, as JSON
    versions: Versions  # on the machine that asks

    @classmethod
    def of(cls, experiment: Experiment) -> Order:
        return cls(msgspec.json.encode(experiment.table()), versions())


@dataclass(frozen=True)
class Started:
    """A task has begun, on this machine."""

    machine: str


@dataclass(frozen=True)
class Unfit:
    """No task can run on this machine, for this reason."""

    reason: str


@dataclass(frozen=True)
class Done:
    """A result or an error for each run of a bundle, and the files of the runs by their path in the
    output folder."""

    outcomes: Sequence[Result | ColonnadeError]
    files: dict[str, bytes]


News = Started | float | Unfit | Done  # a number: which share of a training is done


def fits(order: Order) -> str:
    """Why this machine cannot run the experiment; empty if it can."""
    try:
        understood(order)
    except InputError as error:
        return f"{socket.gethostname()}: {error}"
    return ""


@lru_cache(maxsize=4)
def understood(order: Order) -> Experiment:
    """The experiment. InputError: this machine has other versions, or lacks a file or a module."""
    here = dict(versions())
    other = [
        f"{name} {here[name]} there, {v} here" for name, v in order.versions if here[name] != v
    ]
    if other:
        raise InputError(f"{'; '.join(other)}. All machines need the same versions.")
    table = msgspec.json.decode(order.config)
    experiment = parse_experiment(table, "experiment")
    code, wanted = experiment.sha256 or {}, table.get("sha256") or {}
    if changed := [name for name in wanted if code.get(name) != wanted[name]]:
        raise InputError(f"the code of {changed[0]} is not the same there as here")
    for i, fault in enumerate(experiment.faults):
        path = getattr(fault, "path", None)
        if path is not None and not Path(path).is_file():
            raise InputError(
                f"faults[{i}].path: {path} is not there; every machine needs the recording at the "
                "same path"
            )
    return experiment


def train(order: Order, source: Source, runs: Bundle) -> Iterator[News]:
    """One task: a training and its tests, in a folder of its own on this machine."""
    yield Started(socket.gethostname())
    try:
        experiment = understood(order)
    except InputError as error:
        yield Unfit(f"{socket.gethostname()}: {error}")
        return
    with TemporaryDirectory(prefix="colonnade-") as name:
        folder = Path(name)
        setting = Setting(experiment, folder)
        outcomes = yield from _told(lambda tell: attempt(setting, runs, tell, source))
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        held = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
        yield Done(outcomes, held)


def _told(work: Callable[[Callable[[float], None]], T]) -> Generator[float, None, T]:
    """Does the work in a thread, and yields meanwhile what it tells of its progress."""
    news: SimpleQueue[float | None] = SimpleQueue()
    last = 0.0

    def tell(share: float) -> None:
        nonlocal last
        if time.monotonic() - last >= SECONDS_BETWEEN_NEWS:
            last = time.monotonic()
            news.put(share)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work, tell)
        done.add_done_callback(lambda _: news.put(None))
        while (share := news.get()) is not None:
            yield share
        return done.result()
