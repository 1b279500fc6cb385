"""Settings of built-in algorithms are found without the algorithms, which import torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from colonnade.algorithms import built_in, built_in_names, names, registry, settings_of
from colonnade.errors import InputError
from colonnade.experiments.config import parse_experiment, read_experiment

SOURCE = '[data]\ndataset = "wine"\n[[methods]]\n'
WRONG = {
    "unknown key": ('algorithm = "splitnn"\nepochz = 3', "epochz: unknown key"),
    "wrong type": ('algorithm = "splitnn"\nepochs = "3"', "epochs: expected a whole number"),
    "unknown algorithm": ('algorithm = "splitn"', "'splitn' is not known"),
    "no algorithm": ("epochs = 3", "algorithm: missing"),
    "outside limits": ('algorithm = "splitnn"\nepochs = 0', "epochs = 0: expected 1 or more"),
    "wrong noise": (
        'algorithm = "splitnn"\nnoise = { clip = 0, sigma = 1 }',
        "noise.clip = 0: expected a number above 0",
    ),
    "no rate": ('algorithm = "fedvs"\nlr = 0', "lr = 0.0: expected a rate above 0"),
}


def test_every_algorithm_has_its_settings_in_the_module_of_its_name() -> None:
    assert list(built_in_names()) == sorted(built_in())
    for name, kind in built_in().items():
        assert kind.settings is settings_of(name)
        assert kind.settings.__module__ == f"colonnade.algorithms.{name}_settings"


def test_the_names_are_those_of_the_registry() -> None:
    assert names() == list(registry())


READ = """
import json, sys
from pathlib import Path
from colonnade.errors import InputError
from colonnade.experiments.config import read_experiment
found = {}
for file in sys.argv[1:]:
    try:
        read_experiment(Path(file))
        said = ""
    except InputError as error:
        said = str(error)
    found[file] = [said, "torch" in sys.modules]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, bool]]:
    """By file: the error, and whether torch was imported by then. The good files come last."""
    folder = tmp_path_factory.mktemp("files")
    files = {name: text for name, (text, _) in WRONG.items()}
    files |= {name: f'algorithm = "{name}"' for name in built_in_names()}
    for name, text in files.items():
        (folder / name).write_text(f'name = "x"\n{SOURCE}{text}\n')
    done = subprocess.run(
        [sys.executable, "-c", READ, *files],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", built_in_names())
def test_a_file_is_read_without_torch(name: str, read: dict[str, tuple[str, bool]]) -> None:
    assert read[name] == ["", False]


@pytest.mark.parametrize("name", WRONG)
def test_an_error_in_a_method_is_told_without_torch(
    name: str, read: dict[str, tuple[str, bool]]
) -> None:
    said, torch = read[name]
    assert said.startswith(f"{name}: methods[0]")
    assert WRONG[name][1] in said
    assert not torch


def test_limits_are_for_files_that_are_read_to_be_run(tmp_path: Path) -> None:
    """A comparison parses tables that it may leave out, and asks each method itself."""
    file = tmp_path / "file.toml"
    file.write_text(f'name = "x"\n{SOURCE}algorithm = "mags"\nname = "M"\ngossip = -1\n')
    with pytest.raises(InputError) as caught:
        read_experiment(file)
    assert str(caught.value) == f"{file}: methods[0] (M): gossip = -1: expected 0 or more rounds"
    table = {"algorithm": "mags", "gossip": -1}
    parsed = parse_experiment({"name": "x", "data": {"dataset": "wine"}, "methods": [table]}, "x")
    assert parsed.methods[0].algorithm == "mags"
