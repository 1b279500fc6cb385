"""Labels at several parties, and programs side by side, as real parties have them: leaders that
fall and return, a collaborator that falls, and questions to any of them."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tests.federation.member.test_leaderless import CALM
from tests.federation.member.test_member import member
from tests.federation.member.test_versions import Hall, small

from colonnade.algorithms.cvfl import CVFL
from colonnade.common.results import read_leads, read_turns
from colonnade.errors import InputError, Unsuited
from colonnade.experiments.report import write_report
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.agreement.party_file import OwnSpec, PartyFile
from colonnade.federation.member.answers import Question
from colonnade.federation.member.keeping import Keeping
from colonnade.federation.member.label_rows import TESTS, LabelNote
from colonnade.federation.member.leaderless import member_kind
from colonnade.federation.member.member import Member
from colonnade.federation.member.own_data import read_own
from colonnade.federation.member.several import SeveralMember
from colonnade.federation.member.stage import Stage
from colonnade.learning.algorithm import Algorithm
from colonnade.learning.side_by_side import PACE, Turn
from colonnade.models.stack import Stack
from colonnade.network.clock import SECOND, Clock
from colonnade.network.wire import WireError, read_note
from colonnade.privacy.equality import EqualityTest
from colonnade.testing.storm import Crew, Storm, StormSeat


async def ask(hall: Hall, party: str, ids: Sequence[str] = ("1", "2", "3")) -> Any:
    """An answer of this party about some rows."""
    answers: list[Any] = []
    one = hall.members[party]
    one.questions.append(Question(list(ids), answers.append))
    one.wake.notify()
    await hall.until(lambda: bool(answers))
    return answers[0]


def rounds_led(one: Member, program: int) -> int:
    return int(one.algorithm.training.progress.get(f"{PACE}{program}", 0))


def test_any_label_holder_answers_also_without_the_first_and_without_the_collaborator(
    tmp_path: Path,
) -> None:
    hall = Hall(small("cvfl", 3), tmp_path)

    async def story() -> None:
        hall.start(*hall.fed.members)
        await hall.trained()
        await hall.until(lambda: hall.members["client2"].state.stage == Stage.ANSWERING)
        first, second = await ask(hall, "client0"), await ask(hall, "client2")
        assert first.absent == second.absent == {}
        assert (first.logits - second.logits).abs().max() < 1e-6, "one model, whoever asks"
        hall.kill("collaborator")
        await hall.clock.sleep_until(hall.clock.now + SECOND)
        alone = await ask(hall, "client2")
        assert alone.absent == {"collaborator": "away"}
        assert (alone.logits - second.logits).abs().max() < 1e-6, "by its own copy of the top net"
        hall.kill("client0")
        hall.kill("client2")
        hall.start("client2")
        await hall.until(lambda: hall.members["client2"].state.stage == Stage.ANSWERING)
        await hall.clock.sleep_until(hall.clock.now + SECOND)
        left = await ask(hall, "client2")
        assert set(left.absent) == {"client0", "collaborator"}
        assert left.logits.shape == second.logits.shape

    hall.tell(story)


def test_the_first_label_holder_writes_who_led_when_also_across_a_restart(tmp_path: Path) -> None:
    hall = Hall(small("cvfl", 3, active=2, epochs=4, patience=4), tmp_path)

    async def story() -> None:
        hall.start(*hall.fed.members)
        await hall.until(lambda: hall.members["client0"].state.round > 2)
        hall.kill("client0")
        await hall.clock.sleep_until(hall.clock.now + SECOND)
        hall.start("client0")
        decider = await hall.trained()
        folder, run = tmp_path / "client0", decider.record.run
        leads, turns = read_leads(folder, run), read_turns(folder, run)
        led = {party: rounds_led(decider, k) for k, party in enumerate(("client0", "client1"))}
        assert {p: sum(r.rounds for r in leads if r.party == p) for p in led} == led
        assert {row.epoch for row in leads if row.party == "client0"} >= {1, 2, 3, 4}
        assert len(turns) == sum(led.values())
        assert all(turn.began <= turn.ended for turn in turns)
        assert max(row.most for row in leads) > 0, "steps of the other one came in between"
        page = write_report(folder).read_text()
        section = page[page.index("Who led when") : page.index("What left each party")]
        assert "ended while this party was away are missing" in section
        assert ">seconds<" in section

    hall.tell(story)


@pytest.mark.parametrize("name", ["cvfl", "vafl"])
def test_the_others_go_on_past_the_end_of_an_epoch_without_a_leader_that_fell(
    name: str, tmp_path: Path
) -> None:
    """It comes back, and leads again."""
    hall = Hall(small(name, 3, epochs=60, patience=60), tmp_path)

    async def story() -> None:
        hall.start(*hall.fed.members)
        decider = hall.members[hall.fed.speaker]
        await hall.until(lambda: decider.state.round > 3)
        hall.kill("client2")
        await hall.until(lambda: "client2" in decider.away())
        epoch, led = decider.state.round, rounds_led(decider, 2)
        await hall.until(lambda: decider.state.round > epoch + 5)
        assert rounds_led(decider, 2) == led
        hall.start("client2")
        await hall.until(lambda: rounds_led(decider, 2) > led + 2)

    hall.tell(story)


def test_the_log_tells_once_that_a_leader_is_away_however_many_epochs_wait_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages take so long that every epoch waits for more than ten seconds."""
    hall = Hall(small("cvfl", 3, epochs=60, patience=60), tmp_path)
    hall.storm.weather = replace(CALM, delay=400.0)

    async def story() -> None:
        hall.start(*hall.fed.members)
        decider = hall.members[hall.fed.speaker]
        await hall.until(lambda: decider.state.round > 0)
        hall.kill("client2")
        caplog.clear()
        await hall.until(lambda: "client2" in decider.away())
        epoch = decider.state.round
        await hall.until(lambda: decider.state.round > epoch + 2)

    with caplog.at_level(logging.INFO):
        hall.tell(story)
    told = [one.getMessage() for one in caplog.records if "waiting for client2" in one.message]
    assert sorted(entry.split(":")[0] for entry in told) == ["client0", "client1", "collaborator"]


