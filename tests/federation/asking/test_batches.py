"""Many rows, asked for in batches; tables in and out. The federation is a function here."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import msgspec
import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.cli.predict import notes
from colonnade.errors import ColonnadeError, InputError
from colonnade.federation.asking import batches
from colonnade.federation.asking.batches import Journal, about, answered, journal_of
from colonnade.federation.asking.prediction_tables import (
    check_out,
    header,
    read_keys,
    write_csv,
    write_table,
)
from colonnade.federation.asking.predictions import check_known
from colonnade.federation.member.prediction_requests import Asked, Predicted


def chances(key: str) -> list[float]:
    share = sum(map(ord, key)) % 100 / 100
    return [share, 1 - share]


class Party:
    """Knows every key that does not begin with an x, and some that do; falls over at the nth
    batch."""

    def __init__(
        self, falls_at: int | None = None, model: str = "round 3", knows: Sequence[str] = ()
    ) -> None:
        self.falls_at, self.model, self.knows = falls_at, model, knows
        self.batches: list[list[str]] = []

    def __call__(self, asked: Asked) -> Predicted:
        assert asked.ids is not None
        if len(self.batches) == self.falls_at:
            raise ColonnadeError("hospital does not answer")
        self.batches.append(asked.ids)
        known = [key for key in asked.ids if not key.startswith("x") or key in self.knows]
        likely = [chances(key) for key in known]
        return Predicted(
            known,
            ["no", "yes"],
            [int(row[1] > row[0]) for row in likely],
            likely,
            [{"lab": "away"} if key.endswith("7") else {} for key in known],
            unknown=[key for key in asked.ids if key not in known],
            truths=["yes" if key == "1" else None for key in known],
            model=self.model,
        )


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "AT_ONCE", 4)


KEYS = st.lists(st.text("x0123456789", min_size=1, max_size=3), max_size=20)


@given(KEYS)
def test_every_key_is_answered_in_its_place_and_asked_about_once(keys: Sequence[str]) -> None:
    party = Party()
    found = answered(party, keys, Journal(None, about("hospital", keys))) if keys else None
    asked = [key for batch in party.batches for key in batch]
    assert asked == list(dict.fromkeys(keys))
    if found is not None:
        assert found.ids == [key for key in keys if not key.startswith("x")]
        assert found.probabilities == [chances(key) for key in found.ids]
        assert set(found.unknown) == {key for key in keys if key.startswith("x")}


@given(falls_at=st.integers(0, 4), torn=st.integers(0, 200))
def test_an_interrupted_request_goes_on_after_the_last_whole_batch(
    falls_at: int, torn: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also if the machine stopped while a batch was written down."""
    path = tmp_path_factory.mktemp("journal") / "out.csv.answers"
    keys = [str(i) for i in range(18)]
    with pytest.raises(ColonnadeError, match="does not answer"):
        answered(Party(falls_at), keys, Journal(path, about("hospital", keys)))
    whole = path.read_bytes()
    start = whole[:-1].rfind(b"\n") + 1
    path.write_bytes(whole[: max(start, len(whole) - torn)])
    again = Party()
    found = answered(again, keys, Journal(path, about("hospital", keys)))
    assert found == answered(Party(), keys, Journal(None, about("hospital", keys)))
    assert len(again.batches) in (5 - falls_at, min(5, 6 - falls_at))


def test_keys_that_were_unknown_before_an_interruption_are_asked_about_again(
    tmp_path: Path,
) -> None:
    """As after `colonnade align --add`, which does not change the model."""
    path, keys = tmp_path / "out.csv.answers", ["1", "x1", "x2", "3", "4", "5"]
    with pytest.raises(ColonnadeError):
        answered(Party(1), keys, Journal(path, about("hospital", keys)))
    again = Party(knows=["x2"])
    found = answered(again, keys, Journal(path, about("hospital", keys)))
    assert again.batches == [["4", "5"], ["x1", "x2"]]
    assert found.ids == ["1", "x2", "3", "4", "5"]
    assert found.unknown == ["x1"]


