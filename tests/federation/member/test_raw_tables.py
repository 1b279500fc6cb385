"""Parties with raw tables: what nobody types is found, large tables stay in a file, and a file that
changes while the training goes on is noticed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from colonnade.data import table_files
from colonnade.data.row_splits import TEST, TRAIN, unpacked_parts
from colonnade.data.stored import StoredRows
from colonnade.errors import InputError, Unsuited
from colonnade.federation.agreement.party_file import PartyFile, read_party
from colonnade.federation.member.finding import Finding, Found
from colonnade.federation.member.leaderless import member_kind
from colonnade.federation.member.member import Member
from colonnade.federation.member.own_data import read_own
from colonnade.federation.member.prediction_requests import Predictor
from colonnade.federation.member.stage import Stage
from colonnade.federation.member.status import status
from colonnade.network.clock import SECOND, Clock
from colonnade.network.transport.memory import MemoryTransport
from colonnade.testing import run_projected

ROWS = 80
FEDERATION = """
name = "raw"
[rows]
classes = 2
SPLIT
[method]
algorithm = "splitnn"
epochs = 2
[[parties]]
name = "hospital"
roles = ["clients", "server"]
endpoint = "localhost:7001"
[[parties]]
name = "clinic"
role = "clients"
endpoint = "localhost:7002"
[[parties]]
name = "lab"
role = "clients"
endpoint = "localhost:7003"
[network]
transport = "tcp"
"""
DATA = {
    "hospital": 'path = "hospital.csv"\nid = "id"\nlabel = "y"\n',
    "clinic": 'path = "clinic.csv"\nid = "id"\n',
    "lab": 'path = "lab.parquet"\nid = "id"\n',
}


def write(folder: Path, split: str = "") -> None:
    import polars

    (folder / "federation.toml").write_text(FEDERATION.replace("SPLIT", split))
    ids = np.random.default_rng(0).permutation(ROWS)
    lines = [f"{i},{i % 3},2024-{1 + i % 12:02}-01,{i % 2}" for i in ids]
    (folder / "hospital.csv").write_text("id,stay,day,y\n" + "\n".join(lines) + "\n")
    lines = [f"{i},{'' if i % 5 == 0 else i},{['Rome', 'Oslo'][i % 2]}" for i in sorted(ids)]
    (folder / "clinic.csv").write_text("id,age,city\n" + "\n".join(lines) + "\n")
    columns = {"id": ids, "sugar": ids * 0.5, "smoker": [bool(i % 3) for i in ids]}
    polars.DataFrame(columns).write_parquet(folder / "lab.parquet")


def party(folder: Path, name: str, more: str = "") -> PartyFile:
    path = folder / f"{name}.toml"
    rest = f'federation = "federation.toml"\nparty = "{name}"\n[data]\n{DATA[name]}{more}'
    path.write_text(rest)
    return read_party(path)


class Meeting:
    """Neighbours in memory, each of which answers at once."""

    def __init__(self, findings: dict[str, Finding]) -> None:
        self.findings, self.clock = findings, Clock()

    def found(self) -> dict[str, Found]:
        found: dict[str, Found] = {}

        async def one(name: str) -> None:
            found[name] = await self.findings[name].find(Seat(name, self))

        self.clock.run(*((name, one(name)) for name in self.findings))
        return found


class Seat:
    def __init__(self, party: str, meeting: Meeting) -> None:
        self.party, self.meeting, self.clock = party, meeting, meeting.clock

    def ask(self, party: str, name: str, take: Callable[[bytes], None]) -> None:
        take(self.meeting.findings[party].answer())


def meet(folder: Path, **more: str) -> dict[str, Found]:
    everybody = {name: party(folder, name, more.get(name, "")) for name in DATA}
    return Meeting({name: Finding(one) for name, one in everybody.items()}).found()


def test_an_answer_that_tells_nothing_new_is_no_reason_to_ask_again(tmp_path: Path) -> None:
    """Else a party that waits for somebody asks the others without a pause, and is too busy to let
    the missing one in."""
    write(tmp_path)
    clinic, lab = (Finding(party(tmp_path, name)) for name in ("clinic", "lab"))
    heard: list[int] = []
    clinic.news.notify = lambda: heard.append(1)
    for _ in range(3):
        clinic.take("lab", lab.answer())
    assert heard == [1]


def test_numbers_of_rows_and_columns_are_found_when_parties_meet(tmp_path: Path) -> None:
    write(tmp_path)
    found = meet(tmp_path)
    assert len({str(one) for one in found.values()}) == 1
    one = found["lab"]
    assert (one.aligned, one.columns) == (ROWS, {"hospital": 6, "clinic": 4, "lab": 2})
    clinic = party(tmp_path, "clinic")
    assert not clinic.federation.complete
    whole = one.complete(clinic.federation)
    assert whole.complete
    assert whole.task().widths == (6, 4, 2)
    assert {one.complete(party(tmp_path, p).federation).hash for p in DATA} == {whole.hash}


def test_a_typed_number_of_columns_that_is_wrong_stays_an_error(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "federation.toml"
    path.write_text(
        path.read_text().replace(":7002", ':7002"\ncolumns = 2\nx = "').replace('\nx = ""', "")
    )
    with pytest.raises(InputError, match=r"2 columns .*become 4 numbers, but .*columns = 2"):
        meet(tmp_path)


def test_files_with_different_numbers_of_rows_are_told_to_all(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "clinic.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(Unsuited, match=r"different numbers of rows .*clinic 79.*rows\.aligned"):
        meet(tmp_path)


def test_one_party_says_by_time_which_rows_are_for_test(tmp_path: Path) -> None:
    write(tmp_path, 'split_by = { party = "hospital", time = "day" }')
    found = meet(tmp_path)
    assert found["hospital"].columns["hospital"] == 1, "the column that splits is no feature"
    parts = unpacked_parts(found["clinic"].parts or "", ROWS)
    assert found["clinic"].parts == found["lab"].parts
    by_text = sorted(range(ROWS), key=str)  # the common order is that of ids as text
    months = np.array([1 + i % 12 for i in by_text])
    assert months[parts == TEST].min() > months[parts != TEST].max()
    clinic = party(tmp_path, "clinic")
    whole = found["clinic"].complete(clinic.federation)
    assert whole.rows is not None
    assert whole.rows.split(0).test.tolist() == np.flatnonzero(parts == TEST).tolist()


@pytest.mark.parametrize("by", ["group", "column"])
def test_one_party_says_by_group_or_by_column_which_rows_are_for_test(
    by: str, tmp_path: Path
) -> None:
    write(tmp_path, f'split_by = {{ party = "clinic", {by} = "split" }}')
    path = tmp_path / "clinic.csv"
    header, *lines = path.read_text().splitlines()
    words = {"group": "abcdefgh", "column": ("test", "train", "train", "validation")}[by]
    ids = [int(line.partition(",")[0]) for line in lines]
    told = [f"{line},{words[i % len(words)]}" for i, line in zip(ids, lines, strict=True)]
    path.write_text("\n".join([f"{header},split", *told]) + "\n")
    found = meet(tmp_path)
    assert found["clinic"].columns["clinic"] == 4, "the column that splits is no feature"
    parts = unpacked_parts(found["hospital"].parts or "", ROWS)
    by_word: dict[str, set[int]] = {}
    for i, part in zip(sorted(range(ROWS), key=str), parts.tolist(), strict=True):
        by_word.setdefault(words[i % len(words)], set()).add(part)
    assert all(len(one) == 1 for one in by_word.values()), "what belongs together stays together"
    assert by == "group" or by_word["test"] == {TEST}
    assert {TEST, TRAIN} <= {part for one in by_word.values() for part in one}


def test_a_declared_treatment_is_used_and_a_column_that_is_not_there_is_named(
    tmp_path: Path,
) -> None:
    write(tmp_path)
    found = meet(tmp_path, clinic='prepare = { city = "drop" }\n')
    assert found["lab"].columns["clinic"] == 2
    with pytest.raises(InputError, match=r"data\.prepare names 'town'.*nearest is 'city'"):
        read_own(complete(tmp_path, "clinic", found["lab"], 'prepare = { town = "drop" }\n'))


def complete(folder: Path, name: str, found: Found, more: str = "") -> PartyFile:
    from dataclasses import replace

    one = party(folder, name, more)
    return replace(one, federation=found.complete(one.federation))


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Parquet file counts as large, and is read in parts of a few rows."""
    monkeypatch.setattr(table_files, "LARGE", 0)
    monkeypatch.setattr(table_files, "CHUNK", 100)


