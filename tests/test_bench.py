"""Every benchmark runs, at its smallest size, and one that fails costs only its own figures."""

from __future__ import annotations

import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tomli_w
import torch
from bench import (
    __main__,
    align,
    audit,
    autoencoder,
    chaos,
    client_time,
    clinics,
    cvfl,
    dvfl,
    equivalence,
    fedvs,
    field,
    growth,
    growth_page,
    large_tables,
    links,
    mags,
    overhead,
    overlap,
    processes,
    proximal,
    raw_tables,
    ray_nodes,
    ray_runs,
    restarts,
    serving,
    stored_parts,
    storms,
    timing,
)
from bench.growth_points import Point
from bench.timing import Figure
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file, save_file
from tests.command_line import colonnade

from colonnade.common.results import Result

ONE_METHOD = {"splitnn": {"algorithm": "splitnn", "epochs": 2}}
# What makes a benchmark small: constants of its module.
SMALL: dict[str, tuple[ModuleType, dict[str, Any]]] = {
    "mags": (mags, {"ROWS": 128, "VALIDATION": 64, "DOUBLE_STEPS": 1, "SINGLE_STEPS": 1}),
    "autoencoder": (autoencoder, {"ROWS": 640, "CHECKED_STEPS": 1}),
    "cvfl": (cvfl, {"STEPS": 1}),
    "dvfl": (
        dvfl,
        {
            "ROWS": 128,
            "VALIDATION": 14,
            "EPOCHS": (1, 2, 2),
            "EXACT_EPOCHS": (1, 2, 1),
            "ROUNDS_PER_TURN": (1, 1, 2),
        },
    ),
    "client": (client_time, {"ROWS": 600, "REPEATS": 1}),
    "overhead": (overhead, {"ROWS": 640}),
    "field": (field, {"ROWS": 16, "INNER": 300, "COLUMNS": 4}),
    "fedvs": (fedvs, {"CLIENTS": 5, "ROWS": 512, "PARTITIONS": (2,), "CHOSEN": 2}),
    "proximal": (proximal, {"ROWS": 64, "ROWS_OF_SCIPY": 4}),
    "links": (links, {"SIDES": (2, 4), "STEPS_OF_ALL": 16, "REPEATS": 1}),
    "equivalence": (equivalence, {"ROUNDS": 10, "POLICIES": ("stale",)}),
    "processes": (processes, {"ROWS": 256, "EPOCHS": 2, "REPEATS": 1, "TRIPS": 5, "SIZE": 800}),
    "restarts": (restarts, {"PARTIES": 2, "KILLS": 1, "EVERY": 0.5}),
    "serve": (serving, {"RATE": 50, "REQUESTS": 60, "REPEATS": 1}),
    "clinics": (clinics, {"REPEATS": 1, "EPOCHS": 1}),
    "ray": (ray_runs, {"SHORT": 3, "KILLED": {}}),
    "audit": (audit, {"DIGITS": ("FDML",), "MNIST": (), "REPEATS": 1, "EPOCHS": 1}),
    "align": (align, {"KEYS": 300, "EMPTY": 20, "REPEATS": 1, "NAMES": ("private",)}),
    "overlap": (
        overlap,
        {
            "SHARES": (0.7,),
            "SEEDS": (0,),
            "SETS": {"digits": {"rows": 300}},
            "EPOCHS": 1,
            "IN_PROCESSES": (True,),
        },
    ),
    "chaos": (chaos, {"METHODS": ONE_METHOD, "CALM": 1, "SEEDS": 1, "LEAST": 0}),
    "storms": (storms, {"STORMS": 1, "LED_TWICE": 1}),
    "raw": (raw_tables, {"ROWS": 200, "SEEDS": (0,), "EPOCHS": 1, "CREDIT_ROWS": 500}),
    "tables": (large_tables, {"NUMBERS": 3, "TINY": 200, "LARGE": 400}),
    "growth": (
        growth,
        {
            "LAST": {
                "parties": dict.fromkeys((growth.SPLITNN, growth.GRID, growth.FEDVS), 16),
                "rows": {growth.SPLITNN: 10_000},
                "runs": {growth.RUNS: 4},
            }
        },
    ),
}


def printed(table: Table) -> str:
    shown = StringIO()
    Console(file=shown, width=120).print(table)
    return shown.getvalue()


