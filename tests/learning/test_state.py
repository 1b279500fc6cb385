"""Declared state on disk: journals that grow, begin anew, and survive crashes and full disks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from colonnade.errors import InputError
from colonnade.learning import journal as journals
from colonnade.learning.journal import Journal
from colonnade.learning.state import Numbers, Table, Value
from colonnade.network import ABSENT


def entries(folder: Path, at: tuple[int, int]) -> list[int]:
    return [int(entry["n"]) for entry in Journal(folder, "lab", "rows").read(*at)]


def entry(n: int) -> dict[str, Tensor]:
    return {"n": torch.tensor([n])}


def test_what_a_crash_left_behind_the_last_checkpoint_is_cut_off(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "lab", "rows")
    journal.add(entry(1))
    kept = journal.at
    journal.add(entry(2))  # no checkpoint refers to it
    assert entries(tmp_path, kept) == [1]
    after = Journal(tmp_path, "lab", "rows")
    assert [int(e["n"]) for e in after.read(*kept)] == [1]
    after.add(entry(3))
    assert entries(tmp_path, after.at) == [1, 3]


def test_a_journal_begins_anew_in_another_file_and_the_old_one_goes_when_it_may(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path, "lab", "rows")
    journal.add(entry(1))
    old = journal.at
    journal.begin()
    journal.add(entry(2))
    assert entries(tmp_path, old) == [1], "a checkpoint may still refer to it"
    journal.tidy()
    assert [path.name for path in tmp_path.iterdir()] == ["lab.rows.1.journal"]
    assert entries(tmp_path, journal.at) == [2]


def test_a_journal_that_outgrows_its_state_wants_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "SLACK", 0)
    journal = Journal(tmp_path, "lab", "rows")
    assert journal.wants_all
    journal.incomplete = False
    wanted = []
    for n in range(4):
        journal.add(entry(n))
        wanted.append(journal.wants_all)
    assert wanted == [False, False, True, True]


def test_a_damaged_or_missing_journal_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "lab", "rows")
    journal.add(entry(1))
    path = journal.path(0)
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    with pytest.raises(InputError, match=r"lab\.rows\.0\.journal: is shorter"):
        entries(tmp_path, journal.at)
    path.write_bytes(whole[:8] + b"x" * (len(whole) - 8))
    with pytest.raises(InputError, match=r"lab\.rows\.0\.journal: is damaged"):
        entries(tmp_path, journal.at)
    path.unlink()
    with pytest.raises(InputError, match=r"lab\.rows\.0\.journal: cannot be read"):
        entries(tmp_path, journal.at)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.sets(st.integers(0, 5), min_size=1)), max_size=8))
def test_the_changes_of_a_table_in_their_order_give_the_table(
    writes: list[tuple[int, set[int]]],
) -> None:
    table, copy = Table(torch.zeros(2, 6, 3)), Table(torch.zeros(2, 6, 3))
    for n, (member, rows) in enumerate(writes, 1):
        table.write(member, torch.tensor(sorted(rows)), torch.full((len(rows), 3), float(n)))
        if n % 2:
            copy.restore(table.changes())
    copy.restore(table.changes())
    assert torch.equal(copy.value, table.value)
    assert table.changes() == []


def test_a_value_that_is_set_once_holds_and_elsewhere_it_is_absent() -> None:
    here, elsewhere = Value(large=True), Value(large=True)
    here.members = 1
    for value in (here, elsewhere):
        value.set_once(torch.ones(1, 2))
        value.set_once(torch.zeros(1, 2))
    assert here.value.tolist() == [[1, 1]]
    assert elsewhere.value is ABSENT
    assert [len(found) for found in (here.changes(), here.changes(), elsewhere.changes())] == [
        1, 0, 0,
    ]  # fmt: skip


def test_numbers_come_back_as_they_were() -> None:
    numbers, again = Numbers(seen=7, steps=2**40), Numbers(seen=0, steps=0)
    numbers.members = 2
    again.restore(numbers.whole())
    assert again == {"seen": 7, "steps": 2**40}
