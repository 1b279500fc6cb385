"""Devices without a leader: training, tests and questions in virtual time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.algorithms.mags import MAGS
from colonnade.errors import InputError
from colonnade.experiments.run import drive
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.agreement.party_file import PartyFile
from colonnade.federation.member.answers import Answer, Question
from colonnade.federation.member.leaderless import LeaderlessMember
from colonnade.federation.member.messages import Call
from colonnade.federation.member.own_data import read_own
from colonnade.federation.member.stage import Stage
from colonnade.learning.gossip import Gossip
from colonnade.learning.task import Part, pad_stack
from colonnade.network import Network
from colonnade.network.clock import SECOND, Clock
from colonnade.network.live.messages import CALL, HEARTBEAT
from colonnade.network.program_counter import END, MAIN
from colonnade.network.wire import decode
from colonnade.testing import stacked
from colonnade.testing.storm import Storm, Weather

CALM = Weather(delay=0.5, gust=0, duplicate=0, notice=20, ordered=True)


def federation(parties: int = 9, topology: str = "complete", **more: Any) -> Federation:
    method = {"algorithm": "mags", "gossip": 2, "epochs": 2, **more}
    data = {"dataset": "digits", "rows": 200, "parties": parties, "split": "patches"}
    network = {"gather": 5.0, "patience": 0.5, "topology": topology}
    return parse_federation(
        {"name": "test", "data": data, "method": method, "network": network}, "test"
    )


class Field:
    """Devices that are up, in virtual time."""

    def __init__(self, fed: Federation, folder: Path) -> None:
        self.fed, self.folder, self.clock = fed, folder, Clock()
        self.storm = Storm(self.clock, 0, CALM)
        self.members: dict[str, LeaderlessMember] = {}
        self.tasks: dict[str, Any] = {}

    def start(self, *parties: str, rows: str = "") -> None:
        """`rows`: the fingerprint of their ids."""
        for party in parties:
            own = replace(
                read_own(PartyFile("test", self.fed, party, self.folder)), fingerprint=rows
            )
            seat, life = self.storm.seat(party), self.clock.now // 1000 + 1
            one = LeaderlessMember(self.fed, own, seat, self.folder / party, life=life)
            self.members[party] = one
            self.tasks[party] = self.clock.spawn(one.live(), party)

    def kill(self, party: str) -> None:
        self.members[party].transport.close()  # pyright: ignore[reportAttributeAccessIssue]
        self.clock.cancel(self.tasks[party])

    async def until(self, ready: Callable[[], bool], seconds: float = 600) -> None:
        limit = self.clock.now + int(seconds * SECOND)
        while not ready():
            assert self.clock.now < limit, "takes too long"
            await self.clock.sleep_until(self.clock.now + SECOND // 1000)

    async def trained(self) -> None:
        await self.until(lambda: all(ready(m) for m in self.members.values()))

    def once_trained(self, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start every device, and go on with the story when all are trained."""

        async def whole() -> None:
            self.start(*self.fed.members)
            await self.trained()
            await story()

        self.clock.run(("story", whole()))

    async def ask(self, party: str, ids: list[str]) -> tuple[Answer, float]:
        """The answer, and how long it took."""
        answers: list[Answer] = []
        asked, member = self.clock.now, self.members[party]
        member.questions.append(Question(ids, answers.append))
        member.wake.notify()
        await self.until(lambda: bool(answers), 10)
        return answers[0], (self.clock.now - asked) / SECOND


def ready(member: LeaderlessMember) -> bool:
    return member.state.stage == Stage.ANSWERING


def rows(fed: Federation, ids: list[str]) -> Part:
    places = [int(i) - 1 for i in ids]
    test = fed.vertical_data().test
    return Part(pad_stack([x[places] for x in test.x]), test.y[places], len(ids))


IDS = ["3", "1", "20", "7"]


