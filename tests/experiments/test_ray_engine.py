"""Ray's engine, as far as it goes without a cluster; tests/system/test_ray.py has one."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.command_line import colonnade

import colonnade as cn
from colonnade.common.results import Result
from colonnade.data.loading import read_source
from colonnade.errors import ColonnadeError, InputError
from colonnade.experiments import ray_address, ray_engine
from colonnade.experiments.config import Experiment, parse_experiment
from colonnade.experiments.engine import NoObserver, Setting, engine_of
from colonnade.experiments.grid import Bundle, bundles, grid
from colonnade.experiments.ray_engine import MOST, OnRay, Tasks
from colonnade.experiments.ray_tasks import Done, Order, Started, Unfit, fits, train, versions
from colonnade.experiments.runner import run_experiment

TABLE: dict[str, Any] = {
    "name": "small",
    "data": {"dataset": "wine"},
    "methods": [{"algorithm": "splitnn", "epochs": 1}],
}


class NodeDied(Exception): ...


class Crashed(Exception): ...


class Broken(Exception):
    cause = ModuleNotFoundError("No module named 'colonnade'")


class Gone(Exception): ...


EXCEPTIONS = SimpleNamespace(
    NodeDiedError=NodeDied,
    ObjectLostError=NodeDied,
    WorkerCrashedError=Crashed,
    OutOfMemoryError=Crashed,
    RayTaskError=Broken,
    RayError=Gone,
)

GREETED = b"\0\0\0\4\0\0\0\0\0"  # an empty SETTINGS frame of HTTP/2


@pytest.fixture(autouse=True)
def no_cluster_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What Ray has noted on this machine is no part of these tests."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "ray-tmp"))


@pytest.fixture
def experiment() -> Experiment:
    return parse_experiment(TABLE, "small")


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch, experiment: Experiment) -> Order:
    """Also where Ray is not installed."""
    known = metadata.version
    monkeypatch.setattr(
        "importlib.metadata.version", lambda name: "2.60.0" if name == "ray" else known(name)
    )
    versions.cache_clear()
    return Order.of(experiment)


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """Somebody who accepts a connection and says this, or nothing; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            line, _ = server.accept()
            with line:
                if answer is not None:
                    line.sendall(answer)
                with suppress(ConnectionResetError):
                    while line.recv(4096):
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


# -- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["head", "head:", ":6379", "head:port", "head:0", "head:70000"])
def test_what_is_no_address_is_told(address: str) -> None:
    with pytest.raises(InputError, match="expected HOST:PORT"):
        ray_address.check_address(address)


def test_ray_client_is_refused_with_what_to_do() -> None:
    with pytest.raises(InputError, match="Ray Client is not supported"):
        ray_address.check_address("ray://head:10001")


def test_an_address_where_nobody_listens_is_told_at_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    done = colonnade("run", "small.toml", "--engine", "ray", "--address", address, folder=tmp_path)
    assert done.returncode == 2
    assert f"address {address}: no Ray cluster answers there (Connection refused)" in done.stderr


def test_an_address_that_accepts_and_says_nothing_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_address, "PATIENCE", 0.05)
    with (
        listening(None) as address,
        pytest.raises(InputError, match=r"no Ray cluster answers there \(timed out\)"),
    ):
        ray_address.check_address(address)


def test_a_name_server_that_is_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """So are hosts with many addresses, of which each has the limit of a socket."""
    answers = threading.Event()
    monkeypatch.setattr(ray_address, "PATIENCE", 0.05)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [None] * (not answers.wait()))
    try:
        with pytest.raises(InputError, match=r"no Ray cluster answers there \(timed out\)"):
            ray_address.check_address("head:6379")
    finally:
        answers.set()


def test_the_limits_of_an_address_are_within_what_the_page_promises() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "cluster.md").read_text()
    assert f"an error after {ray_address.PATIENCE:.0f} seconds at most" in page