# -- every gradient is applied once ----------------------------------------------------------------

GRADIENTS = {"top-gradient": "top", "gradient": "bottom"}


class Conservation:
    """Which gradients were sent, and how often each was applied in the history that led to a
    party's state: what was lost by a crash since the last checkpoint does not count. A gradient is
    known by its net, its receiver, and its round: program, generation, epoch, number."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.sent: set[str] = set()
        self.written: set[str] = set()  # applied, and in a checkpoint of the receiver
        # Those that came to a process of the receiver, in a round that has ended there.
        self.acknowledged: dict[tuple[str, int], set[str]] = {}
        self.patch_exchanges(patch)
        self.patch_steps(patch)
        keep = Keeping.keep

        def keeps(one: Keeping, rounds: int, **how: Any) -> None:
            keep(one, rounds, **how)
            self.written |= self.applied(one.algorithm)

        patch.setattr(Keeping, "keep", keeps)

    def patch_exchanges(self, patch: pytest.MonkeyPatch) -> None:
        send, close, came = Turn.send, Turn.close, set[tuple[int, str]]()

        async def sends(turn: Turn, value: Any, channel: Any, *more: Any, **facts: Any) -> Any:
            net, what = turn.net, GRADIENTS.get(channel.kind)
            if what and net.here(channel.src):
                where = facts.get("where", torch.ones(1, len(channel.dst)))
                for to, chosen in zip(channel.dst.parties, where[0], strict=True):
                    self.sent |= {self.key(turn, what, to)} if chosen else set()
            inbox = await send(turn, value, channel, *more, **facts)
            if what and net.here(channel.dst) and inbox.any:
                came.add((net.post.life, self.key(turn, what, net.party)))
            return inbox

        async def closes(turn: Turn, losses: Any) -> None:
            await close(turn, losses)
            party, life = turn.net.party, turn.net.post.life
            own = {self.key(turn, what, party) for what in GRADIENTS.values()}
            ended = self.acknowledged.setdefault((party, life), set())
            ended |= {key for key in own if (life, key) in came}

        patch.setattr(Turn, "send", sends)
        patch.setattr(Turn, "close", closes)

    def patch_steps(self, patch: pytest.MonkeyPatch) -> None:
        once, now = Turn.once, list[tuple[Turn, str]]()

        def asked(turn: Turn, name: str) -> bool:
            now[:] = [(turn, name)]
            return once(turn, name)

        def counted(taken: Callable[..., None]) -> Callable[..., None]:
            def take(stack: Stack, one: Any, two: Any, where: Any = None) -> None:
                taken(stack, one, two, *([] if where is None else [where]))
                (turn, name), mask = now[0], two if where is None else where
                if stack.members and name != "count" and bool(mask.any()):
                    self.count(turn, name.split()[0])

            return take

        patch.setattr(Turn, "once", asked)
        patch.setattr(Stack, "step", counted(Stack.step))
        patch.setattr(Stack, "backward", counted(Stack.backward))

    def key(self, turn: Turn, what: str, to: str) -> str:
        at = (turn.program, turn.net.generation, turn.epoch, turn.net.rounds_begun)
        return " ".join(map(str, (what, to, *at)))

    def count(self, turn: Turn, what: str) -> None:
        assert turn.around is not None
        applied, key = turn.around.training.progress, self.key(turn, what, turn.net.party)
        assert key not in applied, f"applied twice: {key}"
        applied[key] = 1  # a checkpoint holds it, as it holds the step

    def applied(self, algorithm: Algorithm) -> set[str]:
        kinds = tuple(f"{what} " for what in GRADIENTS.values())
        return {key for key in algorithm.training.progress if key.startswith(kinds)}

    def check(self, members: Mapping[str, Member], lost: int) -> set[str]:
        """None was applied that was not sent. Of those that were sent at most so many are lost, and
        none that its receiver has written down, or that came to the process that lives to the end.
        Gives those that were applied."""
        found = set[str]().union(*(self.applied(one.algorithm) for one in members.values()))
        to_the_end = ((party, one.post.life) for party, one in members.items())
        kept = self.written.union(*(self.acknowledged.get(one, set()) for one in to_the_end))
        assert kept <= found <= self.sent
        assert {key.split()[0] for key in kept} == {"top", "bottom"}
        assert len(self.sent) - len(found) <= lost
        return found


@pytest.fixture
def conservation(monkeypatch: pytest.MonkeyPatch) -> Conservation:
    """With a checkpoint at every round."""
    monkeypatch.setattr("os.fsync", lambda file: None)
    monkeypatch.setattr("colonnade.federation.member.keeping.SHARE", 0.0)
    monkeypatch.setattr("colonnade.federation.member.keeping.PAUSE", 0.0)
    return Conservation(monkeypatch)


@pytest.mark.parametrize("fallen", ["collaborator", "client1", "client2"])
def test_no_gradient_is_applied_twice_whoever_falls(
    fallen: str, conservation: Conservation, tmp_path: Path
) -> None:
    """The collaborator, the second of two leaders, or a client, again and again."""
    hall = Hall(small("cvfl", 3, active=2, epochs=3, patience=3), tmp_path)

    async def story() -> None:
        hall.start(*hall.fed.members)
        top = lambda: conservation.applied(hall.members["collaborator"].algorithm)  # noqa: E731
        falls = (3, 9)
        for rounds in falls:
            await hall.until(lambda rounds=rounds: len(top()) >= rounds)
            hall.kill(fallen)
            await hall.clock.sleep_until(hall.clock.now + SECOND // 10)
            hall.start(fallen)
            await hall.until(lambda: hall.members[fallen].state.stage == Stage.TRAINING)
        await hall.trained()
        conservation.check(hall.members, len(falls) * A_FALL)
        # What the collaborator has not written down, and the leader has no more, is lost; so is
        # what a leader sent just before it fell.
        most = len(falls) * {"collaborator": 2, "client1": 1}.get(fallen, 0)
        sent = {key for key in conservation.sent if key.startswith("top ")}
        assert len(sent - top()) <= most

    hall.tell(story)


A_FALL = 8  # gradients of two rounds, one of each leader: one for the top, three for bottom nets


def ride_out(
    seed: int, crashes: int, folder: Path, conservation: Conservation
) -> tuple[set[str], int]:
    """A storm with two leaders, over a transport that keeps the order of messages, as transports
    promise. Which gradients were applied, and how often a process fell."""
    fed, members = small("cvfl", 3, active=2, epochs=3), dict[str, Member]()

    async def live(seat: StormSeat, life: int) -> None:
        one = members[seat.party] = member(fed, seat, folder, seat.clock.now // 1000 + 1)
        await one.live()

    crew = Crew(seed, fed.members, live)
    crew.storm.weather = replace(crew.storm.weather, ordered=True)
    crew.run(crashes)
    falls = sum(len(lives) - 1 for lives in crew.lives.values())
    return conservation.check(members, falls * A_FALL), falls


@pytest.mark.parametrize("seed", [3, 5])
def test_in_a_storm_with_two_leaders_every_gradient_is_applied_exactly_once(
    seed: int, conservation: Conservation, tmp_path: Path
) -> None:
    """With gusts, and with 30 % of the messages coming twice; nobody falls."""
    applied, falls = ride_out(seed, 0, tmp_path, conservation)
    assert falls == 0
    assert applied == conservation.sent
    assert {key.split()[2] for key in applied} == {"0", "1"}, "of both leaders"


@pytest.mark.parametrize("seed", [0, 3])
def test_in_a_storm_in_which_parties_fall_no_gradient_is_applied_twice(
    seed: int, conservation: Conservation, tmp_path: Path
) -> None:
    """And only those are lost that were under way, or not written down, when somebody fell."""
    applied, falls = ride_out(seed, 8, tmp_path, conservation)
    assert falls >= 5
    assert applied < conservation.sent


# -- files of their own ----------------------------------------------------------------------------


BANKS = ("north", "south", "east")
FEDERATION: dict[str, Any] = {
    "name": "banks",
    "rows": {"aligned": 120, "classes": ["no", "yes"], "validation": 0.2},
    "method": {"algorithm": "cvfl", "epochs": 12, "batch": 16, "lr": 0.01},
    "parties": [
        *({"name": bank, "roles": ["clients", "active"], "columns": 2} for bank in BANKS),
        {"name": "centre", "role": "collaborator"},
    ],
    "network": {"gather": 5.0, "patience": 0.5},
}


def bank_files(folder: Path, **changes: Callable[[list[list[str]]], object]) -> Federation:
    """Each bank knows two columns of 120 customers, and the outcome of every third."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(120, 6))
    outcome = np.where(x @ [2, -1, 1, 2, -2, 1] > 0, "yes", "no")
    for k, name in enumerate(BANKS):
        own = [o if i % 3 == k else "" for i, o in enumerate(outcome)]
        rows = [
            [f"c{i}", *map(str, x[i, 2 * k : 2 * k + 2]), own[i]] for i in draw.permutation(120)
        ]
        changes.get(name, lambda rows: None)(rows)
        lines = [["customer", "a", "b", "outcome"], *rows]
        (folder / f"{name}.csv").write_text("\n".join(map(",".join, lines)))
    return parse_federation(FEDERATION, "banks.toml")


