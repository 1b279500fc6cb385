"""A model is one thing across parties: whatever crashes, the parts that are used together are those
that were measured together.

The oracle knows nothing of how versions are kept: it notes a digest of every party's weights when
an epoch ends, before anybody decides anything, and of the encoders whose encodings are collected.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import safetensors
import safetensors.torch
import torch
from tests.federation.member.test_leaderless import CALM
from tests.federation.member.test_member import calm, member
from torch import Tensor

from colonnade.algorithms.cvfl import CVFL
from colonnade.algorithms.dvfl import DVFL
from colonnade.algorithms.fedonce import FedOnce
from colonnade.algorithms.fedvs import FedVS
from colonnade.common.results import read_ledger, read_results
from colonnade.errors import ColonnadeError, InputError
from colonnade.experiments.run import build, drive
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.member import record
from colonnade.federation.member.answers import Question
from colonnade.federation.member.led import LedMember
from colonnade.federation.member.member import Member
from colonnade.federation.member.messages import Account, Call, text
from colonnade.federation.member.stage import Stage
from colonnade.federation.member.status import status
from colonnade.learning.algorithm import Algorithm
from colonnade.learning.collection import Collection
from colonnade.learning.training import Decision, Training
from colonnade.learning.versions import Versions
from colonnade.network.clock import SECOND, Clock
from colonnade.network.live.messages import CALL
from colonnade.network.live.network import Live
from colonnade.network.live.peers import Past
from colonnade.network.live.reception import Reception
from colonnade.network.network import Network
from colonnade.network.parts import Kept, Parts, Version
from colonnade.network.program_counter import END, MAIN, ProgramCounter
from colonnade.network.wire import Header, read_note
from colonnade.testing.storm import Crew, Storm, StormSeat

STORMS = 30  # of the thousand that `python -m bench storms` runs
PARTS = 6
METHODS: dict[str, dict[str, Any]] = {
    "splitnn": {"epochs": 4},
    "splitnn wait": {"epochs": 4, "missing": "wait"},
    "splitnn stale": {"epochs": 4, "missing": "stale"},
    "dvfl": {"epochs": 4, "aggregators": 2, "client_epochs": 2, "aggregator_epochs": 3},
    "fedonce": {"epochs": 4, "client_epochs": 2},
    "mags": {"epochs": 4, "gossip": 1},
    "fedvs": {"epochs": 4, "batch": 32},
    "fedvs wait": {"epochs": 4, "batch": 32, "missing": "wait"},
    "cvfl": {"epochs": 4, "batch": 16},
    "vafl": {"epochs": 4, "batch": 16},
    "splitnn skip": {"epochs": 4, "missing": "skip"},
    "splitnn buffer": {"epochs": 4, "missing": "buffer"},
    "mags alone": {"epochs": 4, "gossip": 1, "objective": "autoencoder", "encoder_epochs": 3},
}
# Heads at the server with its rows of ADMM, heads at the clients, and a server without a model.
BY_ROW: dict[str, dict[str, Any]] = {
    "vim": {"epochs": 3, "tau": 2, "batch": 16},
    "vim admm-j": {"epochs": 3, "tau": 2, "batch": 16, "solver": "admm-j"},
    "fdml": {"epochs": 4},
}
LEAST = {"fedvs": 3}  # parties


def small(name: str, parties: int, **more: Any) -> Federation:
    method = {"algorithm": name.split()[0], **{**METHODS, **BY_ROW}[name], **more}
    data = {"dataset": "digits", "rows": 120, "test": 0.5, "parties": parties}
    network = {"gather": 5.0, "patience": 0.5}
    table = {"name": "test", "data": data, "method": method, "network": network}
    return parse_federation(table, "test")


def digests(algorithm: Algorithm, net: Network) -> dict[str, str]:
    """Of the weights of each party here. In CVFL an active party's copy of the top net is that of
    the collaborator, whenever it is asked for: the top net counts there."""
    copied = "head" if isinstance(algorithm, CVFL) else "nothing"
    return {party: digest(mine, copied) for party, mine in algorithm.tensors(net).items()}


def digest(tensors: Mapping[str, Tensor], copied: str) -> str:
    found = hashlib.blake2b(digest_size=8)
    for name in sorted(name for name in tensors if not name.startswith(f"{copied}.")):
        found.update(tensors[name].detach().contiguous().numpy().tobytes())
    return found.hexdigest()


class Oracle:
    """What every party's weights were, and which process of a party sent what was measured."""

    def __init__(self, patch: Callable[[Any, str, Any], None]) -> None:
        self.measured: dict[tuple[str, Version], set[str]] = {}
        self.collected: dict[str, set[str]] = {}
        self.heard: dict[tuple[str, Version], set[int]] = {}  # lives whose validation was heard
        self.taken: dict[tuple[str, Version], set[int]] = {}  # lives that took a part
        end_of_round, keep_versions = Training.end_of_round, Training.keep_versions
        now: dict[int, dict[str, str]] = {}

        async def ends(one: Training, net: Network, batch: Any) -> bool:
            now[id(one)] = digests(one.algorithm, net)
            return await end_of_round(one, net, batch)

        def keeps(one: Training, net: Network, decision: Decision) -> None:
            for party, mine in now[id(one)].items():
                self.measured.setdefault((party, decision.version), set()).add(mine)
            keep_versions(one, net, decision)

        patch(Training, "end_of_round", ends)
        patch(Training, "keep_versions", keeps)
        patch(Reception, "sort", self.hearing(Reception.sort))
        patch(Versions, "take", self.taking(Versions.take))
        patch(Collection, "collect", self.collecting(Collection.collect))

    def hearing(self, sort: Any) -> Any:
        def sorts(one: Reception, sender: str, program: Any, header: Header, value: Any) -> None:
            before = set(program.mail.letters)
            sort(one, sender, program, header, value)
            counter, leader = header.counter, one.post.leader
            inner = len(counter) > 2 and min(counter) >= 0  # a validation, in a round of training
            inner = inner and header.kind != FedVS.held.kind  # asked before anything is measured
            if inner and one.post.party == leader and set(program.mail.letters) - before:
                version = (header.generation, counter[0] - 1)
                self.heard.setdefault((sender, version), set()).add(header.life)

        return sorts

    def taking(self, take: Any) -> Any:
        def takes(one: Versions, net: Network, version: Version, *, final: bool = False) -> None:
            if isinstance(net, Live) and not final:
                self.taken.setdefault((net.party, version), set()).add(net.post.life)
            take(one, net, version, final=final)

        return takes

    def collecting(self, collect: Any) -> Any:
        async def collects(collection: Collection, net: Network, *rest: Any) -> Any:
            one = collection.algorithm
            muted = isinstance(net, Live) and net.post.muted
            if net.phase != "inference" and not muted:
                for party, mine in digests(one, net).items():
                    if party not in one.labels.parties and net.resume_at <= net.rounds_begun:
                        self.collected.setdefault(party, set()).add(mine)
            return await collect(collection, net, *rest)

        return collects

    def check(self, one: Member, version: Version) -> None:
        """The part that a member uses is the one that was measured as this version."""
        if one.party not in one.algorithm.tensors(one.net):
            return  # it has no model
        mine = digests(one.algorithm, one.net)[one.party]
        if one.algorithm.training.versions.final is not None:
            assert {mine} == self.collected[one.party], f"{one.party}: was collected otherwise"
        else:
            assert mine in self.measured[one.party, version], f"{one.party}: another part"
            at = one.party, version
            heard, taken = self.heard.get(at, set()), self.taken.get(at, set())
            assert not heard or heard == taken, f"{one.party}: another process was measured"