@pytest.mark.parametrize("name", ["lab", "clinic"])
def test_a_large_table_gives_the_numbers_of_a_small_one(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The laboratory's is a Parquet file, that of the clinic a CSV file with gaps and words."""
    pytest.importorskip("duckdb")
    write(tmp_path)
    found = meet(tmp_path)[name]
    small = read_own(complete(tmp_path, name, found))
    request.getfixturevalue("large")
    own = read_own(complete(tmp_path, name, found))
    assert isinstance(own.x, StoredRows)
    assert isinstance(small.x, torch.Tensor)
    assert tuple(own.ids) == tuple(small.ids)
    assert torch.equal(own.x[torch.arange(ROWS)], small.x)
    assert torch.equal(own.rows(["7", "nobody"]), small.rows(["7", "nobody"]))
    assert own.features is not None
    assert small.features is not None
    assert own.features.kept.digest == small.features.kept.digest


def test_a_large_table_trains_the_same_model(tmp_path: Path, request) -> None:
    write(tmp_path)
    found = meet(tmp_path)["lab"]

    def trained() -> dict[str, dict[str, torch.Tensor]]:
        everybody = {name: read_own(complete(tmp_path, name, found)) for name in DATA}
        federation = complete(tmp_path, "lab", found).federation

        async def train(net) -> dict[str, dict[str, torch.Tensor]]:
            plays = federation.algorithm()
            plays.join(net, everybody[net.party].data)
            await plays.train(net)
            return plays.tensors(net)

        return run_projected(federation.algorithm().world(), train)["lab"]

    small = trained()
    request.getfixturevalue("large")
    for name, value in trained()["lab"].items():
        assert torch.equal(value, small["lab"][name]), name


def test_a_party_started_again_refuses_a_file_whose_rows_have_changed(tmp_path: Path) -> None:
    write(tmp_path)
    found = meet(tmp_path)["clinic"]
    clinic = complete(tmp_path, "clinic", found)
    before = read_own(clinic)
    before.keep(clinic.folder)
    (clinic.folder / "checkpoints").mkdir()
    (clinic.folder / "checkpoints" / "clinic.checkpoint.safetensors").touch()
    path = tmp_path / "clinic.csv"
    text = path.read_text()
    path.write_text(text + "99,12,Lima\n")  # a later row is for predictions
    again = read_own(clinic)
    assert isinstance(again.x, torch.Tensor)
    assert isinstance(before.x, torch.Tensor)
    assert torch.equal(again.x[:ROWS], before.x)
    assert any("1 cells hold values that no training row has" in n for n in again.data.notes)
    path.write_text(text.replace("Rome", "Oslo", 1))
    with pytest.raises(InputError, match=r"clinic\.csv: its rows have changed since the training"):
        read_own(clinic)
    path.write_text(text)
    with pytest.raises(InputError, match=r"\[data\] of the party file has changed since"):
        read_own(complete(tmp_path, "clinic", found, 'prepare = { age = "quantile" }\n'))
    assert torch.equal(read_own(clinic).x, before.x)  # pyright: ignore[reportArgumentType]


def test_a_party_started_again_names_a_column_that_is_missing_or_new(tmp_path: Path) -> None:
    write(tmp_path)
    found = meet(tmp_path)["clinic"]
    clinic = complete(tmp_path, "clinic", found)
    read_own(clinic).keep(clinic.folder)
    (clinic.folder / "checkpoints").mkdir()
    (clinic.folder / "checkpoints" / "clinic.checkpoint.safetensors").touch()
    path = tmp_path / "clinic.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line.rpartition(",")[0] for line in lines) + "\n")
    with pytest.raises(InputError, match=r"column 'city' is missing, which the model was trained"):
        read_own(clinic)
    path.write_text("\n".join([lines[0] + ",weight", *(f"{line},7" for line in lines[1:])]) + "\n")
    with pytest.raises(InputError, match=r"column 'weight' is new.*list the others in data\.colu"):
        read_own(clinic)
    again = read_own(complete(tmp_path, "clinic", found, 'columns = ["age", "city"]\n'))
    assert again.data.train.x[1].shape[1] == 4


def test_a_file_that_changes_while_the_party_runs_is_noticed(tmp_path: Path) -> None:
    write(tmp_path)
    own = read_own(complete(tmp_path, "clinic", meet(tmp_path)["clinic"]))
    assert own.features is not None
    assert not own.features.file_changed
    path = tmp_path / "clinic.csv"
    path.write_text(path.read_text() + "99,12,Lima\n")
    assert own.features.file_changed
    path.unlink()
    assert own.features.file_changed


@pytest.mark.parametrize("when", ["training", "answering"])
def test_a_file_that_changes_is_told_when_the_training_ends_and_when_the_party_answers(
    when: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The rows stay as they were read; the log and the status say so."""
    write(tmp_path)
    found, clock = meet(tmp_path), Clock()
    room = MemoryTransport(clock)
    files = {name: complete(tmp_path, name, found[name]) for name in DATA}
    fed = files["clinic"].federation
    members: dict[str, Member] = {
        name: member_kind(fed)(fed, read_own(one), room.seat(name), one.folder, life=1)
        for name, one in files.items()
    }

    def change() -> None:
        with (tmp_path / "clinic.csv").open("a") as file:
            file.write("99,12,Lima\n")

    def told() -> list[str]:
        assert status(members["hospital"])["remarks"] == []
        lines = [one for one in caplog.messages if "the file has changed since" in one]
        assert all(one.startswith("clinic: ") and "clinic.csv" in one for one in lines)
        assert len(lines) == len(status(members["clinic"])["remarks"])
        return lines

    async def story() -> None:
        ends = (Stage.ANSWERING, Stage.TRAINED)
        while any(one.state.stage not in ends for one in members.values()):
            await clock.sleep_until(clock.now + SECOND // 10)
        assert len(told()) == (when == "training")
        if when == "answering":
            change()
        replies: list[bytes] = []
        Predictor(members["hospital"], replies.append).begin(b'{"ids": ["1"]}')
        while not replies:
            await clock.sleep_until(clock.now + SECOND // 100)
        assert len(told()) == 1, "once, however often it is asked"

    if when == "training":
        change()
    for name, one in members.items():
        clock.spawn(one.live(), name)
    clock.run(("story", story()))


def test_a_query_is_the_table_of_a_party(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    write(tmp_path)
    found = meet(tmp_path, lab='query = "SELECT *, sugar * 2 AS double FROM data"\n')
    assert found["clinic"].columns["lab"] == 3
    assert not list((tmp_path / "lab").glob("query*")), "the result of the query is removed"


@pytest.mark.usefixtures("large")
def test_a_large_result_is_prepared_anew_if_a_file_that_the_query_joins_has_changed(
    tmp_path: Path,
) -> None:
    """The file in data.path is the same, and the other one is not; an attached database, too."""
    duckdb = pytest.importorskip("duckdb")
    write(tmp_path)
    with duckdb.connect(str(tmp_path / "more.duckdb")) as connection:
        connection.execute(
            f"CREATE TABLE iron AS SELECT i AS id, i AS iron FROM range({ROWS}) t(i)"
        )
    other = tmp_path / "more.csv"
    text = "id,age\n" + "".join(f"{i},{i % 7}\n" for i in range(ROWS))
    other.write_text(text)
    query = "SELECT * FROM data JOIN 'more.csv' USING (id) JOIN more.iron USING (id) ORDER BY id"
    more = f'query = "{query}"\nattach = {{ more = "more.duckdb" }}\n'
    found = meet(tmp_path, lab=more)["lab"]
    assert found.columns["lab"] == 4
    lab = complete(tmp_path, "lab", found, more)
    read_own(lab).keep(lab.folder)
    (lab.folder / "checkpoints").mkdir()
    (lab.folder / "checkpoints" / "lab.checkpoint.safetensors").touch()
    kept = (lab.folder / "features.f32").stat().st_ino
    read_own(lab)
    assert (lab.folder / "features.f32").stat().st_ino == kept, "nothing has changed"
    other.write_text(text.replace("\n5,5\n", "\n5,6\n"))
    with pytest.raises(InputError, match="its rows have changed since the training began"):
        read_own(lab)