def bank(fed: Federation, folder: Path, name: str) -> PartyFile:
    spec = OwnSpec(path=str(folder / f"{name}.csv"), id="customer", label="outcome")
    return PartyFile("test", fed, name, folder, data=spec if name in BANKS else None)


class Banks(Hall):
    def make(self, seat: StormSeat) -> Member:
        own = read_own(bank(self.fed, self.folder, seat.party))
        life = self.clock.now // 1000 + 1
        return member_kind(self.fed)(self.fed, own, seat, self.folder / seat.party, life=life)


def test_banks_with_files_of_their_own_train_on_the_labels_of_all(tmp_path: Path) -> None:
    hall = Banks(bank_files(tmp_path), tmp_path)

    async def story() -> None:
        hall.start(*hall.fed.members)
        leader = await hall.trained()
        result, own = leader.state.result, leader.own.labels
        assert result is not None
        assert own is not None
        assert [note.partition(":")[0] for note in result.notes] == ["warning"]
        assert "north has labels of 7 test rows only" in result.notes[0]
        assert hall.fed.rows is not None
        split = hall.fed.rows.split(hall.fed.seed)
        assert leader.algorithm.data.test.rows == int((own[split.test] >= 0).sum()) > 0
        truth = outcomes(tmp_path)
        answer = await ask(hall, "east", list(truth))
        found = [("no", "yes")[n] for n in answer.logits.argmax(1)]
        assert sum(map(str.__eq__, found, truth.values())) > 0.75 * len(truth)
        known = {party: rows_known(one) for party, one in hall.members.items()}
        every = sorted(row for rows in known["south"] for row in rows)
        assert every == list(range(len(split.train)))
        assert known["north"] == known["south"] == known["east"]
        numbers = [list(range(len(rows))) for rows in known["south"]]
        assert known["centre"] == numbers, "how many rows, and no row numbers"

    hall.tell(story)


