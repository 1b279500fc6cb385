"""Tracking with TensorBoard and MLflow: the curve of a training while it goes on, its settings, and
at its end the figures and costs of its tests. One tracked run per training.

TensorBoard's event files go into `tensorboard/` of the output folder. MLflow's runs go to the
server or folder of the environment variable MLFLOW_TRACKING_URI, else into `mlflow/` of the output
folder. Both libraries come with the extra `track` and are imported when a training begins.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any, Protocol

from colonnade.common.text import nearest
from colonnade.errors import InputError

log = logging.getLogger(__name__)

TENSORBOARD, MLFLOW = "tensorboard", "mlflow"
TRACKERS = {TENSORBOARD: "tensorboard", MLFLOW: "mlflow"}  # name → module that it needs
EXTRA = 'pip install "colonnade[track]"'
LONGEST = 500  # characters of a setting, MLflow's limit
AT_ONCE = 100  # settings in one message, MLflow's limit
LAST_WORDS = 30  # seconds to write what is left at the end


@dataclass(frozen=True)
class Tracked:
    """A training that is tracked."""

    folder: Path  # the output folder
    experiment: str  # the name of the experiment or federation
    run: str  # names its files
    title: str  # for readers
    settings: Mapping[str, Any] = field(default_factory=dict)  # tables and lists are written flat

    @property
    def flat(self) -> dict[str, str]:
        return {key: str(value)[:LONGEST] for key, value in _flat(self.settings)}


class Tracker(Protocol):
    def point(self, step: int, values: Mapping[str, float]) -> None:
        """A point of the training curve. `step`: rounds so far."""

    def end(self, figures: Mapping[str, float], failed: str = "") -> None:
        """The training and its tests are over. `failed`: why there are no figures."""


class Tracking:
    """All trackers of one training; none if no names are given. A thread of its own serves them, so
    that a slow server holds up nobody; a tracker that fails is told in the log and given up."""

    def __init__(self, names: Sequence[str], tracked: Tracked) -> None:
        self._orders: Queue[tuple[str, tuple[Any, ...]] | None] = Queue()
        self._ended = not names
        self._thread = Thread(target=self._serve, args=(names, tracked), daemon=True)
        if names:
            self._thread.start()

    def point(self, point: Mapping[str, Any]) -> None:
        """`point`: a line of `history/`."""
        values = {key: value for key, value in point.items() if key != "round"}
        if not self._ended:
            self._orders.put(("point", (int(point["round"]), _finite(values))))

    def end(self, figures: Mapping[str, Any], failed: str = "") -> None:
        """The first end counts. Waits until everything is written, but not for ever."""
        if not self._ended:
            self._ended = True
            self._orders.put(("end", (_finite(figures), failed)))
            self._orders.put(None)
            self._thread.join(LAST_WORDS)
            if self._thread.is_alive():
                log.warning("tracking: not all is written after %d s; going on", LAST_WORDS)

    def _serve(self, names: Sequence[str], tracked: Tracked) -> None:
        trackers: dict[str, Tracker] = {}
        for name in names:
            with _giving_up(name, trackers):
                trackers[name] = KINDS[name](tracked)
        while (order := self._orders.get()) is not None:
            action, facts = order
            for name, tracker in list(trackers.items()):
                with _giving_up(name, trackers):
                    getattr(tracker, action)(*facts)


@contextmanager
def _giving_up(name: str, trackers: dict[str, Tracker]) -> Iterator[None]:
    """An error of a tracker is told in the log, and the tracker is used no more."""
    try:
        yield
    except Exception as error:  # of a library, or of a server
        log.warning("tracking with %s has stopped: %s", name, error)
        trackers.pop(name, None)


def check_trackers(names: Sequence[str]) -> None:
    """Refuse names that are not known, and libraries that are not installed."""
    for name in names:
        if name not in TRACKERS:
            raise InputError(
                f"--track {name}: expected tensorboard or mlflow{nearest(name, list(TRACKERS))}"
            )
        if find_spec(TRACKERS[name]) is None:
            raise InputError(f"--track {name}: it is not installed; {EXTRA} brings it")


class TensorBoard:
    """Event files in `tensorboard/<run>/`. A training that begins anew replaces them."""

    def __init__(self, tracked: Tracked) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = tracked.folder / TENSORBOARD / tracked.run
        shutil.rmtree(folder, ignore_errors=True)
        self.tracked, self.writer = tracked, SummaryWriter(str(folder), flush_secs=2)
        rows = [f"| {key} | {_cell(value)} |" for key, value in tracked.flat.items()]
        head = ["| setting | value |", "|---|---|"]
        self.writer.add_text("settings", "\n".join([*head, *rows]))
        self.writer.flush()

    def point(self, step: int, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            self.writer.add_scalar(key, value, step)

    def end(self, figures: Mapping[str, float], failed: str = "") -> None:
        if failed:
            self.writer.add_text("failed", failed)
        else:
            self.writer.add_hparams(self.tracked.flat, dict(figures), run_name=".")
        self.writer.close()


class MLflow:
    """A run in MLflow's experiment of the same name."""

    def __init__(self, tracked: Tracked) -> None:
        self.client = mlflow_client(tracked.folder)
        from mlflow.entities import Param

        self.run: str = self.client.create_run(
            _mlflow_experiment(self.client, tracked.experiment),
            run_name=tracked.title,
            tags={"colonnade.run": tracked.run, "colonnade.folder": str(tracked.folder.resolve())},
        ).info.run_id
        params = [Param(_mlflow_name(key), value) for key, value in tracked.flat.items()]
        for start in range(0, len(params), AT_ONCE):
            self.client.log_batch(self.run, params=params[start : start + AT_ONCE])

    def point(self, step: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        found = [Metric(_mlflow_name(key), value, now, step) for key, value in values.items()]
        self.client.log_batch(self.run, metrics=found)

    def end(self, figures: Mapping[str, float], failed: str = "") -> None:
        if failed:
            self.client.set_tag(self.run, "failed", failed[:LONGEST])
        else:
            self.point(0, figures)
        self.client.set_terminated(self.run, "FAILED" if failed else "FINISHED")


KINDS = {TENSORBOARD: TensorBoard, MLFLOW: MLflow}


def mlflow_client(folder: Path) -> Any:
    """Of the place where runs of this output folder go."""
    # MLflow reports its use to its makers unless it is told not to.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    place = os.environ.get("MLFLOW_TRACKING_URI")
    if not place:
        # MLflow 3 asks for this word before it writes into a folder.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        place = (folder / MLFLOW).resolve().as_uri()
    from mlflow.tracking import MlflowClient

    return MlflowClient(place)


def _mlflow_experiment(client: Any, name: str) -> str:
    """Its id. Several processes may begin at once, and one of them makes it."""
    from mlflow.exceptions import MlflowException

    if (known := client.get_experiment_by_name(name)) is None:
        try:
            return client.create_experiment(name)
        except MlflowException:
            if (known := client.get_experiment_by_name(name)) is None:
                raise
    return known.experiment_id


def _mlflow_name(name: str) -> str:
    """A name with the letters that MLflow allows."""
    return "".join(c if c.isalnum() or c in "_-. /" else "_" for c in name)


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """{"a": {"b": 1}, "c": [{"d": 2}]} gives a.b = 1, c.0.d = 2; a list of plain values is one."""
    if isinstance(value, Mapping):
        entries: Any = value.items()
    elif isinstance(value, list | tuple) and any(isinstance(one, Mapping) for one in value):
        entries = enumerate(value)
    else:
        yield name, value
        return
    for key, one in entries:
        yield from _flat(one, f"{name}.{key}" if name else str(key))


def _finite(values: Mapping[str, Any]) -> dict[str, float]:
    known = {k: v for k, v in values.items() if isinstance(v, int | float)}
    return {key: float(value) for key, value in known.items() if isfinite(value)}


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")
