"""`colonnade reproduce all`: every reproduction, one after the other, and pages of them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from colonnade.cli import app
from colonnade.errors import InputError
from colonnade.experiments.reproduce import everything
from colonnade.experiments.reproduce.everything import Done, reproduce_all, write_markdown
from colonnade.experiments.reproduce.run import DataAbsent, Reproduced

ONE = "dvfl-limited-labels"


def test_one_that_cannot_run_does_not_end_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = everything.reproduce

    def reproduce(name: str, *rest: object, **more: object) -> object:
        if name == "absent":
            raise DataAbsent("absent: no part can run. Get it from: a friend.")
        return work(name, *rest, **more)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(everything, "reproduce", reproduce)
    told: list[Done] = []
    found = reproduce_all("smoke", tmp_path, names=["absent", ONE], tell=told.append)
    assert found == told
    assert str(found[0]) == "absent: not run. no part can run. Get it from: a friend."
    assert not found[0].failed
    assert found[1].reproduced is not None
    assert found[1].reproduced.seconds > 0
    assert str(found[1]).startswith(f"{ONE}: no claim was judged, "), "smoke judges none"
    assert (tmp_path / ONE / "report.html").exists()
    found[1].reproduced.commit = "abc1234"
    page = write_markdown(found[1].reproduced, tmp_path / "pages").read_text()
    assert f"Made by `colonnade reproduce {ONE} --scale smoke` at commit abc1234" in page
    assert "|   paper |" in page  # the printed figures stand beside ours
    assert "Smoke" in page or "smoke" in page


def done(*verdicts: str, seconds: float = 60.0) -> Reproduced:
    """A reproduction whose claims came out so."""
    judgements = [SimpleNamespace(verdict=verdict) for verdict in verdicts]
    found = SimpleNamespace(
        assessments=[SimpleNamespace(judgements=judgements)],
        seconds=seconds,
        failures={},
        document=lambda: {"seconds": seconds},
    )
    return cast(Reproduced, found)


def test_claims_that_were_not_judged_are_not_counted() -> None:
    found = done("holds", "does not hold", "not judged", "not measured")
    assert str(Done("one", found)) == "one: 1 of 2 judged claims hold, 60 s"


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """What comes of two reproductions, by name; an error is raised."""
    outcomes: dict[str, Any] = {
        "good": done("holds", seconds=100),
        "other": done("holds", seconds=200),
    }

    def reproduce(name: str, scale: str, folder: Path, **_: Any) -> Reproduced:
        if isinstance(outcomes[name], Exception):
            raise outcomes[name]
        return outcomes[name]

    monkeypatch.setattr(everything, "registry", lambda: outcomes)
    monkeypatch.setattr(everything, "reproduce", reproduce)
    monkeypatch.chdir(tmp_path)
    return outcomes


def test_all_tell_how_long_they_took_and_what_did_not_run(two: dict[str, Any]) -> None:
    found = CliRunner().invoke(app, ["reproduce", "all"])
    assert found.exit_code == 0
    assert "All of them took 5 min." in found.output
    two["other"] = DataAbsent("other: no part can run")
    told = CliRunner().invoke(app, ["reproduce", "all", "--json"])
    assert told.exit_code == 0, "missing data are no failure"
    assert json.loads(told.stdout) == {
        "seconds": 100,
        "reproductions": [{"seconds": 100}],
        "not_run": {"other": "other: no part can run"},
    }


def test_one_that_cannot_run_for_another_reason_than_data_is_a_failure(two: dict[str, Any]) -> None:
    two["other"] = InputError("runs/other: holds other at scale smoke")
    found = CliRunner().invoke(app, ["reproduce", "all"])
    assert found.exit_code == 1
    assert "other: not run. runs/other: holds other at scale smoke" in found.output


def test_every_scale_has_a_folder_of_its_own(
    two: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[Path] = []

    def reproduce(name: str, scale: str, folder: Path, **_: Any) -> Reproduced:
        folders.append(folder)
        return two[name]

    monkeypatch.setattr(everything, "reproduce", reproduce)
    for scale in ("smoke", "quick"):
        CliRunner().invoke(app, ["reproduce", "all", "--scale", scale])
    places = [Path("runs") / f"reproductions-{scale}" for scale in ("smoke", "quick")]
    assert folders == [place / name for place in places for name in two]