def outcomes(folder: Path) -> dict[str, str]:
    """By customer, as the banks know them together."""
    lines = [line for bank in BANKS for line in (folder / f"{bank}.csv").read_text().split("\n")]
    found = {line.split(",")[0]: line.split(",")[-1] for line in lines if line[-1] != ","}
    return {customer: word for customer, word in found.items() if customer != "customer"}


def rows_known(one: Member) -> list[list[int]]:
    """The training rows of each label holder, as a party knows them."""
    assert isinstance(one.algorithm, CVFL)
    return [program.rows.tolist() for program in one.algorithm.programs]


def relabelled(customer: str, label: str) -> Callable[[list[list[str]]], None]:
    def change(rows: list[list[str]]) -> None:
        for row in rows:
            if customer in (row[0], "all"):
                row[-1] = label if row[0] == customer or row[-1] else ""

    return change


def begins(hall: Banks) -> None:
    """Until the training has begun."""

    async def story() -> None:
        hall.start(*hall.fed.members)
        await hall.until(lambda: hall.members["north"].state.round > 0)

    hall.tell(story)


def test_a_row_with_two_labels_is_refused_unless_they_are_equal(tmp_path: Path) -> None:
    """Customer 1 is one of south's, whose outcome north claims to know as well."""
    bank_files(tmp_path)
    truth = outcomes(tmp_path)["c1"]
    begins(Banks(bank_files(tmp_path, north=relabelled("c1", truth)), tmp_path))
    (elsewhere := tmp_path / "elsewhere").mkdir()
    fed = bank_files(elsewhere, north=relabelled("c1", {"yes": "no", "no": "yes"}[truth]))
    with pytest.raises(Unsuited, match="have different labels for some of the rows that both"):
        begins(Banks(fed, elsewhere))


