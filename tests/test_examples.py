"""The example that compares goals, at its smallest size."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parent.parent / "examples" / "goals"


@pytest.fixture(scope="module")
def compare() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compare", FOLDER / "compare.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "metric"), [("diabetes", "test_r2"), ("breast_cancer", "test_auc")]
)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_split_learning_is_the_same_network_in_one_place(
    compare: ModuleType, name: str, metric: str, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--seeds", "2", "--set", "data.rows=100", "--set", "methods.*.epochs=3"]
    figures = compare.main([str(FOLDER / f"{name}.toml"), *small])
    for seed in range(2):
        split, alone = figures["SplitNN"][seed], figures[compare.ONE_PLACE][seed]
        assert split == pytest.approx(alone, abs=1e-4)
        assert all(-1 < found[seed][metric] <= 1 for found in figures.values())
    assert f"{metric} over 2 seeds" in capsys.readouterr().out
