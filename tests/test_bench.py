"""Benchmarks of crashes, at their smallest size."""

from __future__ import annotations

from io import StringIO

import pytest
from bench import chaos, overhead, storms, timing
from bench.timing import Figure
from rich.console import Console


def test_a_storm_of_the_benchmark_is_one_of_the_suite() -> None:
    assert storms.attempt(1) == (1, "")
    assert storms.attempt_with_two_leaders(1) == (1, "")
    shown = StringIO()
    found = storms.Storms(3, {2: "why"})
    Console(file=shown, width=100).print(storms.table([Figure("storms", "x", 0.0, detail=found)]))
    assert "2" in shown.getvalue()


def test_the_engine_s_overhead_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SMALLEST", True)
    assert all(figure.milliseconds > 0 for figure in overhead.run())


def test_a_disturbed_run_is_within_a_point_explained_or_silent() -> None:
    one = chaos.Chaos("splitnn", undisturbed=[0.97, 0.96])
    assert one.kind(0.951, ()) == "within"
    assert one.kind(0.94, ()) == "silent"
    assert one.kind(0.94, ("client0: 419 of 420 rounds",)) == "silent"
    assert one.kind(0.94, ("warning: client0: 1,120 of 5,490 rounds; …",)) == "explained"
    assert one.kind(0.94, ("the model lacks client1: untrained",)) == "explained"
    one.runs += [(0, 0.951, 5, ()), (1, 0.5, 9, ())]
    shown = StringIO()
    Console(file=shown, width=120).print(chaos.table([Figure("chaos", "x", 0.0, detail=one)]))
    assert "50.0" in shown.getvalue()
