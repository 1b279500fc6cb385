"""What results, table and report say about noise."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from colonnade.api import run
from colonnade.common.results import Result, read_results
from colonnade.experiments.privacy_grid import privacy_grid
from colonnade.experiments.report import write_report
from colonnade.privacy import accountant

EXPERIMENT = {
    "name": "noise",
    "data": {"dataset": "digits", "rows": 200},
    "faults": [
        {"name": "none"},
        {"name": "later", "kind": "device", "rate": 0.3, "when": "inference"},
    ],
    "methods": [
        {"name": "plain", "algorithm": "splitnn", "epochs": 2},
        {
            "name": "noisy",
            "algorithm": "splitnn",
            "epochs": 2,
            "noise": {"clip": 2.0, "sigma": 4.0},
        },
        {
            "name": "short",
            "algorithm": "splitnn",
            "epochs": 4,
            "noise": {"clip": 1.0, "epsilon": 30.0, "releases": 3},
        },
    ],
}


def test_table_results_and_report_say_what_noise_is_worth(tmp_path: Path) -> None:
    outcome = run(EXPERIMENT, out=tmp_path)
    assert read_results(tmp_path) == outcome.results
    by_method = {result.method: result for result in outcome.results if result.faults == "none"}
    assert by_method["plain"].privacy == {}
    noisy = by_method["noisy"].privacy
    expected = accountant.by_pld(4.0 / (2 * 2.0), releases=2, delta_=1e-5)
    assert noisy["epsilon"] == pytest.approx(expected, rel=0.01)
    counts = {"releases": 2, "train_releases": 2, "validation_releases": 2, "test_releases": 1}
    given = {"delta": 1e-5, "sigma": 4.0, "clip": 2.0}
    assert noisy == {"epsilon": noisy["epsilon"], **given, **counts}
    # Cells that share a training are tested apart: a test row leaves once in each.
    assert [r.privacy for r in outcome.results if r.method == "noisy"] == [noisy, noisy]
    assert any("privacy budget" in note for note in by_method["short"].notes)
    grid = privacy_grid(outcome.results)
    assert grid is not None
    assert [row[0] for row in grid.rows] == ["noisy", "short"]
    assert grid.rows[0][1:] == (f"{expected:.3g}", "1e-05", "4", "2", "2 / 2 / 1")
    assert grid.rows[1][-1] == "3 / 3 / 1"
    page = write_report(tmp_path).read_text()
    assert "differ in one client" in page
    assert "2 / 2 / 1" in page
    assert "training ended early" in page


def test_an_epsilon_without_end_is_shown_as_such_and_no_noise_not_at_all() -> None:
    facts = {"epsilon": None, "delta": 1e-5, "sigma": 0.0, "clip": 1.0, "releases": 1}
    facts |= {"train_releases": 1, "validation_releases": 0, "test_releases": 1}
    one = Result("m", "none", 0, "m", {}, {}, (), facts)
    grid = privacy_grid([one])
    assert grid is not None
    assert grid.rows[0][1] == "∞"
    assert privacy_grid([Result("m", "none", 0, "m", {}, {})]) is None
    assert math.isinf(accountant.epsilon(0.0, 1, 1e-5))
