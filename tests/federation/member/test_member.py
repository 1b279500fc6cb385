"""Members of a federation through storms, in virtual time, with the algorithms that exist."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from msgspec.structs import astuple

from colonnade.algorithms import registry
from colonnade.common.curves import read_curves
from colonnade.common.results import read_ledger
from colonnade.errors import ColonnadeError, InputError
from colonnade.experiments.report import write_report
from colonnade.experiments.run import drive
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.agreement.party_file import PartyFile
from colonnade.federation.asking.predictions import check_known, read_answer
from colonnade.federation.member.answers import Question
from colonnade.federation.member.leaderless import member_kind
from colonnade.federation.member.member import Member
from colonnade.federation.member.own_data import read_own
from colonnade.federation.member.prediction_requests import Predictor
from colonnade.federation.member.stage import Stage
from colonnade.learning.task import Part, pad_stack
from colonnade.network import ABSENT
from colonnade.network.clock import SECOND, Clock
from colonnade.network.transport.memory import MemoryTransport
from colonnade.testing import stacked
from colonnade.testing.storm import Crew, StormSeat, Weather

METHODS: dict[str, dict[str, Any]] = {
    "splitnn": {"epochs": 3},
    "dvfl": {"epochs": 3, "aggregators": 2, "client_epochs": 2, "aggregator_epochs": 3},
    "fedonce": {"epochs": 3, "client_epochs": 2},
}
FEDERATED = [name for name, kind in registry().items() if not kind.settings.pooled]
# Programs side by side have no fixed order; test_several.py and test_versions.py are about these.
ONE_PROGRAM = [name for name in FEDERATED if not registry()[name].side_by_side]


@cache
def federation(name: str, **more: Any) -> Federation:
    method = {"algorithm": name, **METHODS.get(name, {"epochs": 3}), **more}
    data = {"dataset": "digits", "rows": 300}
    network = {"gather": 5.0, "patience": 0.5}
    table = {"name": "test", "data": data, "method": method, "network": network}
    return parse_federation(table, "test")


def member(fed: Federation, seat: Any, folder: Path, life: int = 1) -> Member:
    own = read_own(PartyFile("test", fed, seat.party, folder))
    return member_kind(fed)(fed, own, seat, folder / seat.party, life=life, once=True)


def calm(fed: Federation, folder: Path) -> dict[str, Member]:
    clock = Clock()
    room = MemoryTransport(clock)
    members = {party: member(fed, room.seat(party), folder) for party in fed.members}
    clock.run(*[(party, one.live()) for party, one in members.items()])
    return members


@pytest.mark.parametrize("name", [*ONE_PROGRAM, "cvfl"])
def test_without_faults_a_federation_is_the_experiment(name: str, tmp_path: Path) -> None:
    fed = federation(name, **({"active": 1} if name == "cvfl" else {}))
    members = calm(fed, tmp_path)
    one = stacked(fed.method, fed.vertical_data(), fed.seed)
    for party, tensors in one.weights.items():
        mine = members[party].algorithm.tensors(members[party].net)[party]
        assert all(float((mine[key] - value).abs().max()) < 1e-6 for key, value in tensors.items())
    result = members[fed.speaker].state.result
    assert result is not None
    if fed.leader:  # else each has a result of its own
        assert result.metrics == pytest.approx(one.metrics)
        with_curves = [p for p in fed.members if read_curves(tmp_path / p, result.run)]
        assert with_curves == [fed.leader]  # what is made of labels stays where they are
    tellers = [fed.leader] if fed.leader else fed.members
    told = [
        (r.phase, r.sender, r.receiver, r.kind, r.messages, r.bytes)
        for teller in tellers
        for r in members[teller].record.rows()
    ]
    inside = [row for row in one.net.ledger.rows() if row[2] in fed.members]
    assert sorted(told) == sorted(inside)
    assert write_report(tmp_path / fed.speaker).exists()


@pytest.mark.parametrize("name", FEDERATED)
def test_the_ledger_on_disk_is_complete_when_a_party_has_left(name: str, tmp_path: Path) -> None:
    """With the messages of the test, at the label holder, at clients and at equal devices."""
    members = calm(federation(name), tmp_path)
    for party, one in members.items():
        written = read_ledger(tmp_path / party, one.record.run)
        assert sorted(map(astuple, written)) == sorted(map(astuple, one.record.rows())), party
    sent = [row for one in members.values() for row in one.record.rows()]
    assert any(row.phase == "inference" for row in sent)


PATIENT = {"splitnn": {"missing": "wait"}, "dvfl": {"missing": "retry"}}
# With "wait", a prediction that too few clients answer in time is none: see the test below.
STORMY = {"fedvs": {"missing": "zeros"}}


@pytest.mark.parametrize("name", ONE_PROGRAM)
@pytest.mark.parametrize("seed", range(5))
def test_a_training_survives_a_storm(
    name: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With checkpoints at every round in half of them, and collections and tests in many parts."""
    monkeypatch.setattr("colonnade.federation.member.keeping.PAUSE", (2.0, 0.0)[seed % 2])
    monkeypatch.setattr("colonnade.federation.member.keeping.SHARE", 0.0)
    monkeypatch.setattr("colonnade.learning.algorithm.PREDICT_ROWS", 64)
    settings = PATIENT.get(name, {}) if seed % 3 == 0 else {}
    fed = federation(name, **STORMY.get(name, settings))
    members: dict[str, Member] = {}

    async def live(seat: StormSeat, life: int) -> None:
        one = members[seat.party] = member(fed, seat, tmp_path, seat.clock.now // 1000 + 1)
        await one.live()

    crew = Crew(seed, fed.members, live)
    crew.run(crashes=(0, 2, 6, 12)[seed % 4])
    able = [members[party] for party in fed.label_holders if members[party].version is not None]
    leader = able[0]  # where nobody leads, a device that was away may have no part of the model
    assert leader.state.result is not None
    weights = {p: one.algorithm.tensors(one.net).get(p, {}) for p, one in members.items()}
    assert all(bool(v.isfinite().all()) for mine in weights.values() for v in mine.values())
    assert leader.state.result.metrics["test_loss"] is not None
    rounds = [point["round"] for point in leader.record.points]
    assert rounds == sorted(set(rounds)), "the curve goes on where it was"


def test_a_test_that_too_few_clients_can_answer_is_told_and_ends_nobody(tmp_path: Path) -> None:
    """In this weather many messages come later than parties that predict wait for them."""
    fed, members = federation("fedvs"), {}

    async def live(seat: StormSeat, life: int) -> None:
        members[seat.party] = member(fed, seat, tmp_path, seat.clock.now // 1000 + 1)
        await members[seat.party].live()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("colonnade.learning.algorithm.PREDICT_ROWS", 64)
        crew = Crew(0, fed.members, live)
        crew.storm.weather = Weather(delay=20, gust=0.3, notice=5)
        crew.run(crashes=0)
    result = members["server"].state.result
    assert result.metrics == {}
    assert any(re.match(r"not tested: K=1, T=1 need 3 of 4 clients, \d", n) for n in result.notes)


def test_a_restarted_label_holder_goes_on_with_what_it_had_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the middle of its own training: collected encodings, their centre, optimiser and
    best round are those of before, and the result is that of the undisturbed run."""
    monkeypatch.setattr("colonnade.federation.member.keeping.PAUSE", 0.0)
    monkeypatch.setattr("colonnade.federation.member.keeping.SHARE", 0.0)
    fed = federation("dvfl", epochs=8)
    undisturbed = calm(fed, tmp_path / "calm")[fed.speaker].state.result
    members: dict[str, Member] = {}

    async def live(seat: StormSeat, life: int) -> None:
        one = members[seat.party] = member(fed, seat, tmp_path, seat.clock.now // 1000 + 1)
        if seat.party == fed.speaker and life == 0:
            begun = one.began

            def crash_late(round: int) -> None:
                begun(round)
                if round == one.algorithm.unlabelled_rounds + 12:
                    now = crew.clock.now
                    crew.clock.call_at(now, lambda: crew.crash(fed.speaker, now))

            one.began = crash_late
        await one.live()

    crew = Crew(5, fed.members, live)
    crew.storm.weather = Weather(delay=0.01, gust=0, duplicate=0, notice=1, ordered=True)
    crew.run(crashes=0)
    leader = members[fed.speaker]
    assert len(crew.lives[fed.speaker]) == 2
    assert leader.state.result is not None
    assert undisturbed is not None
    assert leader.state.result.metrics == pytest.approx(undisturbed.metrics, rel=1e-5)
    assert len(leader.record.points) == len({p["epoch"] for p in leader.record.points}) == 8


@pytest.mark.parametrize("name", ["splitnn", "dvfl"])
def test_a_party_without_the_rows_is_named_and_the_others_answer(name: str, tmp_path: Path) -> None:
    fed, clock = federation(name), Clock()
    room = MemoryTransport(clock)
    members = {party: member(fed, room.seat(party), tmp_path) for party in fed.members}
    members["client2"].own = replace(members["client2"].own, ids=("1",))
    leader = members[fed.speaker]
    answers: list[Any] = []

    async def somebody_asks() -> None:
        while leader.state.result is None:
            await clock.sleep_until(clock.now + SECOND // 10)
        leader.questions.append(Question(["1", "2"], answers.append))
        leader.wake.notify()
        await clock.sleep_until(clock.now + 5 * SECOND)

    for one in members.values():
        one.once = False
        clock.spawn(one.live(), one.party)
    clock.run(("somebody", somebody_asks()))
    assert answers[0].absent == {"client2": "lacks 1 of 2 rows (2)"}


def test_ids_that_the_party_does_not_have_are_a_mistake_of_whoever_asks(tmp_path: Path) -> None:
    fed = federation("splitnn")
    one = calm(fed, tmp_path)[fed.speaker]
    one.state.stage = Stage.ANSWERING
    replies: list[bytes] = []
    Predictor(one, replies.append).begin(b'{"ids": ["x", "y"]}')
    found = read_answer(replies[0], fed.speaker)
    with pytest.raises(InputError, match=r"server has none of the 2 rows .* \(x, y\); ask for ids"):
        check_known(found, fed.speaker)


def test_a_party_that_fails_at_its_part_of_an_answer_is_named_with_that_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are all there: that it lacked some would be untrue, and what an error says of its
    columns is for its own log."""
    fed, part = federation("splitnn"), Member.part

    def failing(one: Member, ids: Any, caller: str = "") -> Part:
        if one.party == "client2":
            raise ColonnadeError("a value of 119.9 in column 3")
        return part(one, ids, caller)

    monkeypatch.setattr(Member, "part", failing)
    members = calm(fed, tmp_path)
    result = members[fed.speaker].state.result
    assert result is not None
    said = "tested without client2 (could not compute its part; its log says why)"
    assert said in result.notes


def test_who_returns_after_the_training_is_asked_like_the_others(tmp_path: Path) -> None:
    """Trained and saved, started again: nobody trains, everybody answers."""
    fed = federation("splitnn")
    first, again = (calm(fed, tmp_path)[fed.speaker].state for _ in range(2))
    assert first.result is not None
    assert again.result is not None
    assert again.result.metrics == first.result.metrics
    assert again.round == first.round == first.result.cost["rounds"]


def test_a_prediction_says_who_was_absent(tmp_path: Path) -> None:
    fed, clock = federation("splitnn"), Clock()
    room = MemoryTransport(clock)
    members = {party: member(fed, room.seat(party), tmp_path) for party in fed.members}
    leader = members[fed.speaker]
    answers: list[Any] = []

    def ask(ids: list[str]) -> None:
        leader.questions.append(Question(ids, answers.append))
        leader.wake.notify()

    async def somebody_asks() -> None:
        while leader.state.result is None:
            await clock.sleep_until(clock.now + SECOND // 10)
        ask(["1", "2", "3"])
        await clock.sleep_until(clock.now + 5 * SECOND)
        members["client1"].transport.close()
        ask(["3", "2"])
        await clock.sleep_until(clock.now + 5 * SECOND)

    for one in members.values():
        one.once = False
        clock.spawn(one.live(), one.party)
    clock.run(("somebody", somebody_asks()))
    everybody, without = answers
    assert everybody.absent == {}
    assert without.absent == {"client1": "away"}
    assert everybody.rows == 3
    test = leader.own.data.test
    one = stacked(fed.method, fed.vertical_data(), fed.seed)
    part = Part(pad_stack([x[:3] for x in test.x]), ABSENT, 3)
    expected = drive(one.algorithm.predict(one.net.within("inference"), part))
    assert torch.allclose(everybody.logits, expected, atol=1e-6)


def test_files_that_differ_are_told_with_the_key(tmp_path: Path) -> None:
    fed, other = federation("splitnn"), federation("splitnn", lr=0.5)
    clock = Clock()
    room = MemoryTransport(clock)
    server = member(fed, room.seat("server"), tmp_path)
    client = member(other, room.seat("client0"), tmp_path)
    with pytest.raises(InputError, match=r"file of server differs from ours in method\.lr"):
        clock.run(("server", server.live()), ("client0", client.live()))


def test_the_label_holder_hears_of_a_differing_file_before_the_party_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The greeting of the label holder comes before the party has noticed that it is there."""
    fed, other = federation("splitnn"), federation("splitnn", lr=0.5)
    clock = Clock()
    room = MemoryTransport(clock)
    server = member(fed, room.seat("server"), tmp_path)
    client = member(other, room.seat("client0"), tmp_path)
    with pytest.raises(InputError, match="file of server differs from ours"):
        clock.run(("server", server.live()), ("client0", client.live()))
    assert "the federation file of client0 differs from ours in method.lr" in caplog.text


def test_rows_that_differ_are_told(tmp_path: Path) -> None:
    fed, clock = federation("splitnn"), Clock()
    room = MemoryTransport(clock)
    server, client = (member(fed, room.seat(party), tmp_path) for party in ("server", "client0"))
    for one, mark in ((server, "aa"), (client, "bb")):
        one.meeting.own = replace(one.own, fingerprint=mark)
        one.post.greeting = one.meeting.greeting()
    with pytest.raises(InputError, match="ids of the aligned rows differ"):
        clock.run(("server", server.live()), ("client0", client.live()))


def test_a_full_disk_leaves_the_checkpoint_before_and_the_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fed = federation("splitnn")
    calm(fed, tmp_path)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*.checkpoint.safetensors")}
    assert len(files) == len(fed.members)

    save = safetensors.torch.save_file

    def full(tensors: Any, path: Path, facts: Any = None) -> None:
        """For checkpoints: with a model that is not on the disk, a process would not end."""
        if "checkpoint" not in Path(path).name:
            return save(tensors, path, facts)
        Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("colonnade.learning.checkpoint.safetensors.torch.save_file", full)
    again = calm(fed, tmp_path)
    assert again[fed.speaker].state.result is not None
    assert "No space left on device" in caplog.text
    assert all(path.read_bytes() == data for path, data in files.items())
    assert not list(tmp_path.rglob("*.partial"))


def test_a_federation_without_test_and_validation_rows_has_a_report(tmp_path: Path) -> None:
    data = {"dataset": "digits", "rows": 300, "test": 0.0, "validation": 0.0}
    method = {"algorithm": "splitnn", "epochs": 2}
    fed = parse_federation({"name": "test", "data": data, "method": method}, "test")
    result = calm(fed, tmp_path)[fed.speaker].state.result
    assert result is not None
    assert result.metrics == {}
    assert write_report(tmp_path / fed.speaker).exists()
