"""`python -m bench.ray_nodes`: a grid of runs on Ray nodes of one processor each; one node may be
killed meanwhile.

`on_nodes` starts this program in a network namespace and a process namespace of its own: Ray
listens on the machine's addresses, so other users could reach it, and it leaves processes behind;
with the first process of a process namespace, all others end.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from colonnade.common.results import read_failures
from colonnade.experiments.config import parse_experiment
from colonnade.experiments.ray_engine import OnRay
from colonnade.experiments.runner import run_experiment

NAMESPACE = ("unshare", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc")
WITH_LO = ("sh", "-c", 'ip link set lo up && exec "$@"', "sh")
MEMORY = 80_000_000  # bytes of an object store, the least that Ray takes
LIMIT = 600.0  # seconds


@cache
def unavailable() -> str:
    """Why two nodes cannot be started here; empty if they can."""
    if find_spec("ray") is None:
        return "Ray is not installed (extra ray)"
    if not all(map(shutil.which, ("unshare", "ip"))):
        return "needs the commands unshare and ip"
    tried = subprocess.run([*NAMESPACE, *WITH_LO, "true"], capture_output=True, text=True)
    return "" if tried.returncode == 0 else f"no network namespaces here: {tried.stderr.strip()}"


def on_nodes(
    folder: Path,
    experiment: dict[str, Any],
    nodes: int = 2,
    kill_after: int = 0,
    stop_after: int = 0,
) -> dict[str, Any]:
    """Runs the experiment on so many nodes, with its output in `folder/out`. The last node is
    killed while it trains, after so many results (0: never). After `stop_after` results, Ctrl-C
    stops the experiment, and the same call goes on. What `work` tells."""
    (folder / "experiment.json").write_text(json.dumps(experiment))
    inside = [sys.executable, "-m", "bench.ray_nodes", str(folder)]
    inside += [str(nodes), str(kill_after), str(stop_after)]
    more = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    with (folder / "log").open("w") as log:
        done = subprocess.run(
            [*NAMESPACE, "--kill-child", *WITH_LO, *inside],
            env=os.environ | more,
            stdout=log,
            stderr=log,
            timeout=LIMIT,
        )
    if done.returncode:
        raise RuntimeError((folder / "log").read_text())
    return json.loads((folder / "told.json").read_text())


class Watch:
    """Counts the ends of runs. After so many of them, kills the last node in the middle of a run,
    or stops the experiment."""

    def __init__(self, cluster: Any, nodes: list[Any], after: int, stop_after: int) -> None:
        self.cluster, self.nodes, self.after, self.stop_after = cluster, nodes, after, stop_after
        self.begun = time.monotonic()
        self.finished: Counter[str] = Counter()
        self.under_way: dict[str, float] = {}  # run → which share of it is done
        self.times: list[float] = []  # seconds since the start, of each end

    def begin(self, total: int, done: int) -> None:
        self.under_way.clear()

    def advance(self, run: str, share: float) -> None:
        self.under_way[run] = share
        if self.after and self.finished.total() >= self.after and self._all_nodes_work():
            self.after = 0
            workers = workers_of(self.nodes[-1])
            self.cluster.remove_node(self.nodes[-1], allow_graceful=False)
            for pid in workers:  # they would end by themselves, but a run may be over by then
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _all_nodes_work(self) -> bool:
        """Whether every node is in the middle of a run. A node has one processor, so it does one
        run at a time; a run that is nearly done may have told its result before it is killed."""
        return sum(share < 0.7 for share in self.under_way.values()) == len(self.nodes)

    def finish(self, run: str) -> None:
        self.under_way.pop(run, None)
        self.finished[run] += 1
        self.times.append(time.monotonic() - self.begun)
        if self.finished.total() == self.stop_after:
            raise KeyboardInterrupt


def workers_of(node: Any) -> list[int]:
    """The processes that work for a node: children of its raylet."""
    raylets = {one.process.pid for one in node.all_processes["raylet"]}
    found: list[int] = []
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):  # it has ended
            parent = re.search(r"^PPid:\s(\d+)$", status.read_text(), re.MULTILINE)
            if parent and int(parent[1]) in raylets:
                found.append(int(status.parent.name))
    return found


def work(folder: Path, nodes: int, kill_after: int, stop_after: int) -> dict[str, Any]:
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    members = [cluster.add_node(num_cpus=1, include_dashboard=False, object_store_memory=MEMORY)]
    for _ in range(nodes - 1):
        members.append(cluster.add_node(num_cpus=1, object_store_memory=MEMORY))
    experiment = parse_experiment(json.loads((folder / "experiment.json").read_text()), "grid")
    watch = Watch(cluster, members, kill_after, stop_after)
    lost: list[str] = []
    told = logging.Handler()
    told.emit = lambda record: lost.append(record.getMessage())
    logging.getLogger("colonnade.experiments.ray_engine").addHandler(told)
    again = partial(
        run_experiment, experiment, folder / "out", engine=OnRay(cluster.address), observer=watch
    )
    if stop_after:
        with suppress(KeyboardInterrupt):
            again()
    outcome = again()
    return {
        "results": [result.run for result in outcome.results],
        "failures": [failure.reason for failure in read_failures(folder / "out")],
        "finished": watch.finished,
        "times": watch.times,
        "lost": lost,
    }


def main() -> None:
    folder = Path(sys.argv[1])
    told = work(folder, *map(int, sys.argv[2:5]))
    (folder / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
