"""Signals that come at a bad moment."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from colonnade.cli import app
from colonnade.common.processes import stop_afterwards
from colonnade.federation.agreement import party_file


@pytest.fixture(autouse=True)
def _signals_are_heard() -> Iterator[None]:
    """Also where the test runner was started in the background, with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_signal_takes_effect_at_the_end_of_the_block() -> None:
    done = []

    def interrupted() -> None:
        with stop_afterwards():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("the rest of the block")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stop_afterwards():
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_party_that_is_stopped_before_it_has_read_its_file_leaves_cleanly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "lab.toml"
    file.write_text('party = "lab"\nfederation = "fed.toml"\n')
    monkeypatch.setattr(party_file, "read_party", lambda _: os.kill(os.getpid(), signal.SIGINT))
    shown = CliRunner().invoke(app, ["join", str(file)])
    assert shown.exit_code == 0
    assert "has left. The same command goes on" in " ".join(shown.output.split())
