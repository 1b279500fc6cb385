"""`colonnade predict` and `colonnade serve` as a person types them; a function answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars
import pytest
from tests.command_line import colonnade
from tests.federation.asking.test_batches import Party

from colonnade.errors import ColonnadeError
from colonnade.federation.asking import batches, predictions
from colonnade.federation.member.prediction_requests import Asked, Predicted

FEDERATION = """
name = "test"
[data]
dataset = "digits"
parties = 2
[method]
algorithm = "splitnn"
[network]
transport = "tcp"
[[parties]]
name = "lab"
role = "clients"
endpoint = "127.0.0.1:7001"
[[parties]]
name = "hospital"
roles = ["clients", "server"]
endpoint = "127.0.0.1:7002"
"""


class Asker(Party):
    """In place of the real one. Ctrl-C comes at batch `interrupt`."""

    interrupt: int | None = None
    rows: tuple[str, ...] = ("1", "2")

    def __init__(self, party: Any) -> None:
        super().__init__()

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def ask(self, asked: Asked) -> Predicted:
        if asked.listing:
            return Predicted(list(self.rows))
        if len(self.batches) == self.interrupt:
            raise KeyboardInterrupt
        return self(asked)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "federation.toml").write_text(FEDERATION)
    for party in ("hospital", "lab"):
        text = f'federation = "federation.toml"\nparty = "{party}"\n'
        (tmp_path / f"{party}.toml").write_text(text)
    polars.DataFrame({"patient": range(10), "age": 1}).write_csv(tmp_path / "rows.csv")
    monkeypatch.setattr(predictions, "Asker", Asker)
    monkeypatch.setattr(batches, "AT_ONCE", 4)
    return tmp_path


WORDS = ("predict", "hospital.toml", "rows.csv", "--key", "patient", "--out", "out.parquet")


def test_an_interrupted_command_keeps_its_answers_and_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Asker, "interrupt", 2)
    stopped = colonnade(*WORDS, folder=folder)
    assert stopped.returncode == 1
    assert "8 answers are kept in out.parquet.answers. The same command goes on." in stopped.stderr
    assert not (folder / "out.parquet").exists()
    monkeypatch.setattr(Asker, "interrupt", 1)
    done = colonnade(*WORDS, folder=folder)
    assert done.returncode == 0, done.stderr
    assert not (folder / "out.parquet.answers").exists()
    frame = polars.read_parquet(folder / "out.parquet")
    assert frame["patient"].to_list() == [str(key) for key in range(10)]
    again = colonnade(*WORDS, "--fresh", folder=folder)
    assert again.returncode == 1, "two batches are asked for before the second is interrupted"


def test_unknown_keys_are_named_and_none_that_is_known_is_a_mistake(folder: Path) -> None:
    some = colonnade("predict", "hospital.toml", "--ids", "1,x1,x2", folder=folder)
    assert some.returncode == 0
    assert "2 keys are not known, without an answer: x1, x2." in some.stderr
    assert some.stdout.splitlines()[1].startswith("1,")
    none = colonnade("predict", "hospital.toml", "--ids", "x1", "--out", "a.csv", folder=folder)
    assert none.returncode == 2
    assert "hospital has none of the 1 rows that were asked for (x1)" in none.stderr
    assert not list(folder.glob("a.csv*"))


def test_a_row_without_a_key_does_not_keep_the_others_from_being_answered(folder: Path) -> None:
    (folder / "some.csv").write_text("patient,age\n1,30\n,40\n2,50\n  ,60\n")
    done = colonnade("predict", "hospital.toml", "some.csv", "--key", "patient", folder=folder)
    assert done.returncode == 0, done.stderr
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == ["patient", "1", "2"]
    assert "2 rows have no key and no answer: data rows 2, 4 (data rows count" in done.stderr
    told = colonnade(
        "predict", "hospital.toml", "some.csv", "--key", "patient", "--json", folder=folder
    )
    assert json.loads(told.stdout)["rows_without_key"] == [2, 4]
    (folder / "none.csv").write_text("patient,age\n,30\n,40\n")
    none = colonnade("predict", "hospital.toml", "none.csv", "--key", "patient", folder=folder)
    assert none.returncode == 2
    assert "none.csv: column 'patient' is empty in all 2 rows" in none.stderr


def test_a_file_of_ids_has_one_in_each_line(folder: Path) -> None:
    (folder / "ids.txt").write_text("x 1\n1\n\n")
    found = colonnade("predict", "hospital.toml", "--ids", "@ids.txt", folder=folder)
    assert "1 key is not known, without an answer: x 1." in found.stderr
    assert [line.split(",")[0] for line in found.stdout.splitlines()] == ["id", "1"]


def test_without_rows_those_are_asked_about_that_nobody_trained_on(folder: Path) -> None:
    found = colonnade("predict", "hospital.toml", folder=folder)
    assert [line.split(",")[0] for line in found.stdout.splitlines()] == ["id", "1", "2"]


BAD = {
    "both a file and ids": (("predict", "hospital.toml", "rows.csv", "--ids", "1"), "not both"),
    "no such column": (("predict", "hospital.toml", "rows.csv", "--key", "name"), "no column"),
    "no such file": (("predict", "hospital.toml", "lost.csv"), "lost.csv"),
    "a file of another kind": (("predict", "hospital.toml", "rows.txt"), "expected a table of"),
    "an output of another kind": (("predict", "hospital.toml", "--out", "a.txt"), "--out a.txt"),
    "other machines without a token": (("serve", "hospital.toml", "--host", "0.0.0.0"), "--tls"),
    "TLS without certificates": (("serve", "hospital.toml", "--tls"), "has no certificate"),
    "a token that is not there": (("serve", "hospital.toml", "--token", "lost"), "--new-token"),
    "a party that does not learn predictions": (("serve", "lab.toml"), "serve is for the label"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_named_before_anybody_is_asked(name: str, folder: Path) -> None:
    words, why = BAD[name]
    done = colonnade(*words, folder=folder)
    assert done.returncode == 2, done.stderr
    assert why in done.stderr
    assert "Traceback" not in done.stderr


def test_a_party_that_falls_in_the_middle_is_told_and_its_answers_stay(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def falls(self: Asker, asked: Asked) -> Predicted:
        if self.batches:
            raise ColonnadeError("hospital does not answer")
        return self(asked)

    monkeypatch.setattr(Asker, "ask", falls)
    done = colonnade(*WORDS, folder=folder)
    assert done.returncode == 1
    assert "hospital does not answer" in done.stderr
    assert (folder / "out.parquet.answers").exists()


def test_a_new_token_is_in_the_folder_of_the_party(folder: Path) -> None:
    done = colonnade("serve", "hospital.toml", "--new-token", folder=folder)
    assert done.returncode == 0
    path = folder / "hospital" / "serve.token"
    assert path.stat().st_mode & 0o777 == 0o600
    assert str(path.relative_to(folder)) in done.stderr
    assert path.read_text().strip() not in done.stderr + done.stdout