def test_a_journal_of_other_keys_or_of_another_model_is_not_gone_on_with(tmp_path: Path) -> None:
    path, keys = journal_of(tmp_path / "out.csv"), [str(i) for i in range(9)]
    with pytest.raises(ColonnadeError):
        answered(Party(1), keys, Journal(path, about("hospital", keys)))
    with pytest.raises(InputError, match=r"out.csv.answers: holds answers .* --fresh"):
        Journal(path, about("hospital", ["1"]))
    with pytest.raises(InputError, match=r"begun with the model of round 3.*round 9.*--fresh"):
        answered(Party(model="round 9"), keys, Journal(path, about("hospital", keys)))
    path.write_text("{}\n")
    with pytest.raises(InputError, match=r"is damaged .* --fresh"):
        Journal(path, about("hospital", keys))
    fresh = Journal(path, about("hospital", keys), fresh=True)
    assert len(answered(Party(), keys, fresh).ids) == 9
    fresh.remove()
    assert not path.exists()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_of_answers_can_be_read_as_a_table_of_keys(suffix: str, tmp_path: Path) -> None:
    keys = ["1", "27", "17", "x3", "27"]
    found = answered(Party(), keys, Journal(None, about("hospital", keys)))
    path = tmp_path / f"answers{suffix}"
    write_table(found, path, "patient")
    assert read_keys(path, "patient", None) == ("patient", ["1", "27", "17", "27"], [])
    frame = polars.read_csv(path) if suffix == ".csv" else polars.read_parquet(path)
    assert frame.columns == header(found, "patient")
    assert frame["probability_yes"].to_list() == [chances(key)[1] for key in found.ids]
    assert frame["truth"].to_list() == ["yes", None, None, None]
    assert frame["reasons"].to_list()[1] == "lab: away"


def test_numbers_are_keys_as_they_are_in_the_data_of_a_party(tmp_path: Path) -> None:
    table = polars.DataFrame({"patient": [17, 4], "age": [3.5, 2.0]})
    table.write_parquet(tmp_path / "rows.parquet")
    table.write_csv(tmp_path / "rows.csv")
    for name in ("rows.parquet", "rows.csv"):
        assert read_keys(tmp_path / name, None, "patient") == ("patient", ["17", "4"], [])


BAD = {
    "no such column": ("age\n1\n", "patient", r"no column 'patient'; the nearest is 'age'"),
    "a choice of columns": ("a,b\n1,2\n", None, r"no column 'id'.*--key"),
    "no key in any row": ("id\n\n", None, r"column 'id' is empty in all 1 rows"),
    "no rows": ("id\n", None, r"rows.csv"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_table_without_keys_is_named_with_the_reason(name: str, tmp_path: Path) -> None:
    text, column, why = BAD[name]
    (tmp_path / "rows.csv").write_text(text.replace("\n\n", '\n""\n'))
    with pytest.raises(InputError, match=why):
        read_keys(tmp_path / "rows.csv", column, None)


def test_an_output_that_cannot_be_written_is_refused_before_anybody_is_asked() -> None:
    with pytest.raises(InputError, match=r"--out a.xlsx: expected a name that ends with .csv or"):
        check_out(Path("a.xlsx"))


def test_a_note_says_what_the_answers_lack() -> None:
    party, keys = Party(), ["1", "2", "7", "x1", "x2"]
    found = answered(party, keys, Journal(None, about("hospital", keys)))
    assert notes(found) == [
        "3 predictions, most with every party.",
        "1 of them without lab: away.",
        "2 keys are not known, without an answer: x1, x2.",
    ]
    *_, unmatched = notes(found, matched=True)
    assert unmatched == "2 keys are not among the matched rows, without an answer: x1, x2."
    none = Predicted([], unknown=["x1"])
    with pytest.raises(InputError, match=r"none of the 1 rows .*\(x1\) is among the matched rows"):
        check_known(none, "hospital", matched=True)
    alone = msgspec.structs.replace(found, absent=[{"lab": "away"}] * 3, unknown=[])
    assert notes(alone) == ["3 predictions, without lab (away)."]


def test_a_name_of_a_class_does_not_hide_another_column() -> None:
    found = Predicted(["1"], ["a", "a"], [0], [[0.5, 0.5]], [{}])
    assert len(set(header(found))) == len(header(found))
    file = io.StringIO(newline="")
    write_csv(found, file)
    assert len(next(csv.reader(io.StringIO(file.getvalue())))) == len(header(found))