def test_another_server_is_told_from_a_ray_cluster() -> None:
    with (
        listening(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address,
        pytest.raises(InputError, match="something else listens there"),
    ):
        ray_address.check_address(address)
    with listening(GREETED) as address:
        assert ray_address.check_address(address) == address


def test_without_an_address_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert ray_address.check_address(None) == "auto"
    with listening(GREETED) as address:
        monkeypatch.setenv("RAY_ADDRESS", address)
        assert ray_address.check_address(None) == address


def noted(address: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """The file in which `ray start` notes the head."""
    file = folder / "ray" / "ray_current_cluster"
    file.parent.mkdir(parents=True)
    file.write_text(address)
    monkeypatch.setenv("RAY_TMPDIR", str(folder))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return file


@pytest.mark.parametrize("given", [None, "auto"])
def test_a_head_that_was_killed_is_told_though_ray_has_noted_it(
    given: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    file = noted(address, monkeypatch, tmp_path)
    with pytest.raises(InputError) as error:
        ray_address.check_address(given)
    told = f"address auto: {file} names the head {address}, but no Ray cluster answers there"
    assert str(error.value).startswith(f"{told} (Connection refused)")
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True))
    assert ray_address.check_address(given) == "auto", "a member needs no address"


def test_a_head_that_ray_has_noted_and_that_answers_is_joined(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with listening(GREETED) as address:
        noted(address, monkeypatch, tmp_path)
        assert ray_address.check_address(None) == "auto"


@pytest.mark.parametrize("text", ["", "nonsense"])
def test_a_note_that_is_no_address_is_left_to_ray(
    text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    noted(text, monkeypatch, tmp_path)
    assert ray_address.check_address(None) == "auto"


def test_an_engine_that_refuses_leaves_no_folder_behind(
    experiment: Experiment, tmp_path: Path
) -> None:
    class Refuses:
        def check(self, setting: Setting) -> None: ...

        def run(self, setting: Setting, work: Any, observer: Any, keep: Any) -> None:
            raise InputError("this process cannot join the Ray cluster")

    for folder in (tmp_path / "out", tmp_path / "compared" / "search-1"):
        with pytest.raises(InputError, match="cannot join"):
            run_experiment(experiment, folder, engine=Refuses())
    assert not [path.name for path in tmp_path.iterdir() if path.name != "ray-tmp"]
    run_experiment(experiment, tmp_path / "out")
    with pytest.raises(InputError, match="cannot join"):
        run_experiment(experiment, tmp_path / "out", engine=Refuses())
    assert (tmp_path / "out" / "config.toml").exists(), "it was there before"


def test_an_address_is_for_ray_only(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is for the engine"):
        cn.run(TABLE, out=tmp_path / "out", address="head:6379")
    with pytest.raises(InputError, match='expected "local" or "ray"'):
        engine_of("slurm")
    with pytest.raises(InputError, match="jobs = 0"):
        engine_of("ray", jobs=0)


# -- what is refused before anything runs ----------------------------------------------------------


def test_without_ray_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    with pytest.raises(InputError, match=r"pip install 'colonnade\[ray\]'"):
        cn.run(TABLE, out=tmp_path / "out", engine="ray")


def test_functions_of_this_process_cannot_be_sent(tmp_path: Path) -> None:
    own = {**TABLE, "methods": [{"algorithm": "splitnn", "encoder": lambda width: None}]}
    experiment = parse_experiment(own, "own")
    with pytest.raises(InputError, match="cannot be sent to other machines"):
        OnRay().check(Setting(experiment, tmp_path))


def test_tracking_on_a_cluster_is_refused_before_the_folder_is_touched(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--track tensorboard: is for runs on this machine"):
        cn.run(TABLE, out=tmp_path / "out", engine="ray", track=["tensorboard"])
    assert not (tmp_path / "out").exists()


class FakeCluster:
    """Two nodes, of which one answers what `fits` says there, or raises it."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.exceptions = answer, EXCEPTIONS

    def remote(self, **_: Any) -> Any:
        return lambda work: self

    def options(self, scheduling_strategy: str) -> Any:
        return SimpleNamespace(remote=lambda order: scheduling_strategy)

    def nodes(self) -> list[dict[str, Any]]:
        names = {"NodeManagerHostname": "lab2", "NodeManagerAddress": "10.0.0.2"}
        return [
            {"Alive": True, "Resources": {"CPU": 2.0}, "NodeID": f"node{i}", **names}
            for i in range(2)
        ]

    def wait(self, answers: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return answers, []

    def get(self, node: str) -> Any:
        if node == "node1" and isinstance(self.answer, Exception):
            raise self.answer
        return self.answer if node == "node1" else ""

    def init(self, **_: Any) -> None:
        raise self.answer


@pytest.fixture
def affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Ray calls "on this node only"; here, its name."""
    name = "ray.util.scheduling_strategies"
    only = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: node)
    for module in ("ray", "ray.util", name):
        monkeypatch.setitem(sys.modules, module, only)


@pytest.mark.usefixtures("affinity")
def test_a_machine_that_does_not_fit_is_named_before_the_first_run(order: Order) -> None:
    reason = "lab2: torch 2.12.0 there, 2.13.0 here. All machines need the same versions."
    with pytest.raises(InputError, match=r"does not fit: lab2: torch 2\.12\.0 there"):
        ray_engine.check_machines(FakeCluster(reason), order)
    with pytest.raises(
        InputError, match=r"lab2 \(10\.0\.0\.2\): Colonnade does not work there: No"
    ):
        ray_engine.check_machines(FakeCluster(Broken()), order)
    ray_engine.check_machines(FakeCluster(""), order)
    ray_engine.check_machines(FakeCluster(Gone("left")), order)  # others do its work


def test_a_cluster_with_another_version_of_ray_is_refused_with_what_to_do() -> None:
    told = RuntimeError("Version mismatch: The cluster was started with:\n  Ray: 2.59.0")
    with pytest.raises(InputError, match=r"Ray: 2\.59\.0\. The command must run on a machine of"):
        ray_engine._join(FakeCluster(told), "10.0.0.1:6379")


# -- what a machine does ---------------------------------------------------------------------------


def test_a_machine_with_other_versions_says_which(order: Order) -> None:
    assert fits(order) == ""
    old = tuple((name, "0.9" if name == "torch" else v) for name, v in order.versions)
    torch = dict(order.versions)["torch"]
    assert f"torch {torch} there, 0.9 here" in fits(replace(order, versions=old))


def test_a_machine_without_a_recording_or_with_other_code_says_so(
    tmp_path: Path, order: Order
) -> None:
    trace = {"name": "recorded", "kind": "trace", "path": str(tmp_path / "gone.npz")}
    lacking = Order.of(parse_experiment({**TABLE, "faults": [trace]}, "small"))
    assert f"faults[0].path: {tmp_path / 'gone.npz'} is not there" in fits(lacking)
    changed = lacking.config.replace(b'"seeds"', b'"sha256":{"mine":"00"},"seeds"')
    assert "the code of mine is not the same" in fits(replace(lacking, config=changed))


def test_rows_come_with_the_order_and_files_go_back_with_the_results(
    experiment: Experiment, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = read_source(experiment.data)
    monkeypatch.setattr("colonnade.data.loading.read_source", None)  # nothing is read any more
    (runs,) = bundles(experiment, grid(experiment))
    *_, first, last = [*train(order, source, runs)]
    assert isinstance(first, Started | float)
    assert isinstance(last, Done)
    assert isinstance(last.outcomes[0], Result)
    assert {"history/splitnn.none.0.jsonl", "ledger/splitnn.none.0.jsonl"} < set(last.files)
    assert "models/splitnn.none.0/server.safetensors" in last.files
    assert "curves/splitnn.none.0.json" in last.files
    assert not [name for name in last.files if name.startswith("live/")]


def test_what_parties_did_with_a_raw_table_comes_back_from_a_machine_that_lacks_the_table(
    tmp_path: Path, order: Order
) -> None:
    lines = [f"{i % 7},{'abc'[i % 3]},{i % 2}" for i in range(40)]
    table = tmp_path / "raw.csv"
    table.write_text("\n".join(["size,colour,y", *lines]) + "\n")
    data = {"path": str(table), "label": "y", "parties": 2}
    raw = parse_experiment({**TABLE, "data": data}, "raw")
    source, (runs,) = read_source(raw.data), bundles(raw, grid(raw))
    table.unlink()
    *_, last = [*train(replace(order, config=Order.of(raw).config), source, runs)]
    assert isinstance(last, Done)
    kept = [name for name in last.files if name.endswith(".preprocessing.json")]
    assert len(kept) == 2


def test_a_machine_that_came_later_and_does_not_fit_ends_the_grid(order: Order) -> None:
    old = replace(order, versions=(("Python", "2.7"), *order.versions[1:]))
    *_, last = [*train(old, None, ())]  # pyright: ignore[reportArgumentType]
    assert isinstance(last, Unfit)
    with pytest.raises(InputError, match=r"does not fit.*Python .* there, 2\.7 here"):
        ray_engine._take((), last, Path(), NoObserver(), lambda *_: None)


# -- what is tried again ---------------------------------------------------------------------------


class FakeRay:
    """Tasks whose streams are known beforehand; an exception in a stream is raised by `get`."""

    exceptions = EXCEPTIONS

    def wait(self, streams: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return streams[:1], streams[1:]

    def get(self, item: Any) -> Any:
        if isinstance(item, Exception):
            raise item
        return item


def outcome_of(experiment: Experiment, *streams: list[Any]) -> tuple[list[Any], int]:
    """What is told of one training whose attempts go so; and how many attempts there were."""
    work: list[Bundle] = bundles(experiment, grid(experiment))
    attempts = iter(streams)
    begun = 0

    def start(_: Bundle) -> Iterator[Any]:
        nonlocal begun
        begun += 1
        return iter(next(attempts))

    tasks, told = Tasks(FakeRay(), start, ray_engine.deque(work)), []
    while tasks.open:
        tasks.begin(2)
        told += [news for _, news in tasks.news()]
    return told, begun


DONE = Done(["a result"], {})  # pyright: ignore[reportArgumentType]


def test_a_training_lost_with_its_machine_is_tried_again_and_counts_once(
    experiment: Experiment,
) -> None:
    begun = Started("one")
    told, attempts = outcome_of(experiment, [begun, 0.5, NodeDied()], [begun, DONE, "late"])
    assert told.count(DONE) == 1
    assert attempts == 2
    assert "late" not in told


def test_a_training_that_ends_its_machines_is_given_up(experiment: Experiment) -> None:
    told, attempts = outcome_of(experiment, *[[NodeDied()]] * MOST["loss"])
    assert attempts == MOST["loss"]
    assert [str(e) for e in told[-1].outcomes] == ["a machine was lost; tried 5 times"]


def test_a_process_that_dies_twice_is_a_failure_with_its_machine(experiment: Experiment) -> None:
    begun = Started("one")
    told, attempts = outcome_of(experiment, [begun, Crashed()], [begun, Crashed()])
    assert attempts == 2
    (error,) = told[-1].outcomes
    assert str(error) == "its process on one died (out of memory?); tried 2 times"


def test_a_task_that_cannot_begin_fails_once_with_the_reason(experiment: Experiment) -> None:
    told, attempts = outcome_of(experiment, [Broken()])
    assert attempts == 1
    assert str(told[-1].outcomes[0]) == "No module named 'colonnade'"


def test_a_cluster_that_is_gone_is_told_with_how_to_go_on(experiment: Experiment) -> None:
    with pytest.raises(ColonnadeError, match="the same command goes on"):
        outcome_of(experiment, [Gone("head left\nand a long trace")])
