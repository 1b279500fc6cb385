"""Examples that come with a program, and those that measure what leaks, at their smallest size."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import colonnade as cn
from colonnade.algorithms import registry
from colonnade.experiments.audit.leakage import DEFENCE
from colonnade.experiments.config import read_experiment
from colonnade.experiments.runner import check

EXAMPLES = Path(__file__).parent.parent / "examples"
FOLDER, CVFL = EXAMPLES / "goals", EXAMPLES / "cvfl"


def program(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def compare() -> ModuleType:
    return program(FOLDER / "compare.py")


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


@pytest.mark.parametrize(
    ("file", "dataset", "missing"),
    [("mnist", "digits", set()), ("credit-card", "breast_cancer", {"fedvs"})],
)
def test_the_leakage_table_has_every_method_and_each_defence_beside_its_method(
    file: str, dataset: str, missing: set[str]
) -> None:
    small = [f"data.dataset={dataset}", "data.rows=200"]
    experiment = read_experiment(EXAMPLES / "leakage" / f"{file}.toml", small)
    check(experiment)  # each method can be built with its keys
    names = [method.name for method in experiment.methods]
    assert all(name.partition(DEFENCE)[0] in names for name in names)
    ours = [kind for kind in registry().values() if kind.__module__.startswith("colonnade.")]
    federated = {kind.name for kind in ours if not kind.settings.pooled}
    assert {method.algorithm for method in experiment.methods} == federated - missing


SMALL = ["--set", "data.dataset=digits", "--set", "data.rows=300", "--set", "methods.*.batch=16"]
SMALL += ["--set", "methods.*.epochs=1", "--set", "seeds=[0]"]


def test_the_seconds_until_a_loss_are_read_off_the_line_between_two_epochs() -> None:
    """And a loss that every model has is reached sooner where nobody waits."""
    seconds = program(CVFL / "seconds.py")
    points = [(100, 2.0), (200, 0.5), (300, 0.1)]
    curve = [{"virtual_seconds": time, "validation_loss": loss} for time, loss in points]
    known = {target: seconds.seconds_until(target, curve) for target in (3, 1, 0.1, 0.05)}
    assert known == {3: 100, 1: pytest.approx(166.67, abs=0.01), 0.1: 300, 0.05: None}
    found = seconds.main([str(CVFL / "async.toml"), *SMALL, "--set", "target=50"])
    assert found["asynchronous"][0] < 0.85 * found["synchronous, steps"][0]


def test_the_loss_of_each_round_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    given = [*SMALL, "--set", "methods.*.encoder=[8]", "--from", "10", "--rounds", "2"]
    program(CVFL / "swing.py").main([str(CVFL / "q.toml"), *given])
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["10", "11", "12"]
    assert all(len(line.split()) == 11 for line in lines), "of what learns and of its mean"


def test_stored_embeddings_end_the_wait_for_a_slow_party(tmp_path: Path) -> None:
    small = ["data.rows=300", "seeds=[0]", "methods.*.epochs=2"]
    outcome = cn.run(read_experiment(CVFL / "stale.toml", small), out=tmp_path / "out", jobs=1)
    seconds = [result.cost["virtual_seconds"] or 0.0 for result in outcome.results]
    quick, held_up, stored = seconds
    assert held_up > 3 * quick
    assert stored < 1.5 * quick
