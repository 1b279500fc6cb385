"""The experiment file: what it means, and what it says when it is wrong."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import InputError
from colonnade.experiments.config import parse_experiment, read_experiment
from colonnade.network.faults import Connection, Fault, Trace

GOOD = """
name = "links that fail"
seeds = [0, 1]

[data]
dataset = "digits"
parties = 4

[network]
topology = "complete"
[network.delays]
compute = { clients = 0.01, client3 = { exponential = 2.0 } }

[[faults]]
name = "none"
[[faults]]
name = "links"
kind = "connection"
down = 0.3
up = 0.1

[[methods]]
name = "zeros"
algorithm = "splitnn"
missing = "zeros"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "experiment.toml"
    path.write_text(text)
    return path


def test_a_good_file_becomes_typed_values(tmp_path: Path) -> None:
    experiment = read_experiment(write(tmp_path, GOOD))
    assert experiment.seeds == (0, 1)
    assert experiment.faults == (Fault(name="none"), Connection(name="links", down=0.3, up=0.1))
    assert experiment.methods[0].missing == "zeros"  # pyright: ignore[reportAttributeAccessIssue]
    assert experiment.network.delays.compute == {"clients": 0.01, "client3": {"exponential": 2.0}}


def test_the_resolved_file_means_the_same_and_spells_out_the_defaults(tmp_path: Path) -> None:
    experiment = read_experiment(write(tmp_path, GOOD))
    resolved = experiment.toml()
    assert parse_experiment(tomllib.loads(resolved), "resolved") == experiment
    assert tomllib.loads(resolved)["methods"][0]["batch"] == 64


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("seeds", "seed", "seed: unknown key; the nearest is 'seeds'"),
        ("parties = 4", "partys = 4", "data.partys: unknown key; the nearest is 'parties'"),
        ("missing", "mising", r"methods\[0\].mising: unknown key; the nearest is 'missing'"),
        ("down = 0.3", "dwn = 0.3", r"faults\[1\].dwn: unknown key; the nearest is 'down'"),
        ("compute", "computing", "network.delays.computing: unknown key; the nearest is 'compute'"),
        ("parties = 4", 'parties = "four"', "data.parties: expected a whole number, not 'four'"),
        (
            'missing = "zeros"',
            "missing = 3",
            r"methods\[0\].missing: expected one of wait, skip, zeros, buffer, stale, not 3",
        ),
        (
            'missing = "zeros"',
            'missing = "zero"',
            "one of wait, skip, zeros, buffer, stale, not 'zero'",
        ),
        (
            '"splitnn"',
            '"splitn"',
            r"methods\[0\].algorithm: 'splitn' is not known; the nearest is 'splitnn'",
        ),
        ('algorithm = "splitnn"', "", r"methods\[0\].algorithm: missing; expected one of"),
        ('"connection"', '"conection"', r"faults\[1\].kind: .* the nearest is 'connection'"),
        ("down = 0.3", "down = 1.3", r"faults\[1\].down = 1.3 is not a probability"),
        ("down = 0.3", "", r"faults\[1\].down: missing"),
        ("seeds = [0, 1]", "seeds = []", "seeds: the list is empty"),
        ("seeds = [0, 1]", "seeds = [1, 1]", "seeds: 1 is used twice"),
        ('name = "links"', 'name = "none"', "faults: 'none' is used twice"),
        ("exponential = 2.0", "exponential = -2.0", "network.delays.compute.client3.exponential"),
        ("compute = {", "lag = -1.0\ncompute = {", "network.delays.lag = -1.0: expected seconds"),
        ("compute = {", "lag = nan\ncompute = {", "network.delays.lag = nan: expected seconds"),
        (
            "compute = {",
            "lag_factors.gradients = 2\ncompute = {",
            "network.delays.lag_factors.gradients: unknown key; the nearest is 'gradient'",
        ),
        (
            "compute = {",
            "lag_factors.gradient = -2\ncompute = {",
            "network.delays.lag_factors.gradient = -2: expected a factor, 0 or more",
        ),
        (
            'topology = "complete"',
            'topology = "star"',
            "network.topology: expected one of complete, grid",
        ),
        ('dataset = "digits"', "", "exactly one of dataset"),
        ("[[methods]]", "[methods]", r"methods: expected \[\[methods\]\] tables"),
        ("name = ", "name ", "not valid TOML"),
        ("seeds = [0, 1]", "seeds = [0, 1]\ntarget = 97.0", "target = 97: expected an accuracy"),
    ],
)
def test_a_mistake_is_named_with_file_key_and_reason(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(InputError, match=says) as caught:
        read_experiment(path)
    assert str(caught.value).startswith(str(path))


def test_a_method_name_used_twice_is_refused(tmp_path: Path) -> None:
    twice = GOOD + '\n[[methods]]\nname = "zeros"\nalgorithm = "centralised"\n'
    with pytest.raises(InputError, match="methods: 'zeros' is used twice"):
        read_experiment(write(tmp_path, twice))


def test_a_missing_or_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.toml: cannot be read \(No such file"):
        read_experiment(tmp_path / "nowhere.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"binary\.toml: cannot be read"):
        read_experiment(tmp_path / "binary.toml")


@pytest.mark.parametrize(
    ("override", "where", "value"),
    [
        ("data.parties=8", ("data", "parties"), 8),
        ("methods.0.lr=0.5", ("methods", 0, "lr"), 0.5),
        ("methods.*.epochs=3", ("methods", 0, "epochs"), 3),
        ("seeds=[5]", ("seeds",), [5]),
        ("name=another name", ("name",), "another name"),
        ("network.delays.latency=0.5", ("network", "delays", "latency"), 0.5),
    ],
)
def test_keys_can_be_set_on_the_command_line(
    tmp_path: Path, override: str, where: tuple[Any, ...], value: Any
) -> None:
    table: Any = read_experiment(write(tmp_path, GOOD), [override]).table()
    for step in where:
        table = table[step]
    assert table == value


@pytest.mark.parametrize("override", ["data.parties", "=3", "methods.7.lr=1", "name.inner=1"])
def test_an_override_that_makes_no_sense_is_refused(tmp_path: Path, override: str) -> None:
    with pytest.raises(InputError, match="--set"):
        read_experiment(write(tmp_path, GOOD), [override])


def test_paths_in_a_file_are_relative_to_the_file(tmp_path: Path) -> None:
    text = GOOD.replace('dataset = "digits"', 'path = "table.csv"\nlabel = "y"')
    (tmp_path / "table.csv").touch()
    experiment = read_experiment(write(tmp_path, text))
    assert experiment.data.path == str(tmp_path / "table.csv")
    traced = GOOD.replace(
        'kind = "connection"\ndown = 0.3\nup = 0.1', 'kind = "trace"\npath = "t.npz"'
    )
    (_, trace) = read_experiment(write(tmp_path, traced)).faults
    assert trace == Trace(name="links", path=str(tmp_path / "t.npz"))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("lr = 0.01", "hide_labels = true", "a table, not true; e.g. hide_labels = 16"),
        ("lr = 0.01", 'lr = "fast"', "lr: expected a number or a table of numbers, not 'fast'"),
        ("lr = 0.01", "lr = { clients = [1] }", r"lr.clients: expected a number, not \[1\]"),
        ("lr = 0.01", "epochs = 2.5", "epochs: expected a whole number, not 2.5"),
        (
            "lr = 0.01",
            "encoder = 32",
            "encoder: expected a list of numbers or 'cnn' or a table, not 32",
        ),
        ("lr = 0.01", 'encoder = ["a"]', r"encoder\[0\]: expected a number, not 'a'"),
        ("lr = 0.01", "compile = 1", "compile: expected true or false, not 1"),
        ("parties = 4", "columns = { a = [1] }", r"columns.a\[0\]: expected text in quotes, not 1"),
        ("parties = 4", "columns = { a = 1 }", "columns.a: expected a list of texts in quotes"),
        ("seeds = [0, 1]", "seeds = 3", "seeds: expected a list of whole numbers, not 3"),
        ("seeds = [0, 1]", 'seeds = [0, "1"]', r"seeds\[1\]: expected a whole number, not '1'"),
        ("latency = 0.1", 'latency = "0.1"', "delays.latency: expected a number or a table, not"),
        ("down = 0.3", 'down = "often"', r"faults\[1\].down: expected a number, not 'often'"),
    ],
)
def test_a_value_of_the_wrong_kind_is_told_in_plain_words(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    assert old in PLAIN_WORDS
    path = write(tmp_path, PLAIN_WORDS.replace(old, new, 1))
    with pytest.raises(InputError, match=says) as caught:
        read_experiment(path)
    assert "`" not in str(caught.value)
    assert "object" not in str(caught.value)


PLAIN_WORDS = """
name = "plain words"
seeds = [0, 1]
[data]
dataset = "digits"
parties = 4
[network.delays]
latency = 0.1
[[faults]]
name = "none"
[[faults]]
name = "links"
kind = "connection"
down = 0.3
up = 0.1
[[methods]]
algorithm = "splitnn"
lr = 0.01
"""