def weather(seed: int, folder: Path, name: str = "") -> tuple[Federation, dict[str, Member]]:
    """One training in a storm, to its end."""
    random = Random(seed)
    name = name or list(METHODS)[seed % len(METHODS)]
    fed = small(name, random.choice([2, 3]) + LEAST.get(name.split()[0], 2) - 2)
    members: dict[str, Member] = {}
    lost = random.random() < 0.2  # somebody's disk, at its first crash

    async def live(seat: StormSeat, life: int) -> None:
        if lost and life == 1 and seat.party != fed.leader:
            shutil.rmtree(folder / seat.party, ignore_errors=True)
        one = members[seat.party] = member(fed, seat, folder, seat.clock.now // 1000 + 1)
        await one.live()

    crew = Crew(seed, fed.members, live)
    try:
        crew.run(crashes=random.choice([1, 3, 6, 10]))
    except TimeoutError:
        if fed.leader not in crew.results:  # else it was over before somebody returned
            raise
    return fed, members


@pytest.mark.parametrize("part", range(PARTS))
def test_parts_that_are_used_together_were_measured_together(part: int, tmp_path: Path) -> None:
    for seed in range(part, STORMS, PARTS):
        try:
            in_a_storm(seed, tmp_path / str(seed))
        except Exception as error:
            raise AssertionError(f"storm {seed} failed: {error!r}") from error


@pytest.mark.parametrize("name", BY_ROW)
def test_the_same_holds_where_a_server_has_rows_of_its_own_or_no_model(
    name: str, tmp_path: Path
) -> None:
    in_a_storm(3, tmp_path, name)


def in_a_storm(seed: int, folder: Path, name: str = "") -> None:
    """Collections and tests in many parts, checkpoints in every round, often, or seldom."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda file: None)  # crashes of processes, not of the machine
        patch.setattr("colonnade.learning.algorithm.PREDICT_ROWS", 32)
        patch.setattr("colonnade.federation.member.keeping.SHARE", 0.0)
        patch.setattr("colonnade.federation.member.keeping.PAUSE", (0.0, 0.05, 1.0)[seed % 3])
        oracle = Oracle(patch.setattr)
        check(*weather(seed, folder, name), oracle)


def check(fed: Federation, members: dict[str, Member], oracle: Oracle) -> None:
    """Where nobody leads, a device that was away may have no part, and then has no result."""
    speaker = next(members[p] for p in fed.label_holders if members[p].version is not None)
    assert speaker.version is not None
    assert speaker.state.result is not None
    notes = " ".join(speaker.state.result.notes)
    for party, one in members.items():
        used = one.algorithm.training.versions.used
        if fed.leader and used is not None and f"{party} (" not in notes:
            assert used == speaker.version, f"{party} has {used}, and is not named"
        if used is not None:  # among equals, whoever asks chooses; messages say for which version
            oracle.check(one, used)


# -- stories ---------------------------------------------------------------------------------------


class Hall:
    """Parties in one process that can be ended, started again, and asked."""

    def __init__(self, fed: Federation, folder: Path) -> None:
        self.fed, self.folder, self.clock = fed, folder, Clock()
        self.storm = Storm(self.clock, 0, CALM)
        self.members: dict[str, Member] = {}
        self.tasks: dict[str, Any] = {}

    def start(self, *parties: str, once: bool = False) -> None:
        for party in parties:
            one = self.make(self.storm.seat(party))
            one.once = once
            self.members[party] = one
            self.tasks[party] = self.clock.spawn(one.live(), party)

    def make(self, seat: StormSeat) -> Member:
        return member(self.fed, seat, self.folder, self.clock.now // 1000 + 1)

    def kill(self, party: str) -> None:
        self.members[party].transport.close()  # pyright: ignore[reportAttributeAccessIssue]
        self.clock.cancel(self.tasks[party])

    async def until(self, ready: Callable[[], bool], seconds: float = 300) -> None:
        limit = self.clock.now + int(seconds * SECOND)
        while not ready():
            assert self.clock.now < limit, "takes too long"
            await self.clock.sleep_until(self.clock.now + SECOND // 100)

    async def trained(self) -> Member:
        leader = self.members[self.fed.speaker]
        await self.until(lambda: leader.state.stage == Stage.ANSWERING)
        return leader

    async def ask(self) -> Any:
        answers: list[Any] = []
        leader = self.members[self.fed.speaker]
        leader.questions.append(Question(["1", "2", "3"], answers.append))
        leader.wake.notify()
        await self.until(lambda: bool(answers))
        return answers[0]

    def tell(self, story: Callable[[], Any]) -> None:
        self.clock.run(("story", story()))


@pytest.mark.parametrize("name", ["splitnn", "dvfl", "fedonce"])
def test_a_party_that_lost_its_disk_after_the_training_is_absent_and_named(
    name: str, tmp_path: Path
) -> None:
    hall = Hall(small(name, 3), tmp_path)

    async def story() -> None:
        hall.start(*hall.fed.members)
        leader = await hall.trained()
        assert (await hall.ask()).absent == {}
        hall.kill("client1")
        shutil.rmtree(tmp_path / "client1")
        await hall.clock.sleep_until(hall.clock.now + 2 * SECOND)
        hall.start("client1")
        await hall.clock.sleep_until(hall.clock.now + 5 * SECOND)
        answer = await hall.ask()
        assert answer.absent == {"client1": "untrained"}
        assert leader.lacking() == {"client1": "untrained"}
        assert status(hall.members["client1"])["model"] == "untrained"

    hall.tell(story)


def test_a_party_that_was_away_when_the_best_version_was_made_is_named_with_its_round(
    tmp_path: Path,
) -> None:
    fed = small("splitnn", 3, epochs=20, lr=0.01)
    network = msgspec.structs.replace(fed.network, extra_epochs=0, gather=0.5)
    hall = Hall(msgspec.structs.replace(fed, network=network), tmp_path)

    async def story() -> None:
        hall.start(*hall.fed.members)
        await hall.until(lambda: bool(hall.members["client2"].algorithm.training.versions.parts))
        hall.kill("client2")
        leader = await hall.trained()
        assert leader.version is not None
        hall.start("client2")
        await hall.clock.sleep_until(hall.clock.now + 3 * SECOND)
        why = (await hall.ask()).absent["client2"]
        assert f"the model is of round {leader.version[1] + 1}" in why
        assert why.startswith("has round ")
        assert leader.state.result is not None
        said = " ".join(leader.state.result.notes)
        assert "tested without client2 (away)" in said
        assert "client2: " in said
        assert f"of {leader.attendance.rounds:,} rounds" in said

    hall.tell(story)


def test_a_party_that_falls_in_a_validation_has_no_part_of_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process that returns begins with an older checkpoint; the label holder has the validation
    rows of the process before."""
    monkeypatch.setattr("colonnade.federation.member.keeping.PAUSE", 1000.0)
    oracle = Oracle(monkeypatch.setattr)
    hall = Hall(small("splitnn", 3, epochs=3, batch=16, lr=0.01), tmp_path)

    async def story() -> None:
        hall.start(*hall.fed.members)
        fell: list[Version] = []
        falls, lags = hall.members["client1"].algorithm, hall.members["client2"].algorithm
        validate, late = falls.validate, lags.validate

        async def last_act(net: Any) -> Any:
            found = await validate(net)
            if net.origin[0] > 12:  # the second epoch
                fell.append((net.generation, net.origin[0] - 1))
                hall.clock.call_at(hall.clock.now, lambda: hall.kill("client1"))
                hall.clock.call_at(hall.clock.now + SECOND, lambda: hall.start("client1"))
                await hall.clock.sleep_until(hall.clock.now + 1000 * SECOND)
            return found

        async def lagging(net: Any) -> Any:
            if net.origin[0] > 12 and len(fell) == 1:
                await hall.clock.sleep_until(hall.clock.now + 3 * SECOND)
            return await late(net)

        falls.validate, lags.validate = last_act, lagging
        leader = await hall.trained()
        assert fell
        assert {fell[0][0]} == {version[0] for _, version in oracle.heard}  # one generation
        (heard,) = oracle.heard["client1", fell[0]]
        assert oracle.taken.get(("client1", fell[0]), {heard}) == {heard}
        for one in hall.members.values():
            assert leader.version is not None
            oracle.check(one, leader.version)

    hall.tell(story)


def test_no_member_can_talk_another_one_out_of_its_part(tmp_path: Path) -> None:
    """A member says that an earlier process of another one was far ahead. In CVFL all members are
    neighbours, and a round is a whole epoch."""
    hall = Hall(small("cvfl", 3), tmp_path)

    async def story() -> None:
        far = Past(ProgramCounter((END, 0)))
        hall.start(*hall.fed.members)
        hall.members["client2"].post.peers["client1"].before = far
        leader = await hall.trained()
        assert hall.members["client1"].post.peers["client2"].mine_before == far
        assert not leader.lacking()

    hall.tell(story)


def test_a_training_goes_on_for_one_that_lacks_the_best_version(tmp_path: Path) -> None:
    """Away for most epochs and back at the end: everybody has a part of the model."""
    hall = Hall(small("splitnn", 3, epochs=20, lr=0.01), tmp_path)

    async def story() -> None:
        hall.start(*hall.fed.members)
        server = hall.members["server"]
        await hall.until(lambda: server.state.round > 2)
        hall.kill("client2")
        hall.clock.call_at(hall.clock.now + SECOND, lambda: hall.start("client2"))
        leader = await hall.trained()
        epochs = [point["epoch"] for point in leader.record.points]
        assert max(epochs) > 20
        assert not leader.lacking()
        assert (await hall.ask()).absent == {}

    hall.tell(story)


def test_an_aggregator_that_was_away_has_all_its_steps_in_the_end(tmp_path: Path) -> None:
    """It learns from what it remembers; how often is what it would have been."""
    hall = Hall(small("dvfl", 3, client_epochs=20, aggregator_epochs=60), tmp_path)

    async def story() -> None:
        hall.start(*hall.fed.members)
        first, second = (hall.members[f"aggregator{i}"] for i in range(2))
        await hall.until(lambda: second.state.round > 6)
        hall.kill("aggregator1")
        await hall.until(lambda: first.state.round > 20)
        hall.start("aggregator1")
        leader = await hall.trained()
        assert not leader.lacking()
        steps = [hall.members[f"aggregator{i}"].algorithm.steps["done"] for i in range(2)]  # pyright: ignore[reportAttributeAccessIssue]
        assert steps[0] == steps[1] > 0

    hall.tell(story)


@pytest.mark.parametrize("name", ["dvfl", "fedonce"])
@pytest.mark.parametrize("back", [2, None])
def test_what_was_collected_is_what_the_parts_in_use_give(
    name: str, back: int | None, tmp_path: Path
) -> None:
    """A client that was late before, and is away when its encodings are collected, is waited for;
    if it does not come back, the result says that the model was made without it."""
    hall = Hall(small(name, 3), tmp_path)

    async def story() -> None:
        hall.start(*hall.fed.members)
        versions = hall.members["client1"].algorithm.training.versions
        take = versions.take

        def fall() -> None:
            hall.kill("client1")
            if back is not None:
                hall.clock.call_at(hall.clock.now + back * SECOND, lambda: hall.start("client1"))

        def last_act(*version: Any, final: bool = False) -> None:
            take(*version, final=final)
            for one in hall.members.values():
                if "client1" in one.post.peers:
                    one.post.peers["client1"].late[MAIN] = False
            hall.clock.call_at(hall.clock.now + SECOND // 1000, fall)

        versions.take = last_act  # pyright: ignore[reportAttributeAccessIssue]
        leader = await hall.trained()
        if back is None:
            assert leader.state.result is not None
            assert "the model lacks client1: the model was made" in str(leader.state.result.notes)
            return
        assert not leader.lacking()
        whole, net = build(hall.fed.method, hall.fed.vertical_data(), hall.fed.seed)
        for party, tensors in whole.tensors(net).items():
            one = hall.members[party]
            for key, value in one.algorithm.tensors(one.net)[party].items():
                tensors[key].data.copy_(value)
        assert isinstance(whole, DVFL | FedOnce)
        again = drive(whole.collection.collect(net.within("inference"), whole.data.train))
        if isinstance(whole, DVFL):
            again = whole.supervised.centre.predict(again)
        assert isinstance(leader.algorithm, DVFL | FedOnce)
        assert torch.allclose(leader.algorithm.collection.train.value, again, atol=1e-5)

    hall.tell(story)


def test_devices_test_again_with_one_that_was_away(tmp_path: Path) -> None:
    hall = Hall(small("mags", 3), tmp_path)

    async def story() -> None:
        hall.start(*hall.fed.members)
        last = hall.members["client2"]
        await hall.until(lambda: last.state.stage == Stage.TESTING)
        hall.kill("client2")
        hall.clock.call_at(hall.clock.now + 2 * SECOND, lambda: hall.start("client2"))
        leader = await hall.trained()
        assert leader.state.result is not None
        assert "tested without" not in " ".join(leader.state.result.notes)

    hall.tell(story)


def test_a_client_that_says_it_did_not_hear_the_label_holder_ends_nobody(tmp_path: Path) -> None:
    """The label holder goes on to answer questions, and looks at who was missed in the test."""
    hall = Hall(small("splitnn", 3), tmp_path)

    async def story() -> None:
        hall.start(*hall.fed.members)
        liar = hall.members["client1"]
        assert isinstance(liar, LedMember)
        heed = liar.heed

        async def lie(call: Call) -> None:
            told = Account(number=call.number, silent=["server"])
            liar.post.tell("server", CALL, note=text(told))
            await heed(call)

        liar.heed = lie
        leader = await hall.trained()
        await hall.clock.sleep_until(hall.clock.now + 10 * SECOND)
        assert leader.state.result is not None
        assert "tested without" not in " ".join(leader.state.result.notes)
        answer = await hall.ask()
        assert not answer.absent

    hall.tell(story)


def test_a_client_that_is_slow_owes_its_message_in_every_round(tmp_path: Path) -> None:
    """An aggregator of DVFL then makes up for what it did not hear."""
    hall = Hall(small("dvfl", 3), tmp_path)
    post = hall.make(hall.storm.seat("aggregator0")).post
    slow = post.peers["client0"]
    slow.there = True
    for round in (3, 10, 100):
        net = Live(post)
        net.rounds_begun, net.step, net.silent = round, 1, {"client0"}
        slow.positions.move(MAIN.at(round - 1, 1))
        assert net.owing() == net.left_out() == ["client0"]
        slow.positions.move(MAIN.at(round, 1))
        assert net.owing() == []
        assert net.left_out() == ["client0"]


def test_a_client_that_falls_as_the_test_begins_is_waited_for(tmp_path: Path) -> None:
    hall = Hall(small("splitnn", 3), tmp_path)

    async def story() -> None:
        hall.start(*hall.fed.members, once=True)
        leader = hall.members["server"]
        choose = leader.choose_version

        def falls() -> None:
            choose()
            hall.kill("client2")
            back = hall.clock.now + 4 * SECOND
            hall.clock.call_at(back, lambda: hall.start("client2", once=True))

        leader.choose_version = falls
        await hall.until(lambda: leader.state.result is not None)
        assert leader.state.result is not None
        assert "tested without" not in " ".join(leader.state.result.notes)

    hall.tell(story)


def test_a_full_disk_at_the_end_loses_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The part stays in memory and answers; it is written, and then acknowledged, when there is
    room."""
    hall = Hall(small("splitnn", 3), tmp_path)
    save, full = safetensors.torch.save_file, [True]

    def save_file(tensors: Any, path: Path, facts: Any = None) -> None:
        if full[0] and Path(path).is_relative_to(tmp_path / "client1"):
            raise safetensors.SafetensorError("No space left on device (os error 28)")
        save(tensors, path, facts)

    monkeypatch.setattr("safetensors.torch.save_file", save_file)

    async def story() -> None:
        hall.start(*hall.fed.members)
        leader = await hall.trained()
        one = hall.members["client1"]
        await hall.clock.sleep_until(hall.clock.now + 60 * SECOND)  # an attempt every two
        told = [r for r in caplog.records if "it stays in memory until there is room" in r.message]
        assert len(told) == 1, "once, then at growing intervals"
        assert leader.version is not None
        assert (await hall.ask()).absent == {}
        assert not leader.post.keeps("client1", leader.version)
        assert not list((tmp_path / "client1").rglob("*.safetensors"))
        full[0] = False
        await hall.clock.sleep_until(hall.clock.now + 10 * SECOND)
        assert leader.post.keeps("client1", leader.version)
        assert one.keeping.saved == leader.version
        assert list((tmp_path / "client1" / "models").rglob("client1.safetensors"))

    hall.tell(story)


def test_a_result_that_a_full_disk_refuses_is_written_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hall, write, full = Hall(small("splitnn", 2), tmp_path), record.write_results, [True]

    def write_results(*args: Any) -> None:
        if full[0]:
            raise OSError(28, "No space left on device")
        write(*args)

    monkeypatch.setattr(record, "write_results", write_results)

    async def story() -> None:
        hall.start(*hall.fed.members, once=True)
        leader = hall.members["server"]
        await hall.until(lambda: leader.over)
        await hall.clock.sleep_until(hall.clock.now + 10 * SECOND)
        assert leader.state.stage != Stage.DONE
        assert not read_results(tmp_path / "server")
        full[0] = False
        await hall.until(lambda: leader.state.stage == Stage.DONE)
        assert read_results(tmp_path / "server")[0] == leader.state.result

    hall.tell(story)


@pytest.mark.parametrize("file", ["ledger", "models"])
def test_a_client_whose_disk_is_full_at_the_end_stays_until_its_ledger_and_model_are_written(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hall, full = Hall(small("splitnn", 2), tmp_path), [True]
    write, save = record.write_lines, Algorithm.save
    early = (Stage.WAITING, Stage.TRAINING)

    def refuse(path: Path) -> None:
        mine = path.is_relative_to(tmp_path / "client1") and f"/{file}/" in str(path)
        if mine and full[0] and hall.members["client1"].state.stage not in early:
            raise OSError(28, "No space left on device")

    def write_lines(path: Path, *args: Any) -> None:
        refuse(path)
        write(path, *args)

    def save_model(one: Algorithm, folder: Path, *args: Any, **more: Any) -> None:
        refuse(folder)
        save(one, folder, *args, **more)

    monkeypatch.setattr(record, "write_lines", write_lines)
    monkeypatch.setattr(Algorithm, "save", save_model)

    async def story() -> None:
        hall.start(*hall.fed.members, once=True)
        one = hall.members["client1"]
        await hall.until(lambda: one.over)
        await hall.clock.sleep_until(hall.clock.now + 10 * SECOND)
        assert one.state.stage != Stage.DONE
        full[0] = False
        await hall.until(lambda: one.state.stage == Stage.DONE)
        sent = sorted(map(msgspec.structs.astuple, one.record.rows()))
        on_disk = read_ledger(tmp_path / "client1", one.record.run)
        assert sorted(map(msgspec.structs.astuple, on_disk)) == sent
        assert list((tmp_path / "client1" / "models").rglob("client1.safetensors"))

    hall.tell(story)


def test_a_label_holder_that_returns_after_its_test_does_not_wait_for_those_who_left(
    tmp_path: Path,
) -> None:
    hall = Hall(small("splitnn", 2), tmp_path)

    async def story() -> None:
        hall.start(*hall.fed.members)
        before = (await hall.trained()).state.result
        for party in hall.fed.members:
            hall.kill(party)
        hall.start("server", once=True)
        await hall.until(lambda: hall.members["server"].over, seconds=10)
        assert hall.members["server"].state.result == before

    hall.tell(story)


def test_the_label_holder_waits_for_everybody_and_says_for_whom(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="colonnade")
    fed = small("splitnn", 2)
    hall = Hall(
        msgspec.structs.replace(fed, network=msgspec.structs.replace(fed.network, gather=None)),
        tmp_path,
    )

    async def story() -> None:
        hall.start("server", "client0")
        await hall.clock.sleep_until(1000 * SECOND)
        assert hall.members["server"].state.stage == Stage.WAITING
        assert "server: waiting for client1" in caplog.text
        hall.start("client1")
        assert not (await hall.trained()).attendance.notes()

    hall.tell(story)


def test_a_label_holder_that_returns_goes_on_with_those_who_returned_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody fell, and not all are back. Nobody who is back has heard of the present
    generation, but the label holder knows from its checkpoint that the training has begun."""
    fed = small("splitnn", 3, epochs=60)
    waits = msgspec.structs.replace(fed.network, gather=None)
    monkeypatch.setattr("colonnade.federation.member.keeping.SHARE", 0.0)
    monkeypatch.setattr("colonnade.federation.member.keeping.PAUSE", 0.0)
    hall = Hall(msgspec.structs.replace(fed, network=waits), tmp_path)

    async def story() -> None:
        hall.start(*hall.fed.members)
        await hall.until(lambda: hall.members["server"].state.round > 20)
        for party in hall.fed.members:
            hall.kill(party)
        await hall.clock.sleep_until(hall.clock.now + 2 * SECOND)  # no message is under way
        hall.start("server", "client0", "client1")
        resumed = hall.clock.now
        await hall.until(lambda: hall.members["server"].state.stage == Stage.TRAINING, seconds=10)
        assert hall.clock.now - resumed < 5 * SECOND
        hall.start("client2")
        assert "client2" not in str((await hall.trained()).about_the_model())

    hall.tell(story)


def content(path: Path) -> tuple[dict[str, Tensor], Any]:
    """Tensors and facts of a file."""
    with safetensors.safe_open(path, "pt") as file:  # pyright: ignore[reportPrivateImportUsage]
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, json.loads(file.metadata()["facts"])


@pytest.mark.parametrize("suffix", [".checkpoint.safetensors", ".part.safetensors"])
@pytest.mark.parametrize("how", ["missing", "misshapen", "not finite"])
def test_a_broken_file_is_refused_with_a_sentence(how: str, suffix: str, tmp_path: Path) -> None:
    fed = small("splitnn", 2)
    calm(fed, tmp_path)
    for path in (tmp_path / "client0" / "checkpoints").glob(f"*{suffix}"):
        tensors, facts = content(path)
        name = min(tensors)
        broken = {"misshapen": tensors[name][:1], "not finite": tensors[name] * torch.nan}
        changed = {**tensors, name: broken.get(how, tensors[name])}
        if how == "missing":
            del changed[name]
        safetensors.torch.save_file(changed, path, {"facts": json.dumps(facts)})
    says = {"missing": "has no tensor", "misshapen": "expected", "not finite": "not finite"}[how]
    with pytest.raises(InputError, match=rf"client0\..*{says}.*--fresh"):
        calm(fed, tmp_path)


def test_a_checkpoint_with_malformed_facts_is_refused_with_a_sentence(tmp_path: Path) -> None:
    """The sentence names the file, what is wrong, and what to do."""
    fed = small("splitnn", 2)
    calm(fed, tmp_path)
    path = tmp_path / "client0" / "checkpoints" / "client0.checkpoint.safetensors"
    tensors, facts = content(path)
    malformed: dict[str, Any] = {
        "Expected `object`, got `array`": [],
        "missing required field `rounds`": {},
        "missing required field `progress`": {k: v for k, v in facts.items() if k != "progress"},
        "progress lacks best": facts | {"progress": {"stopped": 1}},
        r"`str` - at `\$\.progress": facts | {"progress": {**facts["progress"], "best": "x"}},
        r"got `str` - at `\$\.rounds`": facts | {"rounds": "a"},
        r">= 0 - at `\$\.rounds`": facts | {"rounds": -5},
        r"field `version` - at `\$\.ballot\[0\]`": facts | {"ballot": [{"a": 1}]},
        r"got `null` - at `\$\.also`": facts | {"also": None},
        r"at `\$\.also\.version`": facts | {"also": {**facts["also"], "version": "x"}},
        r"at `\$\.also\.attendance`": facts | {"also": {**facts["also"], "attendance": [1]}},
        "kept by another version of colonnade": facts | {"format": 2},
    }
    for says, changed in malformed.items():
        safetensors.torch.save_file(tensors, path, {"facts": json.dumps(changed)})
        with pytest.raises(InputError, match=rf"{path.name}: .*{says}.*delete it.*--fresh"):
            calm(fed, tmp_path)


def test_a_damaged_part_is_not_used_and_the_party_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A trained party is started again: with a part that was truncated, with parts whose facts are
    malformed, and at last with the part as it was."""
    hall = Hall(small("splitnn", 3), tmp_path)

    async def again() -> Any:
        hall.kill("client1")
        await hall.clock.sleep_until(hall.clock.now + 2 * SECOND)
        caplog.clear()
        hall.start("client1")
        await hall.clock.sleep_until(hall.clock.now + 5 * SECOND)
        return await hall.ask()

    async def story() -> None:
        hall.start(*hall.fed.members)
        await hall.trained()
        kept = {p: p.read_bytes() for p in tmp_path.glob("client1/checkpoints/*.part.safetensors")}
        damages: list[Callable[[Any], Any] | None] = [
            None,  # truncated
            lambda facts: [],
            lambda facts: facts | {"version": "x"},
            lambda facts: facts | {"ballot": [{"a": 1}]},
            lambda facts: {key: facts[key] for key in ("of", "version", "final")},
        ]
        for damage in damages:
            for path, data in kept.items():
                path.write_bytes(data if damage else data[: len(data) // 2])
                if damage:
                    tensors, facts = content(path)
                    malformed = {"facts": json.dumps(damage(facts))}
                    safetensors.torch.save_file(tensors, path, malformed)
            assert (await again()).absent == {"client1": "untrained"}
            remarks = [f"{path.name} is damaged and is not used" for path in sorted(kept)]
            assert status(hall.members["client1"])["remarks"] == remarks
            for path in kept:
                assert f"damaged and is not used: {path}: not a checkpoint" in caplog.text
            assert f"client1: untrained: {'; '.join(remarks)}" in caplog.text
        for path, data in kept.items():
            path.write_bytes(data)
        assert (await again()).absent == {}
        assert not status(hall.members["client1"])["remarks"]

    hall.tell(story)


def test_a_label_holder_whose_only_part_is_damaged_names_the_file(tmp_path: Path) -> None:
    fed = small("splitnn", 2)
    calm(fed, tmp_path)
    for path in (tmp_path / "server" / "checkpoints").glob("*.part.safetensors"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ColonnadeError, match=r"no version .*; server\..*part.* is damaged"):
        calm(fed, tmp_path)


def test_what_a_party_keeps_and_what_it_lacks() -> None:
    parts = Parts((Kept((7, 20)), Kept((7, 41), durable=False)))
    assert parts.have((7, 41))
    assert not parts.durable((7, 41))
    assert parts.lack((7, 20)) == ""
    assert parts.lack((7, 124)) == "has round 42, the model is of round 125"
    assert parts.lack((8, 41)) == "has round 42 of another training"
    assert Parts().lack((1, 1)) == "untrained"
    final = Parts((Kept((7, 20), final=True),))
    assert final.have((9, 300))
    assert not final.have((7, 19))
    assert read_note(parts.text(), Parts) == parts


def test_a_party_that_lost_its_disk_says_that_it_begins_with_new_weights(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fed = small("splitnn", 3, epochs=30)
    hall = Hall(fed, tmp_path)
    caplog.set_level("WARNING")

    async def story() -> Member:
        hall.start(*fed.members)
        await hall.until(lambda: hall.members[fed.speaker].state.round > 5)
        hall.kill("client1")
        shutil.rmtree(tmp_path / "client1", ignore_errors=True)
        hall.start("client1")
        return await hall.trained()

    leader = hall.clock.run(("story", story()))[0]
    said = [record.getMessage() for record in caplog.records]
    told = [text for text in said if "it begins with new weights" in text]
    assert len(told) == 1
    assert told[0].startswith("client1: has no checkpoint")
    heard = [text for text in said if text.startswith("client1: came back without a checkpoint")]
    assert len(heard) == 1, "told by the label holder, its only neighbour"
    result, seen = leader.state.result, leader.attendance.seen["client1"]
    assert result is not None
    [note] = [note for note in result.notes if note.startswith(("client1", "warning: client1"))]
    assert f"client1: {seen.rounds:,} of {leader.attendance.rounds:,} rounds, began again" in note
    assert seen.rounds <= leader.attendance.rounds - 5, "rounds of the lost weights do not count"
