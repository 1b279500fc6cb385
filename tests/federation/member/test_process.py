"""A party's process and its folder: who may read it, who uses it, and how the process ended."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.federation.member.test_member import calm, federation
from typer.testing import CliRunner

from colonnade.cli import app
from colonnade.common.private_files import private
from colonnade.errors import InputError
from colonnade.experiments.report import write_report
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.keys.certificates import make_authority, make_certificate
from colonnade.federation.member.folder import of_a_party
from colonnade.federation.member.folder_lock import is_running, only_one
from colonnade.federation.member.local_files import prepare
from colonnade.federation.member.local_processes import begin_chaos, end_of_log, why_ended
from colonnade.federation.member.record import Record
from colonnade.federation.member.status import end_noted, read_status, write_status

STATUS = "status.json"


def runs(folder: Path, stage: str = "training") -> None:
    """What the status line of a running party writes."""
    facts = {"party": "lab", "process": os.getpid(), "stage": stage, "round": 3}
    write_status(folder / STATUS, facts)


def ends(folder: Path, error: BaseException | None) -> dict[str, Any]:
    with only_one(folder, "lab"), end_noted(folder, "lab"):
        runs(folder)
        if error is not None:
            raise error
    return read_status(folder)


def test_the_status_of_a_process_says_how_it_ended(tmp_path: Path) -> None:
    done = ends(tmp_path, None)
    assert (done["stage"], done["ended"]["during"], done["round"]) == ("done", "training", 3)
    with pytest.raises(KeyboardInterrupt):
        ends(tmp_path, KeyboardInterrupt())
    assert read_status(tmp_path)["stage"] == "left"
    with pytest.raises(InputError):
        ends(tmp_path, InputError("the port is taken"))
    failed = read_status(tmp_path)
    assert failed["stage"] == "ended with an error"
    assert failed["ended"]["reason"] == "the port is taken"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", failed["ended"]["at"])


def test_an_error_before_the_first_status_is_told_without_the_figures_of_an_earlier_process(
    tmp_path: Path,
) -> None:
    write_status(tmp_path / STATUS, {"party": "lab", "process": 1, "stage": "done", "round": 9})
    with pytest.raises(InputError), end_noted(tmp_path, "lab"):
        raise InputError("cannot listen")
    told = read_status(tmp_path)
    assert told["ended"]["during"] == "starting"
    assert "round" not in told


def test_a_process_that_was_killed_is_known_by_its_lock(tmp_path: Path) -> None:
    with only_one(tmp_path, "lab"):
        runs(tmp_path)
        assert is_running(tmp_path)
        assert read_status(tmp_path)["stage"] == "training"
        assert "ended" not in read_status(tmp_path)
    assert not is_running(tmp_path)
    gone = read_status(tmp_path)
    assert gone["stage"] == "gone"
    assert gone["ended"]["during"] == "training"
    assert "ended" not in json.loads((tmp_path / STATUS).read_text()), "only its process writes it"


def test_starting_over_leaves_the_folder_of_a_running_party_alone(tmp_path: Path) -> None:
    fed = parse_federation(
        {"name": "t", "data": {"dataset": "digits"}, "method": {"algorithm": "splitnn"}}, "t"
    )
    prepare(fed, tmp_path / "t.toml", tmp_path / "out")
    kept = tmp_path / "out" / "server" / "checkpoints" / "server.checkpoint.safetensors"
    kept.parent.mkdir(parents=True)
    kept.write_text("kept")
    with only_one(tmp_path / "out" / "server", "server"):
        result = CliRunner().invoke(
            app, ["join", str(tmp_path / "out" / "server.toml"), "--fresh"], catch_exceptions=True
        )
    assert isinstance(result.exception, InputError)
    assert "running already" in str(result.exception)
    assert kept.exists()


# ---------------------------------------------------------------------------------- permissions


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """Whatever others may do there."""
    found = [folder, *folder.rglob("*")]
    assert len(found) > 3
    return {str(p): m for p in found if (m := stat.S_IMODE(p.stat().st_mode) & 0o077)}


def make_keys(folder: Path) -> None:
    make_authority(folder, "hospitals")
    make_certificate(folder, "lab")


def make_up_folder(folder: Path) -> None:
    table = {"name": "t", "data": {"dataset": "digits"}, "method": {"algorithm": "splitnn"}}
    prepare(parse_federation(table, "t"), folder.parent / "t.toml", folder)


def make_party_folder(folder: Path) -> None:
    fed = federation("splitnn")
    with ExitStack() as stack:
        for party in fed.members:
            stack.enter_context(private(folder / party, of_a_party))
        calm(fed, folder)
    folder.chmod(0o700)  # as that of `up`
    assert CliRunner().invoke(app, ["report", str(folder / "server")]).exit_code == 0


@pytest.mark.parametrize("make", [make_keys, make_up_folder, make_party_folder])
@pytest.mark.usefixtures("open_umask")
def test_what_is_written_is_for_its_user_only(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "new")
    assert modes(tmp_path / "new") == {}


@pytest.mark.usefixtures("open_umask")
def test_what_an_earlier_version_left_open_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    for name in ("checkpoints/lab.checkpoint.safetensors", "ledger/x.jsonl", "log.txt", "lock"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    assert modes(folder)
    with private(folder, of_a_party):
        pass
    assert modes(folder) == {}
    make_keys(tmp_path / "keys")
    (tmp_path / "keys" / "lab.key").chmod(0o644)
    (tmp_path / "keys").chmod(0o755)
    make_certificate(tmp_path / "keys", "clinic")
    assert modes(tmp_path / "keys") == {}


@pytest.mark.usefixtures("open_umask")
def test_files_of_others_and_their_folder_keep_their_modes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "thesis.tex").write_text("")
    tmp_path.chmod(0o755)
    make_keys(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "thesis.tex").stat().st_mode) == 0o666
    assert stat.S_IMODE((tmp_path / "lab.key").stat().st_mode) == 0o600
    assert "other users of this machine can look into it" in caplog.text


@pytest.mark.usefixtures("open_umask")
def test_what_a_link_leads_to_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.csv").write_text("")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "data").symlink_to(tmp_path / "data")
    with private(tmp_path / "out"):
        pass
    assert stat.S_IMODE((tmp_path / "data" / "rows.csv").stat().st_mode) == 0o666
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o700


# -------------------------------------------------------------------------------------- commands


def test_a_report_on_the_folder_of_an_unfinished_party_names_the_command_that_goes_on(
    tmp_path: Path,
) -> None:
    Record(tmp_path / "client0", federation("splitnn")).begin()
    with pytest.raises(InputError, match="the same `colonnade join`") as caught:
        write_report(tmp_path / "client0")
    assert "colonnade run" not in str(caught.value)


@pytest.mark.parametrize("seed", [None, 4])
def test_chaos_tells_its_seed_and_the_seed_repeats_it(seed: int | None) -> None:
    said: list[str] = []
    chaos = begin_chaos(2.0, seed, said.append)
    found = re.search(r"--chaos-seed (\d+)", said[0])
    assert found
    assert seed is None or int(found[1]) == seed
    again = begin_chaos(2.0, int(found[1]), said.append)
    assert [chaos.random.random() for _ in range(5)] == [again.random.random() for _ in range(5)]


def test_a_process_that_ended_before_it_had_a_log_is_explained(tmp_path: Path) -> None:
    """As when a script calls `up` at its top level, so that every process begins it anew."""
    assert '`if __name__ == "__main__":`' in end_of_log(tmp_path / "log.txt")
    (tmp_path / "log.txt").write_text("one\n\n  Error: no space\n")
    assert end_of_log(tmp_path / "log.txt") == "one Error: no space"


def test_the_reason_of_a_process_that_failed_is_told_once(tmp_path: Path) -> None:
    """Its log holds the reason, too, after other lines."""
    (tmp_path / "log.txt").write_text("12:00 lab.csv: is empty\nError lab.csv: is empty\n")
    assert why_ended(tmp_path) == "lab.csv: is empty"
    with pytest.raises(InputError), end_noted(tmp_path, "lab"):
        raise InputError("lab.csv: has no column 'id'")
    assert why_ended(tmp_path) == "lab.csv: has no column 'id'"
