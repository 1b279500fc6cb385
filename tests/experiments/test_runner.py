"""The runner: complete, deterministic, interruptible, and careful with folders."""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import safetensors.torch
import tomli_w
from torch import Tensor, nn

import colonnade as cn
from colonnade.algorithms import registry
from colonnade.common.curves import read_curves
from colonnade.common.results import read_accuracy_by_batch, read_history, read_ledger, read_results
from colonnade.data import DataSpec
from colonnade.errors import InputError
from colonnade.experiments import run
from colonnade.experiments.config import Experiment, parse_experiment
from colonnade.experiments.runner import bundles, grid, run_experiment
from colonnade.network import StackedNetwork


def table(**more: Any) -> dict[str, Any]:
    return {
        "name": "small",
        "seeds": [0, 1],
        "data": {"dataset": "digits", "rows": 200},
        "faults": [
            {"name": "none"},
            {"name": "clients .3/.5", "kind": "client", "down": 0.3, "up": 0.5},
        ],
        "methods": [
            {"name": "one place", "algorithm": "centralised", "epochs": 2},
            {"name": "SplitNN <zeros>", "algorithm": "splitnn", "epochs": 2},
        ],
        **more,
    }


def small(**more: Any) -> Experiment:
    return parse_experiment(table(**more), "small")


def without_wall(folder: Path) -> str:
    return re.sub(r'"wall_seconds":[0-9.]+', "", (folder / "results.jsonl").read_text())


def test_every_combination_runs_and_leaves_its_files(tmp_path: Path) -> None:
    outcome = run_experiment(small(target=0.05), tmp_path / "out")
    assert [r.key for r in outcome.results] == [
        (method, fault, seed)
        for method in ("one place", "SplitNN <zeros>")
        for fault in ("none", "clients .3/.5")
        for seed in (0, 1)
    ]
    assert read_results(outcome.folder) == outcome.results
    for result in outcome.results:
        assert 0 <= (result.metrics["test_accuracy"] or 0) <= 1
        pictured = read_curves(outcome.folder, result.run)
        assert pictured is not None
        right = sum(row[i] for i, row in enumerate(pictured.confusion))
        assert right / pictured.rows == pytest.approx(result.metrics["test_accuracy"])
        curve = read_history(outcome.folder, result.run)
        assert [point["epoch"] for point in curve] == [1, 2]
        last_decision = 4 * 3 * 4 if result.method != "one place" else 0
        assert curve[-1]["bytes"] == (result.cost["bytes"] or 0) - last_decision
        ledger = read_ledger(outcome.folder, result.run)
        trained = [row for row in ledger if row.phase == "training"]
        assert sum(row.bytes for row in trained) == result.cost["bytes"]
        assert sum(row.messages for row in trained) == result.cost["messages"]
        assert result.cost["rounds_to_target"] == curve[0]["round"]
    models = outcome.folder / "models" / outcome.results[-1].run
    assert {p.stem for p in models.iterdir()} == {
        "server",
        "client0",
        "client1",
        "client2",
        "client3",
    }
    assert safetensors.torch.load_file(models / "client0.safetensors").keys() >= {
        "encoder.0.weight"
    }


def test_bytes_without_faults_are_what_the_algorithm_says(tmp_path: Path) -> None:
    """Each client and each row: one embedding there, one gradient back, 16 numbers of 4 bytes."""
    experiment = small(seeds=[0], faults=[{"name": "none"}])
    result = run_experiment(experiment, tmp_path / "out").results[-1]
    rows, epochs, clients, decision = 180, 2, 4, 3 * 4
    embeddings = rows * epochs * clients * 16 * 4
    assert result.cost["bytes"] == 2 * embeddings + epochs * clients * decision


def test_the_same_seed_gives_byte_identical_results_in_one_process_or_two(tmp_path: Path) -> None:
    run_experiment(small(), tmp_path / "one", jobs=1)
    run_experiment(small(), tmp_path / "two", jobs=2)
    assert without_wall(tmp_path / "one") == without_wall(tmp_path / "two")
    for part in ("history", "ledger"):
        for path in (tmp_path / "one" / part).iterdir():
            assert path.read_bytes() == (tmp_path / "two" / part / path.name).read_bytes()


