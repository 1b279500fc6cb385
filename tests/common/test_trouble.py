"""What goes wrong again and again does not fill the log."""

from __future__ import annotations

import logging

import pytest

from colonnade.common.trouble import Trouble


def test_trouble_that_lasts_is_told_at_growing_intervals(caplog: pytest.LogCaptureFixture) -> None:
    now, told = [0.0], []
    trouble = Trouble(logging.getLogger("test"), lambda: now[0])
    for second in range(0, 20_000, 2):
        now[0] = float(second)
        before = len(caplog.records)
        trouble.tell("no space left")
        told += [second] if len(caplog.records) > before else []
    assert told[:5] == [0, 30, 90, 210, 450]
    assert told[-1] - told[-2] == 3600
    assert caplog.records[1].message == "no space left (16 such errors so far)"
