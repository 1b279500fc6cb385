"""Output folders are for their user only, whatever the umask; one that was opened stays open."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.command_line import colonnade

from colonnade.api import run

FILE = """
name = "own"
[data]
dataset = "breast_cancer"
parties = 2
[[methods]]
name = "SplitNN"
algorithm = "splitnn"
epochs = 1
[[methods]]
name = "FDML"
algorithm = "fdml"
epochs = 1
"""


@pytest.fixture(params=[0o000, 0o022, 0o277])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> set[tuple[bool, int]]:
    found = [folder, *folder.rglob("*")]
    assert len(found) > 5
    return {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in found}


OWN = {(True, 0o700), (False, 0o600)}


@pytest.mark.usefixtures("umask")
def test_whatever_a_command_writes_is_for_its_user_only(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(FILE)
    for words in (
        ("run", "own.toml", "--jobs", "2"),
        ("report", "runs/own", "--csv", "--latex"),
        ("explain", "runs/own", "--method", "SplitNN"),
        ("audit", "runs/own", "--method", "SplitNN", "--attack", "ridge"),
        ("compare", "own.toml", "--only", "FDML", "--epochs", "1", "--jobs", "1"),
        ("reproduce", "dvfl-period", "--scale", "smoke", "--jobs", "1"),
    ):
        done = colonnade(*words, folder=tmp_path)
        assert done.returncode == 0, done.stderr
    assert modes(tmp_path / "runs") == OWN
    run(tmp_path / "own.toml", out=tmp_path / "python").report()
    assert modes(tmp_path / "python") == OWN


def test_a_folder_that_its_owner_has_opened_stays_open(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(FILE)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2770)
    before = os.umask(0o007)
    try:
        assert colonnade("run", "own.toml", "--out", "shared", folder=tmp_path).returncode == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o2770
    assert {stat.S_IMODE(path.stat().st_mode) for path in shared.glob("*.*")} == {0o660}