@pytest.mark.parametrize("name", __main__.BENCHMARKS)
def test_a_benchmark_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "ray" and (reason := ray_nodes.unavailable()):
        pytest.skip(reason)
    module, constants = SMALL[name]
    for constant, value in constants.items():
        monkeypatch.setattr(module, constant, value)
    monkeypatch.setattr(timing, "SMALLEST", name != "dvfl")  # its loops have known lengths
    with torch.compiler.set_stance("force_eager"):  # compiling would take half a minute each
        figures = __main__.BENCHMARKS[name]()
    assert figures
    assert all(printed(table) for table in __main__.tables(figures))


def test_a_benchmark_that_fails_costs_only_its_own_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> list[Figure]:
        raise ZeroDivisionError("no steps were made")

    works = lambda: [Figure("works", "one variant", 12.5)]  # noqa: E731
    monkeypatch.setattr(__main__, "BENCHMARKS", {"fails": fails, "works": works})
    monkeypatch.setattr(sys, "argv", ["bench"])
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    shown = capsys.readouterr()
    assert ended.value.code == 1
    assert "12.5" in shown.out
    assert "no steps were made" in shown.err


def test_a_storm_of_the_benchmark_is_one_of_the_suite() -> None:
    assert storms.attempt(1) == (1, "")
    assert storms.attempt_with_two_leaders(1) == (1, "")
    found = storms.Storms(3, {2: "why"})
    assert "2" in printed(storms.table([Figure("storms", "x", 0.0, detail=found)]))


def test_a_disturbed_run_is_within_a_point_or_lower_and_named_or_not() -> None:
    """Whether a run names anybody does not depend on how low it is."""
    few, many = "client0: 419 of 420 rounds", "warning: client0: 1,120 of 5,490 rounds; …"
    lacks = "the model lacks client1: untrained"
    one = chaos.Chaos("splitnn", undisturbed=[0.97, 0.96])
    runs = [(0.961, ()), (0.951, ()), (0.951, (many,)), (0.94, (few,)), (0.93, (lacks,))]
    one.runs += [chaos.Run("splitnn", i, 0, x, i, notes) for i, (x, notes) in enumerate(runs)]
    one.runs[:2] = [replace(run, apart=x) for run, x in zip(one.runs, (1e-9, 0.002), strict=False)]
    assert [run.seed for run in one.lower] == [1, 2, 3, 4]
    assert [run.seed for run in one.usual] == [1, 2]
    assert [run.seed for run in one.runs if run.named] == [2, 4]
    cells = chaos._row(one)
    assert dict(zip(chaos.HEADERS, cells[1:], strict=True)) == {
        "runs": "5", "kills (median)": "0 – 4 (2)", "undisturbed": "97.0 (96.0 – 97.0)",
        "median": "95.1", "worst": "93.0", "within": "1", "lower, named": "2",
        "lower, not named": "2", "usual": "2", "one model": "1 of 2",
    }  # fmt: skip
    assert "93.0" in printed(chaos.table([Figure("chaos", "x", 0.0, detail=one)]))


def test_the_worst_device_counts_and_one_without_a_model_is_never_within_a_point() -> None:
    why = "client2 has no part of the model of its neighbours: untrained"
    good, bad = (Result("m", "f", 0, "r", {"test_accuracy": x}, {}) for x in (0.97, 0.9))
    none = Result("m", "f", 0, "r", {}, {}, (why,))
    assert chaos.judged(chaos.Run("mags", 0, 0), [good, bad]).accuracy == 0.9
    run = chaos.judged(chaos.Run("mags", 0, 0), [good, none])
    study = chaos.Chaos("mags", [0.97], [run])
    assert (run.accuracy, run.without, run.notes, run.named) == (0.97, 1, (why,), True)
    assert study.lower == [run]
    assert not study.usual