def test_a_class_that_nobody_has_is_told_when_they_meet(tmp_path: Path) -> None:
    changes = dict.fromkeys(BANKS, relabelled("all", "no"))
    with pytest.raises(Unsuited, match="no party has a training row of class 'yes'"):
        begins(Banks(bank_files(tmp_path, **changes), tmp_path))


def test_what_is_wrong_with_its_own_labels_a_party_tells_before_it_connects(tmp_path: Path) -> None:
    fed = bank_files(tmp_path, south=relabelled("all", ""), east=relabelled("c2", "perhaps"))
    with pytest.raises(InputError, match=r"south.csv.*no label for any of the .* training rows"):
        read_own(bank(fed, tmp_path, "south"))
    with pytest.raises(InputError, match=r"east.csv.*'perhaps'.*not among rows.classes"):
        read_own(bank(fed, tmp_path, "east"))


class Attack:
    """North as it hears what east, which runs other software, tells of its labels."""

    def __init__(self, folder: Path) -> None:
        fed = bank_files(folder)
        north = Banks(fed, folder).make(Storm(Clock(), 0, CALM).seat("north"))
        assert isinstance(north, SeveralMember)
        assert north.label_rows is not None
        self.rows, self.said = north.label_rows, []
        self.rows.tell = lambda to, note: self.said.append(read_note(note, LabelNote))
        setattr(self.rows, "_use", lambda party, rows: None)  # noqa: B010

    def tell(self, counts: list[int], places: list[int], **more: Any) -> str:
        bits = np.zeros(self.rows.aligned, dtype=bool)
        bits[places] = True
        text = base64.b64encode(np.packbits(bits).tobytes()).decode()
        note = msgspec.json.encode({"counts": counts, "rows": text, "classes": [0, 1], **more})
        return self.rows.hear("east", note.decode())

    @property
    def training_rows(self) -> list[int]:
        return self.rows.split.train.tolist()


def test_a_label_holder_cannot_ask_for_one_label_after_the_other(tmp_path: Path) -> None:
    """What is told of a row that east claims says nothing to east, which has to guess beforehand;
    and east cannot claim another row afterwards."""
    attack = Attack(tmp_path)
    first, second = attack.training_rows[:2]
    attack.tell([1, 0, 0], [first])
    with pytest.raises(WireError, match="other rows than it told before"):
        attack.tell([1, 0, 0], [second])
    for _ in range(TESTS):
        guess = EqualityTest(b"a guess", "east", "north")
        attack.tell([1, 0, 0], [first], element=guess.element)
        assert not guess.fits(attack.said[-1].element, attack.said[-1].proof)
    with pytest.raises(WireError, match="too many times"):
        attack.tell([1, 0, 0], [first], element=EqualityTest(b"one more", "a", "b").element)


@pytest.mark.parametrize(
    ("counts", "places", "message"),
    [
        ([2**39, 1, 1], [0], "more rows than there are"),
        ([0, 0, 0], [], "labels of no training row"),
    ],
)
def test_claims_that_would_take_memory_or_leave_a_program_without_rows_are_refused(
    counts: list[int], places: list[int], message: str, tmp_path: Path
) -> None:
    with pytest.raises(WireError, match=message):
        Attack(tmp_path).tell(counts, places)
