"""Algorithms from outside the package: by `plugins` in a file, by entry points, from Python."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import colonnade as cn
from colonnade import algorithms
from colonnade.algorithms import installed, register, registered, registry
from colonnade.common.user_code import find_module
from colonnade.errors import InputError
from colonnade.experiments.config import parse_experiment, read_experiment
from colonnade.experiments.runner import run_experiment
from colonnade.federation.agreement.federation_file import parse_federation, read_federation
from colonnade.learning.algorithm import Algorithm

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_algorithm"
SMALL = ("data.rows=200", "seeds=[0]", "methods.*.epochs=1")

# The kit of the examples, as a user's own pytest runs it.
TestAverage = find_module("test_average", "example", EXAMPLE).TestAverage
TestVeiled = find_module("test_veiled", "example", EXAMPLE).TestVeiled
Average: type[Algorithm] = TestAverage.algorithm


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins of one test are not those of another."""
    monkeypatch.setattr(algorithms, "_plugins", {})


def experiment(**more: Any) -> dict[str, Any]:
    return {
        "name": "own",
        "data": {"dataset": "digits", "rows": 200},
        "methods": [{"algorithm": "average", "epochs": 1}],
        **more,
    }


def test_the_example_runs_in_worker_processes_that_know_the_plugin(tmp_path: Path) -> None:
    own = read_experiment(EXAMPLE / "experiment.toml", SMALL)
    outcome = run_experiment(own, tmp_path / "out", jobs=2)
    assert not outcome.failures
    assert [(r.method, r.faults) for r in outcome.results][:2] == [
        ("average", "none"),
        ("average", "clients .3/.1"),
    ]
    alone = run_experiment(own, tmp_path / "alone", jobs=1)
    for one, other in zip(outcome.results, alone.results, strict=True):
        assert one.metrics == other.metrics


def test_the_resolved_file_finds_the_plugin_from_any_folder() -> None:
    own = read_experiment(EXAMPLE / "experiment.toml", SMALL)
    assert parse_experiment(own.table(), "config.toml") == own
    assert own.table()["code"] == str(EXAMPLE)


def test_without_the_plugin_the_algorithm_is_not_known() -> None:
    with pytest.raises(InputError, match=r"methods\[0\].algorithm: 'average' is not known"):
        parse_experiment(experiment(), "own.toml")


def test_every_process_of_a_federation_imports_the_plugin_and_all_agree_on_its_name() -> None:
    fed = read_federation(EXAMPLE / "federation.toml")
    assert fed.members == ("client0", "client1", "client2", "client3", "server")
    assert "plugins" in fed.digests
    assert "code" not in fed.digests, "where the module lies is each party's own affair"
    assert parse_federation(fed.table(), "out/federation.toml").hash == fed.hash


ABSTRACT = "class Half(Algorithm):\n    name = 'half'\n"
IMPORTS = "from colonnade.learning import Algorithm\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, r'plugins: "(\w+)": there is no module \'\1\', neither in .* nor installed'),
        ("import no_such_thing\n", "cannot be imported: ModuleNotFoundError: No module named"),
        ("def broken(:\n", "cannot be imported: SyntaxError"),
        ("raise RuntimeError('not today')\n", "cannot be imported: RuntimeError: not today"),
        ("raise SystemExit(3)\n", "cannot be imported: SystemExit: 3"),
        ("x = 1\n", "defines no algorithm; expected a subclass of colonnade"),
        (IMPORTS, "defines no algorithm"),
        (IMPORTS + ABSTRACT, "Half: lacks build, predict, train"),
        (IMPORTS + ABSTRACT + "    exchanges = ()\n", "Half: declare each exchange as an attr"),
        (
            "from colonnade.algorithms.splitnn import SplitNN\n"
            "class Mine(SplitNN):\n    name = 'dvfl'\n",
            r"Mine has the name 'dvfl', which is that of colonnade.algorithms.dvfl.DVFL; give it",
        ),
    ],
)
def test_a_plugin_that_cannot_be_used_is_an_error_that_names_it(
    tmp_path: Path, request: pytest.FixtureRequest, text: str | None, says: str
) -> None:
    name = f"plugin_{crc32(request.node.name.encode())}"
    if text is not None:
        (tmp_path / f"{name}.py").write_text(text)
    with pytest.raises(InputError, match=says) as caught:
        parse_experiment(experiment(plugins=[name]), "own.toml", tmp_path)
    assert str(caught.value).startswith(f'own.toml: plugins: "{name}": ')


def test_a_file_that_hides_behind_an_installed_module_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "tomllib.py").write_text("x = 1\n")
    with pytest.raises(InputError, match=r"tomllib/__init__.py, not .*tomllib.py, which has the s"):
        parse_experiment(experiment(plugins=["tomllib"]), "own.toml", tmp_path)


# -- from Python -----------------------------------------------------------------------------------


def test_a_registered_algorithm_is_known_to_the_classifier_and_to_experiments() -> None:
    from sklearn.datasets import load_wine

    X, y = load_wine(return_X_y=True)
    with registered(Average):
        clf = cn.VFLClassifier(algorithm="average", parties=3, epochs=60, random_state=0).fit(X, y)
        assert clf.score(X, y) > 0.9
        outcome = cn.run(experiment(seeds=[0, 1]), jobs=2)  # in this process: others do not know it
        assert len(outcome.results) == 2
    assert "average" not in registry()


def test_a_name_that_is_taken_is_refused() -> None:
    class Other(Average):  # pyright: ignore[reportGeneralTypeIssues]
        name = "splitnn"

    with pytest.raises(InputError, match=r"Other has the name 'splitnn', which is that of colonn"):
        register(Other)
    with registered(Average):
        register(Average)  # the same once more is no clash
        assert registry()["average"] is Average


# -- by entry points -------------------------------------------------------------------------------


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """What installed packages offer."""
    offers: list[EntryPoint] = []
    monkeypatch.setattr(algorithms, "entry_points", lambda group: offers)
    installed.cache_clear()
    yield offers
    installed.cache_clear()


@pytest.mark.parametrize("value", ["average:Average", "average"])
def test_an_installed_package_offers_an_algorithm(offered: list[EntryPoint], value: str) -> None:
    offered.append(EntryPoint("average", value, algorithms.GROUP))
    assert parse_experiment(experiment(), "own.toml").methods[0].algorithm == "average"
    assert list(registry()) == sorted([*algorithms.built_in(), "average"])


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("no_such_module:Mine", r"entry point mine = 'no_such_module:Mine': cannot be imported"),
        ("average:torch", "torch/__init__.py defines no algorithm"),
        ("colonnade.algorithms.dvfl:Replay", "is not a subclass of Algorithm"),
    ],
)
def test_an_offer_that_cannot_be_used_is_an_error_that_names_it(
    offered: list[EntryPoint], value: str, says: str
) -> None:
    offered.append(EntryPoint("mine", value, algorithms.GROUP))
    with pytest.raises(InputError, match=says):
        registry()


def test_an_offer_that_ends_the_process_is_an_error_that_names_it(
    offered: list[EntryPoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "offer_that_exits.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    offered.append(EntryPoint("mine", "offer_that_exits", algorithms.GROUP))
    with pytest.raises(InputError, match="offer_that_exits': cannot be imported: SystemExit: 3"):
        registry()
