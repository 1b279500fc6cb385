"""What `colonnade status` prints."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from colonnade.cli.status_table import show
from colonnade.federation.agreement.federation_file import parse_federation

DATA = {"dataset": "digits", "parties": 4, "split": "bands"}
HERE = {"stage": "answering questions", "round": 410, "rounds": 410, "model": "round 388"}
END = {"at": "2026-11-16T16:30:12+00:00", "during": "training", "reason": "its process was killed"}


def printed(**told: dict[str, Any]) -> list[str]:
    method = {"algorithm": "splitnn", "epochs": 1}
    federation = parse_federation({"name": "f", "data": DATA, "method": method}, "f.toml")
    console = Console(file=io.StringIO(), width=80)
    show(federation, {party: told.get(party, {}) for party in federation.members}, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_one_line_for_each_party_in_80_columns_and_sentences_below() -> None:
    why = "has round 20, the model is of round 388"
    lines = printed(
        server=HERE | {"away": {"client2": 3.0}, "lacking": {"client1": why}},
        client0=HERE | {"away": {"client2": 12.4}},
        client1=HERE | {"model": "round 20"},
        client2={**HERE, "stage": "gone", "away": {"server": 1.0}, "ended": END},
    )
    table = [line for line in lines if line.strip()][2:7]
    assert [line.split()[0] for line in table] == [*(f"client{n}" for n in range(4)), "server"]
    assert "410" not in " ".join(table), "a round is of interest while it trains"
    assert table[3].split()[-2:] == ["no", "answer"]
    below = lines[-3:]
    assert below[0].startswith("client2: gone at 2026-11-16 16:30:12 UTC, while training: its")
    assert below[1] == "client2: away since 12 s, as told by client0, server"
    assert below[2] == f"The model lacks client1: {why}"


def test_while_it_trains_the_table_shows_how_far_it_is() -> None:
    lines = printed(server={"stage": "training", "round": 1234, "rounds": 5000, "away": {}})
    assert any("1,234 of 5,000" in line for line in lines)