@pytest.mark.parametrize("algorithm", ["splitnn", "dvfl", "mags"])
def test_stored_parts_that_are_not_those_of_the_result_are_found(
    algorithm: str, tmp_path: Path
) -> None:
    """The chaos benchmark tells parts of different models from a model that learnt less."""
    data = {"dataset": "digits", "parties": 2, "split": "bands", "rows": 300}
    method = {"algorithm": algorithm, "epochs": 2}
    if algorithm == "dvfl":  # whose encoders are of an earlier version than the model
        method |= {"aggregators": 1, "client_epochs": 1, "aggregator_epochs": 1}
    source = tmp_path / "two.toml"
    source.write_text(tomli_w.dumps({"name": "two", "data": data, "method": method}))
    done = colonnade("up", str(source), "--out", "out", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert stored_parts.disagreement(tmp_path / "out") < chaos.EQUAL
    [part] = (tmp_path / "out" / "client1" / "models").glob("*/client1.safetensors")
    other = {name: 3 * tensor for name, tensor in load_file(part).items()}
    save_file(other, part)
    assert stored_parts.disagreement(tmp_path / "out") > chaos.EQUAL


def test_runs_of_the_chaos_benchmark_are_kept_and_not_done_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An interrupted table goes on where it was."""
    left = 3

    def federate(wanted: chaos.Run) -> chaos.Run:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        return replace(wanted, accuracy=0.9, kills=5, notes=("a note",))

    monkeypatch.setattr(chaos, "METHODS", {"one": {}, "other": {}})
    monkeypatch.setattr(chaos, "CALM", 1)
    monkeypatch.setattr(chaos, "federate", federate)
    with pytest.raises(KeyboardInterrupt):
        chaos.run(tmp_path / "runs.jsonl", plan=chaos.Plan(seeds=2))
    assert len(chaos.kept(tmp_path / "runs.jsonl")) == 3
    left = 3
    figures = chaos.run(tmp_path / "runs.jsonl", plan=chaos.Plan(seeds=2))
    assert left == 0
    assert [len(figure.detail.runs) for figure in figures] == [2, 2]
    assert figures[0].detail.runs[0].notes == ("a note",)


def point(size: int, seconds: float, held: int, batches: int = 2) -> Point:
    traffic = {"messages": 4 * size, "bytes": 800 * size, "commit": "abc1234"}
    return Point("method", "parties", size, batches, seconds, 0.1, held, **traffic)


def test_between_the_marks_of_the_page_of_growth_is_only_what_its_program_writes() -> None:
    page = (Path(__file__).parents[1] / "docs" / "explanation" / "growth.md").read_text()
    between = page.split(growth_page.BEGIN)[1].split(growth_page.END)[0]
    titles = [title for title, _ in growth_page.TABLES.values()]
    written = ("|", "Measured at commit ", "**Extrapolated, not measured**: ", *titles)
    assert all(part.startswith(written) for part in between.strip().split("\n\n"))


def test_growth_is_fitted_to_the_largest_sizes_and_told_with_its_spread() -> None:
    points = [point(n, 2e-6 * n**2 if n > 8 else 1.0, 10_000 * n) for n in (4, 16, 64, 256)]
    [curve] = growth.curves(points)
    assert curve.time.exponent == pytest.approx(2.0)
    assert curve.held.low == pytest.approx(1.0)
    assert curve.sent.high == pytest.approx(1.0)
    assert curve.per_unit(lambda p: p.sent) == pytest.approx(400)
    text = growth_page.tables([curve])
    assert "at commit abc1234" in text
    assert "| 2.00 (2.00 – 2.00) |" in text
    assert "10 GB" in text  # of a million parties
    assert growth_page.far(curve, lambda p: p.time) == pytest.approx(1e6)
    page = f"before {growth_page.BEGIN} old {growth_page.END} after"
    assert "old" not in growth_page.updated(page, text)
    assert growth_page.updated(page, text).endswith("after")


def test_a_cost_that_is_mostly_fixed_is_extrapolated_by_what_was_added() -> None:
    [curve] = growth.curves([point(n, 1.0, 10**8 + 100 * n) for n in (4, 16, 64)])
    assert curve.held.exponent < 0.01
    assert growth_page.far(curve, lambda p: p.held) == pytest.approx(2e8, rel=1e-3)


def test_points_of_growth_are_kept_and_not_measured_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[int] = []

    def measured(family: growth.Family, quantity: str, size: int) -> Point:
        asked.append(size)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return point(size, 1.0 * size, size)

    monkeypatch.setattr(growth, "LAST", {"parties": {growth.Family("method", "splitnn"): 64}})
    monkeypatch.setattr(growth, "measured", measured)
    with pytest.raises(KeyboardInterrupt):
        growth.run(tmp_path / "points.jsonl")
    figures = growth.run(tmp_path / "points.jsonl")
    assert asked == [4, 16, 16, 64]
    assert [one.size for one in figures[0].detail.points] == [4, 16, 64]
    page, picture = tmp_path / "page.md", tmp_path / "growth.png"
    page.write_text(f"{growth_page.BEGIN}{growth_page.END}")
    growth_page.main(str(tmp_path / "points.jsonl"), str(page), str(picture))
    assert "| method | 64 |" in page.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")
