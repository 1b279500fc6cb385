"""Raw tables whose rows overlap in part: matched, prepared, trained on and asked about."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tests.federation.member.test_aligning import align_in
from tests.federation.member.test_raw_tables import Meeting

from colonnade.data import table_files
from colonnade.data.partition import Rows, VerticalData
from colonnade.data.stored import StoredRows
from colonnade.errors import InputError, Unsuited
from colonnade.federation.agreement.party_file import PartyFile, read_party
from colonnade.federation.asking.batches import Journal, about, answered
from colonnade.federation.asking.predictions import read_answer
from colonnade.federation.member.aligning.process import read_own_rows
from colonnade.federation.member.finding import Finding, Told, matching
from colonnade.federation.member.leaderless import member_kind
from colonnade.federation.member.own_data import OwnData, read_own
from colonnade.federation.member.prediction_requests import Asked, Predicted, Predictor
from colonnade.federation.member.stage import Stage
from colonnade.network import Network
from colonnade.network.clock import SECOND, Clock
from colonnade.network.transport.memory import MemoryTransport
from colonnade.testing.engines import run_projected, run_stacked

pytest.importorskip("private_set_intersection")

FEDERATION = """
name = "matched"
[rows]
match = "private"
normalise = ["trim", "case"]
CLASSES
SPLIT
[method]
algorithm = "ALGORITHM"
epochs = 2
[[parties]]
name = "hospital"
roles = ["clients", "LABELS"]
endpoint = "localhost:7001"
[[parties]]
name = "clinic"
role = "clients"
endpoint = "localhost:7002"
[[parties]]
name = "lab"
role = "clients"
endpoint = "localhost:7003"
BROKER
[network]
transport = "tcp"
gather = 5.0
"""
BROKER = '[[parties]]\nname = "broker"\nrole = "aggregators"\nendpoint = "localhost:7004"'
HOLDERS = {"hospital": range(60), "clinic": range(4, 70), "lab": range(2, 64)}
READY = (Stage.ANSWERING, Stage.TRAINED)
COMMON, UNLABELLED = range(4, 60), range(50, 60)
SPELLING = {"hospital": "Patient{}", "clinic": "patient{}", "lab": " PATIENT{}"}


def write(
    folder: Path,
    algorithm: str = "splitnn",
    split: str = "",
    goal: str = "",
    holders: Mapping[str, range] = HOLDERS,
) -> None:
    """Words, dates and gaps, in an order and with a spelling of each party's own."""
    import polars

    alone = algorithm == "dvfl"
    text = FEDERATION.replace("ALGORITHM", algorithm).replace("SPLIT", split)
    text = text.replace("LABELS", "owner" if alone else "server")
    text = text.replace("CLASSES", goal or "classes = 2")
    (folder / "federation.toml").write_text(text.replace("BROKER", BROKER if alone else ""))
    rng = np.random.default_rng(0)
    rows = {p: rng.permutation(held).tolist() for p, held in holders.items()}
    keys = {p: [SPELLING[p].format(i) for i in held] for p, held in rows.items()}
    lines = [
        f"{key},{i % 3},2024-{1 + i % 12:02}-01,{'' if i in UNLABELLED else ['no', 'yes'][i % 2]}"
        for key, i in zip(keys["hospital"], rows["hospital"], strict=True)
    ]
    (folder / "hospital.csv").write_text("\n".join(["who,stay,day,ill", *lines]))
    lines = [
        f"{key},{'' if i % 5 == 0 else i},{['Rome', 'Oslo'][i % 2]}"
        for key, i in zip(keys["clinic"], rows["clinic"], strict=True)
    ]
    (folder / "clinic.csv").write_text("\n".join(["who,age,city", *lines]))
    lab = {"who": keys["lab"], "sugar": [i * 0.5 for i in rows["lab"]]}
    polars.DataFrame(lab).write_parquet(folder / "lab.parquet")
    for party in (*HOLDERS, *(["broker"] if alone else [])):
        table = f'federation = "federation.toml"\nparty = "{party}"\n'
        if party in HOLDERS:
            kind = "parquet" if party == "lab" else "csv"
            table += f'[data]\npath = "{party}.{kind}"\nid = "who"\n'
        table += 'label = "ill"\n' if party == "hospital" else ""
        (folder / f"{party}.toml").write_text(table)


def matched(folder: Path) -> dict[str, PartyFile]:
    """Each party once it has matched its rows and knows what the others' files hold."""
    fed = read_party(folder / "lab.toml", aligned=False).federation
    align_in(folder, fed)
    parties = {party: read_party(folder / f"{party}.toml") for party in fed.members}
    found = Meeting({name: Finding(one) for name, one in parties.items()}).found()
    return {
        name: replace(one, federation=found[name].complete(one.federation))
        for name, one in parties.items()
    }