def test_a_second_call_goes_on_and_does_not_repeat_what_is_done(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    run_experiment(small(), folder)
    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    (folder / "results.jsonl").write_text(
        "".join(lines[:3]) + lines[3][:20]
    )  # cut off while writing
    begun: list[tuple[int, int]] = []

    class Watch:
        def begin(self, total: int, done: int) -> None:
            begun.append((total, done))

        def advance(self, run: str, share: float) -> None: ...
        def finish(self, run: str) -> None: ...

    outcome = run_experiment(small(), folder, observer=Watch())
    assert begun == [(8, 3)]
    assert len(outcome.results) == 8
    untouched = [json.loads(line) for line in lines[:3]]
    assert [json.loads(msgspec.json.encode(r)) for r in outcome.results[:3]] == untouched


def test_two_interruptions_in_the_middle_of_a_line_lose_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    run_experiment(small(), folder)
    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    (folder / "results.jsonl").write_text(lines[0] + lines[1][:30])

    class Impatient:
        def begin(self, total: int, done: int) -> None: ...
        def advance(self, run: str, share: float) -> None: ...
        def finish(self, run: str) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiment(small(), folder, observer=Impatient())
    assert len(read_results(folder)) == 2
    assert len(run_experiment(small(), folder).results) == 8


def test_a_mistake_in_a_users_model_is_told_for_its_run_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    class Broken(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            if self.training:
                raise RuntimeError("shapes and sorrows")
            return super().forward(input)

    experiment = small(seeds=[0], faults=[{"name": "none"}])
    broken = msgspec.structs.replace(
        experiment.methods[1], name="broken", encoder=lambda width: Broken(width, 4)
    )
    outcome = run_experiment(
        msgspec.structs.replace(experiment, methods=(broken, *experiment.methods)), tmp_path / "out"
    )
    assert len(outcome.results) == 2
    assert "RuntimeError: shapes and sorrows" in outcome.failures["broken · none · seed 0"]


def test_a_loss_that_is_no_number_ends_the_run_also_without_validation(tmp_path: Path) -> None:
    methods = [{"algorithm": "splitnn", "lr": 1e20, "epochs": 3, "optimizer": "sgd"}]
    data = {"dataset": "wine", "validation": 0.0}
    outcome = run_experiment(small(methods=methods, data=data, seeds=[0]), tmp_path / "out")
    assert all("try a smaller lr" in reason for reason in outcome.failures.values())
    assert len(outcome.failures) == 2


def test_another_experiments_folder_is_left_alone(tmp_path: Path) -> None:
    run_experiment(small(seeds=[0]), tmp_path / "out")
    before = (tmp_path / "out" / "results.jsonl").read_bytes()
    with pytest.raises(InputError, match="holds another experiment"):
        run_experiment(small(seeds=[1]), tmp_path / "out")
    assert (tmp_path / "out" / "results.jsonl").read_bytes() == before
    assert len(run_experiment(small(seeds=[1]), tmp_path / "out", fresh=True).results) == 4


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(InputError, match="not empty"):
        run_experiment(small(), tmp_path)


def test_a_run_that_fails_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    methods = [
        {"name": "waits", "algorithm": "splitnn", "epochs": 1, "missing": "wait"},
        {"name": "goes on", "algorithm": "splitnn", "epochs": 1},
    ]
    gone = [{"name": "gone", "kind": "client", "down": 0.3, "up": 0.0}]
    outcome = run_experiment(small(methods=methods, faults=gone, seeds=[0]), tmp_path / "out")
    assert [r.method for r in outcome.results] == ["goes on"]
    assert "client" in outcome.failures["waits · gone · seed 0"]
    page = outcome.report().read_text()
    assert "Failed: 1 of 2 planned runs. The same command tries them again." in page
    assert "waits · gone · seed 0: " in page
    assert "Unfinished" not in page


def test_what_can_be_known_to_be_wrong_is_said_before_anything_is_written(tmp_path: Path) -> None:
    bad = [{"name": "cnn on a table", "algorithm": "splitnn", "encoder": "cnn"}]
    experiment = small(methods=bad, data={"dataset": "wine"})
    with pytest.raises(InputError, match=r"methods\[0\] \(cnn on a table\): encoder"):
        run_experiment(experiment, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_delays_of_nobody_are_an_error(tmp_path: Path) -> None:
    """A misspelt party would silently take no time."""
    late = small(network={"delays": {"lag": {"clients": 0.1, "client33": 2.0}}})
    with pytest.raises(InputError, match=r"network\.delays\.lag\.client33: no party or group"):
        run_experiment(late, tmp_path / "out")


def test_names_that_look_alike_as_files_get_files_of_their_own() -> None:
    methods = [{"name": name, "algorithm": "centralised"} for name in ("a b", "a-b", "A.B", "ä")]
    runs = grid(small(methods=methods))
    assert len({run.name for run in runs}) == len(runs) == 16


def test_python_takes_a_table_a_file_or_an_experiment(tmp_path: Path) -> None:
    one = cn.run(table(seeds=[0]), out=tmp_path / "one")
    path = tmp_path / "small.toml"
    path.write_text(small(seeds=[0, 1]).toml())
    two = cn.run(path, out=tmp_path / "two", set=["seeds=[0]"])
    assert [r.metrics for r in one.results] == [r.metrics for r in two.results]
    assert one.report().read_text().startswith("<!DOCTYPE html>")


def test_delays_show_up_as_virtual_seconds(tmp_path: Path) -> None:
    network = {"delays": {"compute": 0.5, "latency": 0.25}}
    experiment = small(network=network, seeds=[0], faults=[{"name": "none"}])
    one_place, split = run_experiment(experiment, tmp_path / "out").results
    rounds = split.cost["rounds"] or 0
    assert split.cost["virtual_seconds"] >= rounds * 2 * 0.75  # pyright: ignore[reportOptionalOperand]
    assert one_place.cost["virtual_seconds"] == 0


# -- what trains the same models trains them once -------------------------------------------------

LINKS = {"kind": "communication", "rate": 0.4}
WHEN = [
    {"name": f"links {when}", "when": when, **LINKS} for when in ("training", "inference", "always")
]
SHARED: dict[str, Any] = {
    "seeds": [0],
    "data": {"dataset": "digits", "rows": 150, "parties": 9, "split": "patches"},
    "faults": [{"name": "none"}, *WHEN],
    "methods": [
        {"algorithm": "mags", "method": name, "epochs": 2} for name in ("MVFL", "MVFL-G2", "VFL")
    ],
}


def titles(experiment: Experiment) -> list[set[tuple[str, str]]]:
    """Who is trained together: methods and faults."""
    return [
        {run.key(experiment)[:2] for run in runs} for runs in bundles(experiment, grid(experiment))
    ]


def test_only_runs_that_train_the_same_models_are_trained_together() -> None:
    """Gossip and faults of predictions come later; faults of the training, seeds and aggregators do
    not."""
    two = [{"algorithm": "mags", "method": name, "epochs": 2} for name in ("MVFL", "MVFL-G2")]
    calm = {(method, fault) for method in ("MVFL", "MVFL-G2") for fault in ("none", "links later")}
    hurt = {(method, "links training") for method in ("MVFL", "MVFL-G2")}
    always = {(method, "always") for method in ("MVFL", "MVFL-G2")}
    faults = [
        {"name": "none"},
        {"name": "links training", **LINKS},
        {"name": "links later", "when": "inference", **LINKS},
        {"name": "always", "when": "always", **LINKS},
    ]
    experiment = small(**{**SHARED, "faults": faults, "methods": two})
    assert titles(experiment) == [calm, hurt, always]
    seeds = small(**{**SHARED, "faults": faults, "methods": two, "seeds": [0, 1]})
    assert titles(seeds) == [calm, calm, hurt, hurt, always, always]
    assert all(len({run.seed for run in runs}) == 1 for runs in bundles(seeds, grid(seeds)))
    others = [{**two[0], "name": f"{key} {value}", key: value} for key, value in DIFFERENT]
    assert [len(one) for one in titles(small(**{**SHARED, "methods": [two[0], *others]}))] == [
        size for _ in range(1 + len(others)) for size in (2, 1, 1)
    ]


DIFFERENT: list[tuple[str, Any]] = [
    ("depth", 1),
    ("epochs", 3),
    ("lr", 0.01),
    ("lr", {"devices": 0.01, "aggregators": 0.01}),
    ("imputation", "mean"),
]


def test_trained_once_is_the_same_as_trained_separately(tmp_path: Path) -> None:
    run_experiment(small(**SHARED), tmp_path / "together")
    lines = without_wall(tmp_path / "together").splitlines()
    assert len(lines) == 12
    for m, method in enumerate(SHARED["methods"]):
        for f, fault in enumerate(SHARED["faults"]):
            folder = tmp_path / f"alone {m} {f}"
            (alone,) = run_experiment(
                small(**{**SHARED, "methods": [method], "faults": [fault]}), folder
            ).results
            assert lines[4 * m + f] == without_wall(folder).strip()
            for part in ("history", "ledger"):
                name = f"{part}/{alone.run}.jsonl"
                assert (folder / name).read_bytes() == (tmp_path / "together" / name).read_bytes()
            for path in (folder / "models" / alone.run).iterdir():
                one = tmp_path / "together" / "models" / alone.run / path.name
                assert one.read_bytes() == path.read_bytes()


def test_a_half_finished_bundle_goes_on_with_the_other_half(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    experiment = small(**SHARED)
    run_experiment(experiment, folder)
    whole = without_wall(folder)
    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    kept = [lines[i] for i in (0, 5, 7, 10)]  # one of each bundle but one
    (folder / "results.jsonl").write_text("".join(kept))
    outcome = run_experiment(experiment, folder)
    assert len(outcome.results) == 12
    assert without_wall(folder) == whole
    again = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    assert [again[i] for i in (0, 5, 7, 10)] == kept, "not trained again"


def test_a_training_that_fails_fails_all_its_runs_and_no_others(tmp_path: Path) -> None:
    hot = {"algorithm": "mags", "epochs": 2, "optimizer": "sgd", "lr": 1e20}
    methods = [
        {**hot, "name": "hot", "method": "MVFL"},
        {**hot, "name": "hot too", "method": "MVFL-G2"},
        {"algorithm": "mags", "name": "cool", "method": "MVFL", "epochs": 1},
    ]
    faults = SHARED["faults"][:3:2]
    experiment = small(**{**SHARED, "methods": methods, "faults": faults})
    outcome = run_experiment(experiment, tmp_path / "out")
    assert [r.key[:2] for r in outcome.results] == [("cool", "none"), ("cool", "links inference")]
    assert set(outcome.failures) == {
        f"{method} · {fault} · seed 0"
        for method in ("hot", "hot too")
        for fault in ("none", "links inference")
    }
    assert all("try a smaller lr" in reason for reason in outcome.failures.values())


def test_a_catastrophe_can_be_seen_in_the_course_of_the_test_and_in_the_report(
    tmp_path: Path,
) -> None:
    lost = {"name": "lost", "kind": "catastrophe", "at": 2, "rate": 1.0, "recovery": 2}
    data = {"dataset": "digits", "rows": 400, "split": "patches"}
    method = {"algorithm": "mags", "epochs": 6, "lr": 1e-2}
    faults = [{"name": "none"}, {**lost, "when": "inference"}]
    plan = small(data=data, seeds=[0], methods=[method], faults=faults)
    outcome = run_experiment(plan, tmp_path)
    calm, struck = (read_accuracy_by_batch(tmp_path, r.run) for r in outcome.results)
    accuracies = [row["test_accuracy"] for row in struck]
    assert [row["batch"] for row in struck] == list(range(6))  # 359 rows in batches of 64
    assert len(calm) == 1
    assert min(accuracies[:2]) > 0.6
    assert accuracies[2] == pytest.approx(0.1, abs=0.02)  # nobody answers: a guess
    assert min(accuracies[4:]) > 0.6
    assert "While predicting" in outcome.report().read_text()


def test_a_test_that_fails_does_not_take_those_of_the_same_models_with_it(tmp_path: Path) -> None:
    lost = {"name": "lost", "kind": "catastrophe", "at": 0, "rate": 1.0, "when": "inference"}
    method = {"algorithm": "splitnn", "missing": "wait", "epochs": 1}
    plan = small(seeds=[0], methods=[method], faults=[{"name": "none"}, lost])
    outcome = run_experiment(plan, tmp_path)
    assert [result.faults for result in outcome.results] == ["none"]
    assert "is out of reach" in outcome.failures["splitnn · lost · seed 0"]


def test_wall_seconds_count_the_run_and_not_what_the_process_does_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading the data and torch's first gradient happen once in a process, before whichever run
    is the first there."""
    idle = 0.0

    def after(seconds: float, call: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*args: Any) -> Any:
            nonlocal idle
            idle += seconds
            return call(*args)

        return slow

    monkeypatch.setattr(run, "load", after(1000, run.load))
    monkeypatch.setattr(run, "warm_up", after(1000, run.warm_up))
    monkeypatch.setattr(run.time, "perf_counter", lambda: idle)
    for result in run_experiment(small(seeds=[0]), tmp_path / "out").results:
        assert result.cost["wall_seconds"] == 0
    assert idle >= 2000


def test_a_run_imports_nothing_while_its_clock_goes(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from colonnade.experiments import run, runner;"
        "from colonnade.experiments.config import read_experiment;"
        "experiment = read_experiment(Path('small.toml')); run.load(experiment.data, 0);"
        "run.warm_up(); before = set(sys.modules);"
        "first = runner.grid(experiment)[0].spec(experiment);"
        "run.train_and_test(experiment, [first], Path('out'));"
        "print(*sorted(set(sys.modules) - before))"
    )
    (tmp_path / "small.toml").write_text(tomli_w.dumps(table(methods=[{"algorithm": "splitnn"}])))
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("encoder", nn.Linear(4, 8), r"got a module \(Linear\), expected a factory"),
        ("head", nn.Linear(4, 3), r"got a module \(Linear\), expected a factory"),
        ("encoder", lambda: nn.Linear(4, 8), "the factory cannot be called with 1 number"),
        ("head", lambda width: nn.Linear(width, 3), "the factory cannot be called with 2 number"),
        ("encoder", 32, "got 32, expected a list of widths"),
        ("head", "wide", "got 'wide', expected a list of widths"),
    ],
)
def test_what_is_no_factory_is_an_input_error_with_an_example(
    tmp_path: Path, key: str, value: Any, says: str
) -> None:
    method = {"name": "own", "algorithm": "splitnn", key: value}
    settings = registry()["splitnn"].settings(**method)
    experiment = Experiment(name="own", data=DataSpec(dataset="wine"), methods=(settings,))
    with pytest.raises(InputError, match=f"{key}: {says}") as caught:
        cn.run(experiment, out=tmp_path / "typed")
    assert f"{key}=lambda width" in str(caught.value)
    if callable(value):
        with pytest.raises(InputError, match=f"{key}: {says}"):
            cn.run(table(methods=[method]), out=tmp_path / "table")


def test_a_table_may_hold_a_factory(tmp_path: Path) -> None:
    method = {"algorithm": "splitnn", "epochs": 1, "encoder": lambda width: nn.Linear(width, 5)}
    outcome = cn.run(table(methods=[method], seeds=[0]), out=tmp_path / "out", jobs=2)
    assert len(outcome.results) == 2


def test_labels_that_look_like_amounts_are_told_before_the_first_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = ["a,b,age", *(f"{i},{i % 7},{18 + i % 40}" for i in range(200))]
    (tmp_path / "own.csv").write_text("\n".join(lines) + "\n")
    data = {"path": str(tmp_path / "own.csv"), "label": "age"}
    one = [{"algorithm": "splitnn", "epochs": 1}]
    outcome = cn.run(table(data=data, methods=one), out=tmp_path / "out", jobs=2)
    told = [r.getMessage() for r in caplog.records if "whole numbers" in r.getMessage()]
    assert len(told) == 1
    assert all(told[0] in result.notes for result in outcome.results)


def test_a_run_on_many_rows_leaves_no_models_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "LARGE", 0)
    gc.collect()
    gc.disable()
    try:
        before = networks()  # which fixtures of other tests hold
        run_experiment(small(), tmp_path / "out")
        left = networks()
    finally:
        gc.enable()
    assert len(left) == len(before)


def networks() -> list[StackedNetwork]:
    return [one for one in gc.get_objects() if type(one) is StackedNetwork]
