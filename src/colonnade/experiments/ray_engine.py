"""Runs on the machines of a Ray cluster: one task for each training.

The rows are read here and go to Ray's object store, which copies them once to each machine. A task
works in a temporary folder of its machine and sends back the files of its runs with their results;
only this process writes the output folder. So a run counts when its files are here, and once. Ray
tries nothing again by itself (`max_retries=0`): a task that was lost with its machine is given out
anew here.

Ray executes whatever its members send: one cluster is one organisation. See docs/how-to/cluster.md.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colonnade.common.files import replacing
from colonnade.data.loading import read_source
from colonnade.errors import ColonnadeError, InputError
from colonnade.experiments.engine import Keep, Observer, Setting, portable
from colonnade.experiments.grid import Bundle
from colonnade.experiments.ray_address import check_address
from colonnade.experiments.ray_tasks import Done, News, Order, Started, Unfit, fits, train

log = logging.getLogger(__name__)

FEWEST_TASKS = 16  # under way, however small the cluster is: an autoscaler must see demand
MOST = {"crash": 2, "loss": 5}  # attempts: its process died; its machine was lost
PATIENCE = 120.0  # seconds for a machine to start its first process
MEMBERSHIP = (
    "The command must run on a machine of the cluster, with its token (RAY_AUTH_MODE, "
    "RAY_AUTH_TOKEN) and its versions of Ray and Python"
)


@dataclass(frozen=True)
class OnRay:
    """`address`: HOST:PORT of the head; without it, RAY_ADDRESS or the cluster of this machine.
    `jobs`: runs at a time; without it, as many as the cluster has processors."""

    address: str | None = None
    jobs: int | None = None

    def check(self, setting: Setting) -> None:
        if not portable(setting.experiment):
            raise InputError(
                "engine ray: functions and algorithms that are defined in this process cannot be "
                'sent to other machines; put them into a module and name them as "module:name"'
            )
        if setting.track:
            raise InputError(
                f"--track {setting.track[0]}: is for runs on this machine; with the engine ray, "
                "runs are not tracked. Their curves are in history/"
            )

    def run(self, setting: Setting, work: Sequence[Bundle], observer: Observer, keep: Keep) -> None:
        if not work:
            return
        experiment, folder = setting.experiment, setting.folder
        with member_of(check_address(self.address)) as ray:
            order = Order.of(experiment)
            check_machines(ray, order)
            rows = ray.put(read_source(experiment.data))
            task = ray.remote(num_cpus=1, max_retries=0, num_returns="streaming")(train)

            def start(runs: Bundle) -> Any:
                cuda = runs[0].spec(experiment).settings.device == "cuda"
                return task.options(num_gpus=int(cuda)).remote(order, rows, runs)

            tasks = Tasks(ray, start, deque(work))
            try:
                while tasks.open:
                    tasks.begin(self.jobs or max(FEWEST_TASKS, 2 * _processors(ray)))
                    for runs, news in tasks.news():
                        _take(runs, news, folder, observer, keep)
            except BaseException:
                tasks.cancel()
                raise


@dataclass
class Tasks:
    """Trainings that wait, those that are under way, and which are tried again."""

    ray: Any
    start: Any  # a bundle → the stream of its task's news
    waiting: deque[Bundle]
    under_way: dict[Any, Bundle] = field(default_factory=dict)
    machines: dict[Any, str] = field(default_factory=dict)  # stream → where its task is
    failed: Counter[tuple[Bundle, str]] = field(default_factory=Counter)  # and how

    @property
    def open(self) -> bool:
        return bool(self.waiting or self.under_way)

    def begin(self, most: int) -> None:
        while self.waiting and len(self.under_way) < most:
            runs = self.waiting.popleft()
            self.under_way[self.start(runs)] = runs

    def news(self) -> Iterator[tuple[Bundle, News]]:
        """What the tasks have told. A task that has told its last is forgotten first, so that
        nothing is taken twice."""
        ready, _ = self.ray.wait(list(self.under_way), timeout=0.2)
        for stream in ready:
            runs = self.under_way[stream]
            news = self._next(stream, runs)
            if isinstance(news, Started):
                self.machines[stream] = news.machine
            elif not isinstance(news, float):
                del self.under_way[stream]
            if news is not None:
                yield runs, news

    def _next(self, stream: Any, runs: Bundle) -> News | None:
        """The next news of a task; None if the task was lost and waits to be tried again."""
        errors, machine = self.ray.exceptions, self.machines.get(stream, "a machine")
        try:
            return self.ray.get(next(stream))
        except (errors.NodeDiedError, errors.ObjectLostError):
            return self._again(runs, "loss", f"{machine} was lost")
        except (errors.WorkerCrashedError, errors.OutOfMemoryError):
            return self._again(runs, "crash", f"its process on {machine} died (out of memory?)")
        except errors.RayTaskError as error:
            return _failed(runs, str(error.cause or error).strip())
        except errors.RayError as error:
            reason = str(error).strip().partition("\n")[0]
            raise ColonnadeError(
                f"the Ray cluster does not work any more ({reason}). Finished runs are kept; the "
                "same command goes on."
            ) from error

    def _again(self, runs: Bundle, kind: str, why: str) -> Done | None:
        self.failed[runs, kind] += 1
        if self.failed[runs, kind] == MOST[kind]:
            return _failed(runs, f"{why}; tried {MOST[kind]} times")
        log.warning("%s: %s; it is tried again", runs[0].name, why)
        self.waiting.appendleft(runs)
        return None

    def cancel(self) -> None:
        for stream in self.under_way:
            with suppress(Exception):  # the cluster may be gone
                self.ray.cancel(stream, force=True)


def _failed(runs: Bundle, reason: str) -> Done:
    return Done([ColonnadeError(reason)] * len(runs), {})


def _take(runs: Bundle, news: News, folder: Path, observer: Observer, keep: Keep) -> None:
    match news:
        case Unfit(reason):
            raise InputError(f"a machine of the Ray cluster does not fit: {reason}")
        case Done(outcomes, files):
            for name, content in files.items():
                with replacing(folder / name) as partial:
                    partial.write_bytes(content)
            for run, outcome in zip(runs, outcomes, strict=True):
                keep(run, outcome)
        case float():
            observer.advance(runs[0].name, news)
        case Started():
            pass


@contextmanager
def member_of(address: str) -> Iterator[Any]:
    """The module `ray`, while this process is a member of the cluster. A program that is a member
    already stays one afterwards."""
    ray = _ray()
    if ray.is_initialized():
        yield ray
        return
    # Ray prints warnings about machines to stdout, where `--json` writes its document.
    with redirect_stdout(sys.stderr):
        _join(ray, address)
        try:
            yield ray
        finally:
            ray.shutdown()


def _ray() -> Any:
    # Ray tries a wrong token so often: 20 times take a minute.
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "3")
    try:
        import ray
    except ImportError:
        raise InputError(
            "engine ray: Ray is not installed. Install it with: pip install 'colonnade[ray]'"
        ) from None
    return ray


def _join(ray: Any, address: str) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise InputError(
            f"address {address}: this process cannot join the Ray cluster: {reason}. {MEMBERSHIP}."
        ) from error
    finally:  # Ray takes SIGTERM for itself; it is to stop runs as Ctrl-C does
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def check_machines(ray: Any, order: Order) -> None:
    """Refuses a cluster in which a machine cannot run the experiment. Machines that come later are
    checked by their tasks."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as Only

    ask = ray.remote(num_cpus=0, max_retries=0)(fits)
    nodes = [n for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]
    answers = {
        ask.options(scheduling_strategy=Only(n["NodeID"], soft=False)).remote(order): n
        for n in nodes
    }
    done, _ = ray.wait(list(answers), num_returns=len(answers), timeout=PATIENCE)
    for answer in done:
        name = f"{answers[answer]['NodeManagerHostname']} ({answers[answer]['NodeManagerAddress']})"
        try:
            reason = ray.get(answer)
        except ray.exceptions.RayTaskError as error:
            reason = f"{name}: Colonnade does not work there: {error.cause or error}"
        except ray.exceptions.RayError:
            log.warning("%s was lost before it began", name)
            continue
        if reason:
            raise InputError(f"a machine of the Ray cluster does not fit: {reason}")


def _processors(ray: Any) -> int:
    return int(ray.cluster_resources().get("CPU", 0))
