"""Every benchmark runs, at its smallest size, and one that fails costs only its own figures."""

from __future__ import annotations

import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from bench import (
    __main__,
    align,
    autoencoder,
    chaos,
    client_time,
    cvfl,
    dvfl,
    equivalence,
    fedvs,
    field,
    growth,
    large_tables,
    mags,
    overhead,
    processes,
    proximal,
    raw_tables,
    ray_nodes,
    ray_runs,
    restarts,
    serving,
    storms,
    timing,
)
from bench.timing import Figure
from rich.console import Console
from rich.table import Table

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
    "growth": (growth, {"SIDES": (2, 4), "STEPS_OF_ALL": 16, "REPEATS": 1}),
    "equivalence": (equivalence, {"ROUNDS": 10, "POLICIES": ("stale",)}),
    "processes": (processes, {"ROWS": 256, "EPOCHS": 2, "REPEATS": 1, "TRIPS": 5, "SIZE": 800}),
    "restarts": (restarts, {"PARTIES": 2, "KILLS": 1, "EVERY": 0.5}),
    "serve": (serving, {"RATE": 50, "REQUESTS": 60, "REPEATS": 1}),
    "ray": (ray_runs, {"SHORT": 3, "KILLED": {}}),
    "align": (align, {"KEYS": 300, "REPEATS": 1, "NAMES": ("private",)}),
    "chaos": (chaos, {"METHODS": ONE_METHOD, "CALM": 1, "SEEDS": 1, "LEAST": 0}),
    "storms": (storms, {"STORMS": 1, "LED_TWICE": 1}),
    "raw": (raw_tables, {"ROWS": 200, "SEEDS": (0,), "EPOCHS": 1, "CREDIT_ROWS": 500}),
    "tables": (large_tables, {"NUMBERS": 3, "TINY": 200, "LARGE": 400}),
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


def test_a_disturbed_run_is_within_a_point_usual_explained_or_silent() -> None:
    one = chaos.Chaos("splitnn", undisturbed=[0.97, 0.96])
    assert one.kind(0.961, ()) == "within"
    assert one.kind(0.951, ()) == "usual"
    assert one.kind(0.94, ()) == "silent"
    assert one.kind(0.94, ("client0: 419 of 420 rounds",)) == "silent"
    assert one.kind(0.94, ("warning: client0: 1,120 of 5,490 rounds; …",)) == "explained"
    assert one.kind(0.94, ("the model lacks client1: untrained",)) == "explained"
    one.runs += [chaos.Run("splitnn", 0, 0, 0.951, 5), chaos.Run("splitnn", 1, 0, 0.5, 9)]
    assert "50.0" in printed(chaos.table([Figure("chaos", "x", 0.0, detail=one)]))


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
    monkeypatch.setattr(chaos, "SEEDS", 2)
    monkeypatch.setattr(chaos, "federate", federate)
    with pytest.raises(KeyboardInterrupt):
        chaos.run(tmp_path / "runs.jsonl")
    assert len(chaos.kept(tmp_path / "runs.jsonl")) == 3
    left = 3
    figures = chaos.run(tmp_path / "runs.jsonl")
    assert left == 0
    assert [len(figure.detail.runs) for figure in figures] == [2, 2]
    assert figures[0].detail.runs[0].notes == ("a note",)
