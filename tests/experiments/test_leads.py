"""Who led when: the files of a run, and what the report shows of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import colonnade as cn
from colonnade.common.results import LeadsRow, TurnRow, read_leads, read_results, read_turns
from colonnade.experiments.leads import leads_grid, time_line
from colonnade.experiments.report import write_report


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("leads")
    methods = [
        {"name": "banks", "algorithm": "cvfl", "slow": 0.5, "epochs": 2, "batch": 16},
        {"name": "one bank", "algorithm": "splitnn", "epochs": 2},
    ]
    data = {"dataset": "digits", "rows": 200}
    cn.run({"name": "pace", "data": data, "methods": methods}, out=out, jobs=1)
    return out


def test_a_run_says_how_many_rounds_each_party_led_and_how_stale_its_gradients_were(
    folder: Path,
) -> None:
    banks, alone = read_results(folder)
    leads = read_leads(folder, banks.run)
    assert sum(row.rounds for row in leads) == banks.cost["rounds"]
    rounds = {p: sum(r.rounds for r in leads if r.party == p) for p in ("client0", "client1")}
    assert 1.5 * rounds["client1"] < rounds["client0"] < 2.5 * rounds["client1"]
    others = {p: sum(r.others for r in leads if r.party == p) for p in rounds}
    assert others["client1"] / rounds["client1"] > others["client0"] / rounds["client0"] > 0
    turns = read_turns(folder, banks.run)
    assert len(turns) == banks.cost["rounds"]
    assert {turn.ended - turn.began for turn in turns if turn.party == "client0"} == {2.0}
    assert {turn.ended - turn.began for turn in turns if turn.party == "client1"} == {4.0}
    assert read_leads(folder, alone.run) == []


def test_the_report_shows_who_led_when(folder: Path) -> None:
    page = write_report(folder).read_text()
    section = page[page.index("Who led when") : page.index("What left each party")]
    assert "<svg" in section
    assert "steps of others, mean" in section
    assert section.count("<h3>") == 1, "of the method in which several parties lead"


def test_where_nothing_takes_time_the_time_line_shows_the_order() -> None:
    turns = [TurnRow(party, 0.0, 0.0, 1) for party in ("b", "a", "a")]
    drawn = time_line(turns, "x")
    assert drawn.description == "Rounds led by each party: a 2, b 1."
    assert ">rounds<" in drawn.svg
    rows = [LeadsRow(1, "a", 3, 9, 5), LeadsRow(2, "a", 1, 3, 3), LeadsRow(1, "b", 4, 2, 1)]
    assert leads_grid(rows, "").rows == (
        ("a", "4", "50.0", "3.0", "5"),
        ("b", "4", "50.0", "0.5", "1"),
    )
