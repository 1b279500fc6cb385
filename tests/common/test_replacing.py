"""Files are replaced whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from colonnade.common.files import replacing


@pytest.mark.parametrize("shared", [False, True])
def test_a_block_that_fails_leaves_the_file_before_and_nothing_else(
    shared: bool, tmp_path: Path
) -> None:
    path = tmp_path / "folder" / "facts.json"

    def write(*texts: str) -> None:
        with replacing(path, shared=shared) as partial, partial.open("w") as file:
            file.writelines(texts)

    write("one")
    write("two")
    with pytest.raises(TypeError):
        write("th", 3)  # pyright: ignore[reportArgumentType]
    assert path.read_text() == "two"
    assert list(path.parent.iterdir()) == [path]


def test_two_processes_that_share_a_file_do_not_write_into_each_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "set.npz"
    with replacing(path, shared=True) as mine:
        mine.write_text("mine")
        monkeypatch.setattr(os, "getpid", lambda: 1)
        with replacing(path, shared=True) as theirs:
            theirs.write_text("theirs")
        assert path.read_text() == "theirs"
    assert path.read_text() == "mine"


def test_what_is_durable_is_on_the_disk_before_it_takes_its_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "part"
    there: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: there.append(path.exists()))
    for durable in (False, True):
        with replacing(path.with_name(f"{durable}"), durable=durable) as partial:
            partial.write_text("x")
    assert there == [False]
