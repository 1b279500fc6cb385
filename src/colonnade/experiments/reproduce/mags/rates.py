"""Columns that are fault rates in per cent."""

from __future__ import annotations

from collections.abc import Iterable


def faults_at(things: str, columns: Iterable[str]) -> list[str]:
    """The names of the faults: for "30%" of the links "links .3", for "0%" none."""
    return ["none" if column == "0%" else f"{things} .{column[0]}" for column in columns]
