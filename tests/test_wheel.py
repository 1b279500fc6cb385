"""What `pip install colonnade` brings."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parent.parent


def test_the_wheel_holds_every_file_of_the_package_and_says_that_it_is_typed(
    tmp_path: Path,
) -> None:
    wheel = pytest.importorskip("hatchling.builders.wheel")
    (built,) = wheel.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    inside = {name for name in ZipFile(built).namelist() if ".dist-info/" not in name}
    source = ROOT / "src"
    files = [path for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert inside == {path.relative_to(source).as_posix() for path in files}
    assert "colonnade/py.typed" in inside
