"""A real process, interrupted as a person would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

EXPERIMENT = """
name = "long"
seeds = [0, 1, 2, 3, 4, 5, 6, 7]
[data]
dataset = "digits"
rows = 300
[[methods]]
algorithm = "splitnn"
epochs = 30
patience = 30
"""


def start(folder: Path, jobs: int, deaf: bool = False) -> subprocess.Popen[str]:
    """`deaf`: with Ctrl-C switched off, as shells do for what a script runs in the background."""
    command = "from colonnade.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", command, "run", "long.toml", "--out", "out", "--jobs", str(jobs)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=(lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if deaf else None,
    )


def finished(folder: Path) -> list[str]:
    path = folder / "out" / "results.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def wait_for_first_results(process: subprocess.Popen[str], folder: Path, limit: float = 60) -> None:
    end = time.monotonic() + limit
    while len(finished(folder)) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


def test_ctrl_c_keeps_finished_runs_and_the_same_command_goes_on(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(EXPERIMENT)
    process = start(tmp_path, jobs=2)
    wait_for_first_results(process, tmp_path)
    os.killpg(process.pid, signal.SIGINT)  # the terminal sends it to the whole group
    out, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "goes on" in out
    assert "Traceback" not in err
    kept = finished(tmp_path)
    assert 2 <= len(kept) < 8
    out, err = start(tmp_path, jobs=1).communicate(timeout=100)
    assert set(kept) <= set(finished(tmp_path))
    assert len(finished(tmp_path)) == 8, err


def test_a_request_to_end_is_heard_also_in_the_background(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(EXPERIMENT)
    process = start(tmp_path, jobs=1, deaf=True)
    wait_for_first_results(process, tmp_path)
    process.terminate()
    out, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "goes on" in out
    assert "Traceback" not in err
    assert 2 <= len(finished(tmp_path)) < 8


def test_a_process_that_is_killed_loses_at_most_the_runs_under_way(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(EXPERIMENT.replace("5, 6, 7", "5"))
    process = start(tmp_path, jobs=1)
    wait_for_first_results(process, tmp_path)
    process.kill()
    process.communicate()
    kept = finished(tmp_path)
    again = start(tmp_path, jobs=1)
    _, err = again.communicate(timeout=100)
    assert again.returncode == 0, err
    assert set(kept[:2]) <= set(finished(tmp_path))
    assert len(finished(tmp_path)) == 6


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(EXPERIMENT)
    process = start(tmp_path, jobs=2)
    wait_for_first_results(process, tmp_path)
    group = process.pid  # the leader of its own session
    process.kill()
    process.wait()
    end = time.monotonic() + 20
    while _anybody_in(group):
        assert time.monotonic() < end, "workers outlive their parent"
        time.sleep(0.05)


def _anybody_in(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