def test_words_gaps_and_rows_that_overlap_in_part_train_and_answer(tmp_path: Path) -> None:
    """The hospital asks with a table of keys; no key leaves it, in whatever spelling."""
    write(tmp_path)
    parties = matched(tmp_path)
    assert len({one.federation.hash for one in parties.values()}) == 1
    fed = parties["lab"].federation
    assert fed.rows is not None
    assert (fed.rows.aligned, fed.task().widths) == (len(COMMON) - len(UNLABELLED), (6, 4, 1))
    asked = [f"patient{i} " for i in UNLABELLED] + ["PATIENT7", "patient1", "nobody"]
    new, found, sent = trained_and_asked(tmp_path, parties, asked)
    assert sorted(new.ids) == [f"Patient{i}" for i in UNLABELLED], "as the hospital writes them"
    assert found.ids == asked[:-2], "as they were asked for"
    assert found.unknown == asked[-2:], "the clinic lacks patient1"
    assert found.absent == [{}] * len(found.ids)
    assert found.truths == [None] * len(UNLABELLED) + ["yes"]
    whole = answered(lambda one: found, asked, Journal(None, about("hospital", asked)))
    assert whole.ids == found.ids
    assert sent
    assert not any(b"patient" in data.lower() for data in sent)


def trained_and_asked(
    folder: Path, parties: Mapping[str, PartyFile], asked: list[str]
) -> tuple[Predicted, Predicted, list[bytes]]:
    """What the hospital lists, and answers about these rows once all have trained; all messages."""
    clock = Clock()
    transport = MemoryTransport(clock)
    sent: list[bytes] = []
    members = {}
    fed = parties["lab"].federation
    for party, one in parties.items():
        seat: Any = transport.seat(party)
        publish: Callable[..., None] = seat.publish
        seat.publish = lambda to, data, publish=publish: (sent.append(data), publish(to, data))
        own = read_own(one)
        members[party] = member_kind(fed)(fed, own, seat, folder / party, life=1)
    answer: list[Predicted] = []

    async def story() -> None:
        while any(m.state.stage not in READY for m in members.values()):
            await clock.sleep_until(clock.now + SECOND // 10)
        replies: list[bytes] = []
        Predictor(members["hospital"], replies.append).begin(
            msgspec.json.encode(Asked(asked, truths=True))
        )
        Predictor(members["hospital"], replies.append).begin(
            msgspec.json.encode(Asked(listing=True))
        )
        while len(replies) < 2:
            await clock.sleep_until(clock.now + SECOND // 100)
        answer.extend(read_answer(reply, "hospital") for reply in replies)

    for one in members.values():
        clock.spawn(one.live(), one.party)
    clock.run(("story", story()))
    new, found = sorted(answer, key=lambda one: len(one.absent))
    return new, found, sent


OVERLAP = {"hospital": range(60), "clinic": range(10, 70), "lab": range(45)}


def test_rows_that_some_party_lacks_train_and_are_answered_with_that_party_absent(
    tmp_path: Path,
) -> None:
    write(tmp_path, split="partial = true", holders=OVERLAP)
    parties = matched(tmp_path)
    rows = parties["lab"].federation.rows
    assert rows is not None
    assert rows.aligned == 60 - len(UNLABELLED), "each row is at the clinic or at the lab"
    asked = ["patient3", "patient20", "patient48", "patient55", "patient65"]
    new, found, sent = trained_and_asked(tmp_path, parties, asked)
    assert len(new.ids) == len(UNLABELLED)
    assert found.ids == asked[:-1]
    assert found.unknown == ["patient65"], "the hospital lacks it"
    assert [list(who) for who in found.absent] == [["clinic"], [], ["lab"], ["lab"]]
    assert all("lacks" in why for who in found.absent for why in who.values())
    assert not any(b"patient" in data.lower() for data in sent)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("algorithm", ["splitnn", "vfb2"])
def test_parties_with_rows_of_their_own_train_what_a_simulation_trains(
    tmp_path: Path, algorithm: str, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, algorithm, split="partial = true", holders=OVERLAP)
    if large:  # the lab's table stays in a file
        monkeypatch.setattr(table_files, "LARGE", 0)
    parties = matched(tmp_path)
    own, fed = {name: read_own(one) for name, one in parties.items()}, parties["lab"].federation
    assert isinstance(own["lab"].x, StoredRows) == large

    def training(net: Network, data: VerticalData) -> Coroutine[Any, Any, Any]:
        async def train() -> Any:
            plays = fed.algorithm()
            plays.join(net, data)
            await plays.train(net)
            return plays.tensors(net)

        return train()

    world, whole = fed.algorithm().world(), pooled(own)
    assert whole.train.held is not None
    assert not whole.train.held[1:].all(1).any()
    together = run_stacked(world, lambda net: training(net, whole))
    alone = run_projected(world, lambda net: training(net, own[net.party].data))  # pyright: ignore[reportAttributeAccessIssue]
    for name, tensors in together.items():
        for key, value in tensors.items():
            torch.testing.assert_close(alone[name][name][key], value, rtol=1e-5, atol=1e-6)


def pooled(own: Mapping[str, OwnData]) -> VerticalData:
    """All that the parties have, as one simulation has it."""

    def part(name: str) -> Rows:
        x = [getattr(one.data, name).x[i] for i, one in enumerate(own.values())]
        known = getattr(own["hospital"].data, name)
        return Rows(tuple(one[torch.arange(len(known))] for one in x), known.y, known.held)

    parts = {name: part(name) for name in ("train", "validation", "test")}
    return replace(own["clinic"].data, **parts)


def test_a_party_without_a_row_to_train_on_is_told_so(tmp_path: Path) -> None:
    few = OVERLAP | {"lab": range(52, 58)}  # rows without a label
    write(tmp_path, split="partial = true", holders=few)
    align_in(tmp_path, read_party(tmp_path / "lab.toml", aligned=False).federation)
    with pytest.raises(InputError, match=r"lab.parquet: has none of the rows that are trained on"):
        read_own(read_party(tmp_path / "lab.toml"))


def test_rows_for_test_may_be_chosen_by_a_column_of_matched_rows(tmp_path: Path) -> None:
    write(tmp_path, split='split_by = { party = "hospital", time = "day" }')
    parties = matched(tmp_path)
    own = read_own(parties["hospital"])
    rows = parties["hospital"].federation.rows
    assert rows is not None
    month = lambda key: 1 + int(key.lower().removeprefix("patient")) % 12  # noqa: E731
    split = rows.split(0)
    months = {
        part: [month(own.names([str(own.ids[i])])[0]) for i in getattr(split, part)]
        for part in ("train", "test")
    }
    assert max(months["train"]) <= min(months["test"])


def test_a_large_table_stays_in_a_file_with_the_rows_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "dvfl")
    monkeypatch.setattr(table_files, "LARGE", 0)
    parties = matched(tmp_path)
    lab = read_own(parties["lab"])
    assert isinstance(lab.x, StoredRows)
    extra = lab.data.extra[2]
    assert isinstance(extra, StoredRows)
    assert (
        len(extra) == len(lab.data.extra[0]) == min(len(r) for r in HOLDERS.values()) - len(COMMON)
    )
    fed = parties["lab"].federation
    member = member_kind(fed)(
        fed, lab, MemoryTransport(Clock()).seat("lab"), tmp_path / "lab", life=1
    )
    assert member is not None


def test_a_party_that_matches_anew_is_not_waited_for_without_end(tmp_path: Path) -> None:
    write(tmp_path)
    align_in(tmp_path, read_party(tmp_path / "lab.toml", aligned=False).federation)
    finding = Finding(read_party(tmp_path / "hospital.toml"))
    finding.take("lab", b"")  # which has just matched its rows with us
    told = matching(read_party(tmp_path / "lab.toml", aligned=False).federation)
    with pytest.raises(Unsuited, match=r"lab matches its rows anew.*colonnade align"):
        finding.take("lab", told)
    other = msgspec.json.encode(Told("another", {}))
    with pytest.raises(Unsuited, match=r"file of lab differs .* or its alignment of rows does"):
        finding.take("lab", other)


def test_mistakes_in_a_table_that_is_matched_name_the_column_and_the_row(tmp_path: Path) -> None:
    write(tmp_path, goal='goal = "number"')
    with (tmp_path / "lab.toml").open("a") as file:
        file.write('columns = ["suger"]\n')
    with pytest.raises(InputError, match=r"no column 'suger'.*sugar"):
        read_own_rows(read_party(tmp_path / "lab.toml"))
    path = tmp_path / "lab.toml"
    path.write_text(path.read_text().replace("suger", "sugar"))
    lines = (tmp_path / "hospital.csv").read_text().splitlines()
    lines = [line.replace(",yes", ",1.5").replace(",no", ",2.5") for line in lines]
    bad = next(n for n, line in enumerate(lines) if line.startswith("Patient17,"))
    lines[bad] = lines[bad].replace("1.5", "much")
    (tmp_path / "hospital.csv").write_text("\n".join(lines))
    align_in(tmp_path, read_party(path, aligned=False).federation)
    with pytest.raises(InputError, match=rf"data row {bad} is no number"):
        read_own(read_party(tmp_path / "hospital.toml"))
