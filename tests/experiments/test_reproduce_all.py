"""`colonnade reproduce all`: every reproduction, one after the other, and pages of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from colonnade.errors import InputError
from colonnade.experiments.reproduce import everything
from colonnade.experiments.reproduce.everything import Done, reproduce_all, write_markdown

ONE = "dvfl-limited-labels"


def test_one_that_cannot_run_does_not_end_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = everything.reproduce

    def reproduce(name: str, *rest: object, **more: object) -> object:
        if name == "absent":
            raise InputError("absent: no part can run")
        return work(name, *rest, **more)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(everything, "reproduce", reproduce)
    told: list[Done] = []
    found = reproduce_all("smoke", tmp_path, names=["absent", ONE], tell=told.append)
    assert found == told
    assert found[0].row()[-1] == "absent: no part can run"
    assert found[1].reproduced is not None
    assert (tmp_path / ONE / "report.html").exists()
    found[1].reproduced.commit = "abc1234"
    page = write_markdown(found[1].reproduced, tmp_path / "pages").read_text()
    assert f"Made by `colonnade reproduce {ONE} --scale smoke` at commit abc1234" in page
    assert "|   paper |" in page  # the printed figures stand beside ours
    assert "Smoke" in page or "smoke" in page
