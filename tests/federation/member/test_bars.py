"""How far the matching of rows is, as a person at a terminal or a reader of the log sees it."""

from __future__ import annotations

import logging
from io import StringIO

import pytest
from rich.console import Console

from colonnade.federation.member.aligning.bars import Bars


def screen(bars: Bars) -> str:
    paper = Console(file=StringIO(), width=120)
    with paper.capture() as shown:
        paper.print(bars.progress.get_renderable())
    return shown.get()


def test_a_bar_for_each_party_grows_to_its_end() -> None:
    with Bars(Console(file=StringIO(), force_terminal=True)) as bars:
        bars.show("", "waiting for lab", 0, 0)
        assert "waiting for lab" in screen(bars)
        bars.show("lab", "find", 10, 40)
        bars.show("clinic", "answer", 3, 4)
        shown = screen(bars)
        assert "waiting" not in shown, "what this party waited for is there"
        lab, clinic = (line for line in shown.splitlines() if "%" in line)
        assert "finding common rows with lab" in lab
        assert "25%" in lab
        assert "answering clinic" in clinic
        assert "75%" in clinic
        bars.show("lab", "find", 40, 40)
        assert "100%" in screen(bars)


def test_without_a_terminal_each_step_is_a_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO), Bars(Console(file=StringIO())) as bars:
        for done in (10, 20, 20):
            bars.show("lab", "find", done, 20)
    assert [record.getMessage() for record in caplog.records] == [
        "finding common rows with lab: done"
    ]