@pytest.mark.parametrize(
    ("topology", "more"), [("complete", {}), ("ring", {"gossip": 4}), ("grid", {"aggregators": 5})]
)
def test_every_device_answers_as_it_does_in_a_simulation(
    topology: str, more: dict[str, Any], tmp_path: Path
) -> None:
    """Also where most devices hear of a question from others than the one that was asked; two are
    asked at the same time."""
    fed = federation(topology=topology, **more)
    field = Field(fed, tmp_path)
    one = stacked(fed.method, fed.vertical_data(), fed.seed, topology=fed.network.graph)
    asked = one.algorithm.ask(one.net.within("inference"), rows(fed, IDS))  # pyright: ignore[reportAttributeAccessIssue]
    expected = drive(asked)[0].opinions
    holders = fed.label_holders

    async def story() -> None:
        together = [field.clock.spawn(field.ask(p, IDS), p) for p in (holders[0], holders[-1])]
        for (answer, _), k in zip(await field.clock.join(together), (0, -1), strict=True):
            assert torch.allclose(answer.logits, expected[k], atol=1e-5)
            assert not answer.absent

    field.once_trained(story)


def test_answers_keep_coming_while_half_of_the_devices_are_killed(tmp_path: Path) -> None:
    fed = federation(dropout=0.3)
    field = Field(fed, tmp_path)

    async def story() -> None:
        for number, party in enumerate(["client1", "client8", "client4", "client5"], 1):
            field.kill(party)
            answer, seconds = await field.ask("client0", IDS)
            assert bool(answer.logits.isfinite().all())
            assert answer.logits.shape == (4, 10)
            assert seconds < 1.5  # patience is half a second: not once for every exchange
            await field.clock.sleep_until(field.clock.now + SECOND // 10)
            answer, seconds = await field.ask("client0", IDS)
            assert seconds < 0.1, "who is known to be away is not waited for"
            assert len(answer.absent) == number

    field.once_trained(story)


def test_one_that_hangs_is_waited_for_once(tmp_path: Path) -> None:
    fed = federation(parties=4)
    field = Field(fed, tmp_path)

    async def story() -> None:
        field.clock.cancel(field.tasks["client2"])
        field.members["client2"].called = lambda sender, note: None
        field.members["client2"].post.on_call = lambda sender, note: None
        answer, seconds = await field.ask("client0", IDS)
        assert answer.absent == {"client2": "did not answer in time"}
        assert seconds < 0.6

    field.once_trained(story)


def test_a_device_that_was_away_goes_on_where_the_others_are(tmp_path: Path) -> None:
    fed = federation(parties=4, epochs=6)
    field = Field(fed, tmp_path)

    async def story() -> None:
        field.start(*fed.members)
        await field.until(lambda: field.members["client0"].state.round > 5)
        field.kill("client3")
        del field.members["client3"]
        await field.until(lambda: field.members["client0"].state.round > 10)
        field.start("client3")
        await field.until(lambda: field.members["client3"].state.round > 10)
        await field.trained()
        answer, _ = await field.ask("client3", IDS)
        assert not answer.absent
        result = field.members["client3"].state.result
        assert result is not None
        assert result.metrics["test_accuracy"] is not None
        [own] = [note for note in result.notes if "client3: " in note]
        done, total = (int(word) for word in re.findall(r"(\d+) of (\d+) rounds", own)[0])
        assert 0 < done <= total - 5, "it tells its own absence, too"
        others = field.members["client0"].state.result
        assert others is not None
        assert not any("client0: " in note for note in others.notes)

    field.clock.run(("story", story()))


def test_one_device_that_claims_to_be_far_ahead_misleads_nobody(tmp_path: Path) -> None:
    fed = federation(parties=4, epochs=4)
    field = Field(fed, tmp_path)
    calm = stacked(fed.method, fed.vertical_data(), fed.seed)

    async def story() -> None:
        field.start(*fed.members)
        await field.until(lambda: field.members["client0"].state.round > 2)
        liar = field.members["client3"].post
        for party in ("client0", "client1", "client2"):
            liar.tell(party, HEARTBEAT, MAIN.at(END, 0))
        await field.until(lambda: all(ready(field.members[f"client{i}"]) for i in range(3)))
        for i in range(3):
            assert field.members[f"client{i}"].state.round == calm.net.round + 1

    field.clock.run(("story", story()))


def test_a_lonely_device_waits_for_company(tmp_path: Path) -> None:
    fed = federation(parties=4)
    field = Field(fed, tmp_path)

    async def story() -> None:
        field.start(*fed.members)
        await field.until(lambda: field.members["client0"].state.round > 1)
        for party in ("client1", "client2", "client3"):
            field.kill(party)
        await field.clock.sleep_until(field.clock.now + 5 * SECOND)
        alone = field.members["client0"].state
        assert alone.stage == Stage.TRAINING
        before = alone.round
        await field.clock.sleep_until(field.clock.now + 60 * SECOND)
        assert alone.round == before
        field.start("client1", "client2", "client3")
        await field.trained()

    field.clock.run(("story", story()))


def test_rows_that_a_device_does_not_have_are_predicted_without_it(tmp_path: Path) -> None:
    fed = federation(parties=4)
    field = Field(fed, tmp_path)

    async def story() -> None:
        places = field.members["client1"].own.places
        assert isinstance(places, dict)
        del places["7"]
        answer, _ = await field.ask("client0", IDS)
        assert answer.absent == {"client1": "lacks 1 of 4 rows (7)"}
        assert answer.refused == {"client1": frozenset({IDS.index("7")})}
        places["7"] = 6

    field.once_trained(story)


def test_who_was_killed_before_the_test_is_tested_later(tmp_path: Path) -> None:
    fed = federation(parties=4)
    field = Field(fed, tmp_path)

    async def story() -> None:
        field.start(*fed.members)
        await field.until(lambda: field.members["client2"].state.stage.after_training)
        field.kill("client2")
        del field.members["client2"]
        await field.trained()
        field.start("client2")
        await field.trained()
        late, other = field.members["client2"], field.members["client1"]
        assert late.keeping.trained_before
        assert late.state.result is not None
        assert other.state.result is not None
        assert "tested without client2 (away)" in other.state.result.notes
        found, before = late.state.result.metrics, other.state.result.metrics
        assert (found["test_loss"] or 9) < (before["test_loss"] or 0) + 0.05, "with the help of all"

    field.clock.run(("story", story()))


def test_the_device_that_has_other_rows_than_most_ends_before_it_takes_part(tmp_path: Path) -> None:
    fed = federation(parties=4)
    field = Field(fed, tmp_path)

    async def story() -> None:
        field.start("client0", "client1", "client3", rows="these")
        field.start("client2", rows="others")
        field.tasks["client2"].awaited = True
        await field.until(lambda: field.tasks["client2"].done)
        error = field.tasks["client2"].error
        assert isinstance(error, InputError)
        assert all(f"client{i} has other rows than we" in str(error) for i in (0, 1, 3))
        assert field.members["client2"].state.round == 0
        field.kill("client2")
        del field.members["client2"]
        await field.trained()

    field.clock.run(("story", story()))


def test_as_many_may_ask_at_once_as_there_are_devices(tmp_path: Path) -> None:
    fed = federation(parties=9, epochs=1, gossip=1)
    field = Field(fed, tmp_path)

    async def story() -> None:
        sent = count_kinds(field.storm)
        together = [field.clock.spawn(field.ask(p, ["1"]), p) for p in fed.members]
        for answer, seconds in await field.clock.join(together):
            assert not answer.absent
            assert seconds < 0.5
        assert sent[HEARTBEAT] < sent["encoding"] + sent["log-probability"]

    field.once_trained(story)


def deafen(field: Field, party: str, unheard: str) -> None:
    """What one device sends is lost on the way to `party`, which does not see it and so does not
    wait for it. Calls pass."""
    field.members[party].post.peers[unheard].there = False
    send = field.storm.send

    def lossy(sender: str, to: str, data: bytes) -> None:
        if (sender, to) != (unheard, party) or decode(data)[0].kind == CALL:
            send(sender, to, data)

    field.storm.send = lossy


def test_the_answer_names_whom_another_device_did_not_hear(tmp_path: Path) -> None:
    """client0 hears everybody, but what client1 says is made without client3."""
    fed = federation(parties=4)
    field = Field(fed, tmp_path)

    async def story() -> None:
        whole, _ = await field.ask("client0", IDS)
        assert not whole.absent
        deafen(field, "client1", "client3")
        answer, _ = await field.ask("client0", IDS)
        assert not torch.allclose(answer.logits, whole.logits)
        assert answer.absent == {"client3": "not heard by client1"}

    field.once_trained(story)


@pytest.mark.parametrize("lasts", [True, False])
def test_results_name_whom_another_device_did_not_hear_in_the_test(
    lasts: bool, tmp_path: Path
) -> None:
    """If all hear each other a second later, they test again, and nobody is named."""
    fed = federation(parties=4)
    field = Field(fed, tmp_path)

    async def story() -> None:
        field.start(*fed.members)
        deaf = field.members["client1"]
        test = deaf.algorithm.test

        async def deafly(net: Network) -> dict[str, float]:
            send: Any = field.storm.send
            deafen(field, "client1", "client3")
            try:
                return await test(net)
            finally:
                if not lasts:
                    field.storm.send = send
                    deaf.post.peers["client3"].there = True

        deaf.algorithm.test = deafly
        await field.trained()
        named = "client3 (not heard by client1)"
        for party in ("client0", "client2", "client3"):
            result = field.members[party].state.result
            assert result is not None
            without = [note for note in result.notes if note.startswith("tested without")]
            assert bool(without) == lasts
            assert all(named in note for note in without)

    field.clock.run(("story", story()))


def test_a_device_that_does_not_say_whom_it_heard_is_named(tmp_path: Path) -> None:
    """It takes part in the answer, and vanishes before it is done."""
    fed = federation(parties=4)
    field = Field(fed, tmp_path)

    async def story() -> None:
        hurt = field.members["client2"]
        hurt.tell_done = lambda done, parties: field.kill("client2")
        answer, _ = await field.ask("client0", IDS)
        assert answer.absent == {"client2": "did not tell whom it heard"}

    field.once_trained(story)


def test_a_device_that_was_away_gets_a_part_of_a_version_that_is_about_as_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All versions after the first one count as worse by their loss. A device that missed the first
    one would end without a part of the model."""
    monkeypatch.setattr(Gossip, "figure", lambda self, loss, value: 1.0 + self.progress["best"])
    fed = federation(parties=4, epochs=6)
    field = Field(fed, tmp_path)

    async def story() -> None:
        field.start("client0", "client1", "client2")
        await field.until(lambda: len(field.members["client0"].record.points) == 3)
        assert field.members["client0"].algorithm.training.progress["best"] < 5
        field.start("client3")
        await field.trained()
        assert len({member.version for member in field.members.values()}) == 1
        assert all(m.state.round <= m.state.rounds for m in field.members.values()), "extra epochs"
        answer, _ = await field.ask("client0", IDS)
        assert not answer.absent

    field.clock.run(("story", story()))


def count_kinds(storm: Storm) -> Counter[str]:
    kinds: Counter[str] = Counter()
    send = storm.send

    def counted(sender: str, to: str, data: bytes) -> None:
        kinds[decode(data)[0].kind] += 1
        send(sender, to, data)

    storm.send = counted
    return kinds


def test_calls_in_which_a_device_takes_no_part_leave_nothing_behind(tmp_path: Path) -> None:
    fed = federation(parties=4)
    field = Field(fed, tmp_path)

    async def story() -> None:
        places = field.members["client1"].own.places
        assert isinstance(places, dict)
        del places["7"]
        for _ in range(70):
            await field.ask("client3", ["7"])
        places["7"] = 6
        assert len(field.members["client1"].post.main.mail.letters) < 30
        for party in ("client1", "client0"):
            answer, _ = await field.ask(party, IDS)
            assert not answer.absent

    field.once_trained(story)


def test_a_call_during_the_training_holds_nobody_up(tmp_path: Path) -> None:
    """One that falls behind in the training may be called by neighbours that are done."""
    fed = federation(epochs=4)
    field = Field(fed, tmp_path)

    async def whole() -> None:
        field.start(*fed.members)
        await field.until(lambda: field.members["client0"].state.round > 2)
        call = Call(1, IDS, caller="client1")
        field.members["client1"].pass_on(call, ["client0"])
        await field.until(lambda: field.members["client0"].heard_of.get("client1") == 1)
        assert field.members["client0"].state.stage == Stage.TRAINING
        await field.trained()
        answer, _ = await field.ask("client1", IDS)
        assert not answer.absent

    field.clock.run(("story", whole()))


def test_one_that_falls_behind_in_an_answer_gives_the_whole_answer(tmp_path: Path) -> None:
    fed = federation(parties=4, deadline=0.2, batch=8)
    field = Field(fed, tmp_path)
    ids = [str(i + 1) for i in range(40)]

    async def story() -> None:
        algorithm = field.members["client0"].algorithm
        assert isinstance(algorithm, MAGS)
        opine, stalls = algorithm.opine, [3 * SECOND]

        async def stalling(net: Network, x: torch.Tensor, rows: int) -> torch.Tensor:
            await field.clock.sleep_until(field.clock.now + (stalls.pop() if stalls else 0))
            return await opine(net, x, rows)

        algorithm.opine = stalling
        answer, _ = await field.ask("client0", ids)
        assert answer.logits.shape == (40, 10)

    field.once_trained(story)


def test_on_a_ring_all_wait_for_one_that_is_late(tmp_path: Path) -> None:
    fed = federation(topology="ring")
    field = Field(fed, tmp_path)

    async def story() -> None:
        field.start(*fed.members[:8])
        await field.clock.sleep_until(3 * SECOND)
        assert all(m.state.stage == Stage.WAITING for m in field.members.values())
        field.start("client8")
        await field.trained()
        assert {len(m.record.points) for m in field.members.values()} == {2}

    field.clock.run(("story", story()))


def test_one_that_comes_back_when_the_others_have_a_model_is_not_mixed_into_it(
    tmp_path: Path,
) -> None:
    fed = federation(parties=4, epochs=6)
    field = Field(fed, tmp_path)

    async def story() -> None:
        field.start(*fed.members)
        await field.until(lambda: field.members["client0"].state.round > 5)
        field.kill("client3")
        del field.members["client3"]
        await field.trained()
        field.start("client3")
        await field.trained()
        late, other = field.members["client3"], field.members["client0"]
        assert late.version != other.version
        answer, _ = await field.ask("client0", IDS)
        assert set(answer.absent) == {"client3"}
        assert "untrained" in answer.absent["client3"] or "has round" in answer.absent["client3"]
        assert late.state.result is not None
        others = ("client0", "client1", "client2")
        said = " ".join(late.state.result.notes)
        assert not late.state.result.metrics or all(name in said for name in others)

    field.clock.run(("story", story()))


def test_a_clock_that_was_set_back_costs_one_question(tmp_path: Path) -> None:
    fed = federation(parties=4)
    field = Field(fed, tmp_path)

    async def story() -> None:
        for _ in range(3):
            await field.ask("client0", IDS)
        field.members["client0"].asked = 0
        await field.ask("client0", IDS)
        answer, _ = await field.ask("client0", IDS)
        assert not answer.absent

    field.once_trained(story)


def test_encodings_of_other_rows_are_not_taken_for_an_answer(tmp_path: Path) -> None:
    """Two devices believe in a call that client0 never made, with the number of its next one."""
    fed = federation(parties=4)
    field = Field(fed, tmp_path)

    async def story() -> None:
        honest, _ = await field.ask("client0", IDS)
        forged = Call(field.members["client0"].asked + 1, ["5", "6", "8", "9"], caller="client0")
        for party in ("client1", "client2"):
            field.members[party].hear_of(forged, "client0")  # as if client0 itself had told it
        await field.clock.sleep_until(field.clock.now + 3 * SECOND)
        field.members["client0"].asked = forged.number - 1
        answer, _ = await field.ask("client0", IDS)
        assert answer.absent, "who was misled did not answer this question"
        answer, _ = await field.ask("client0", IDS)
        assert torch.allclose(answer.logits, honest.logits)

    field.once_trained(story)


def test_a_device_with_another_federation_file_than_the_others_says_so_and_ends(
    tmp_path: Path,
) -> None:
    field, other = Field(federation(parties=4), tmp_path), Field(federation(epochs=3), tmp_path)
    other.fed = federation(parties=4, epochs=3)
    other.clock, other.storm = field.clock, field.storm

    async def story() -> None:
        field.start("client0", "client1", "client3")
        other.start("client2")
        await field.clock.sleep_until(60 * SECOND)

    with pytest.raises(InputError, match=r"client\d differs from ours in method.epochs"):
        field.clock.run(("story", story()))
