"""Noise in a real federation, in virtual time: counted through crashes, and in answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from tests.federation.member.test_member import calm, member
from tests.federation.member.test_versions import Hall

from colonnade.common.randomness import SystemRandomness
from colonnade.common.results import read_results
from colonnade.errors import InputError
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.member.answers import Answer, Question
from colonnade.federation.member.folder import RELEASED, of_a_party
from colonnade.federation.member.member import Member
from colonnade.network.clock import SECOND, Clock
from colonnade.network.live.network import Live
from colonnade.network.transport.memory import MemoryTransport
from colonnade.testing.storm import Crew, StormSeat, Weather

ALLOWED = 12


def federation(name: str, **noise: Any) -> Federation:
    keys = {"client_epochs": 2} if name == "fedonce" else {}
    method = {"algorithm": name, "epochs": 3, "noise": {"clip": 1.0, **noise}, **keys}
    data = {"dataset": "digits", "rows": 300}
    network = {"gather": 5.0, "patience": 0.5}
    return parse_federation(
        {"name": "test", "data": data, "method": method, "network": network}, "test"
    )


def asked(fed: Federation, folder: Path, ids: list[str], times: int) -> list[Answer]:
    """What the federation answers, once trained, to the same question again and again."""
    clock = Clock()
    room = MemoryTransport(clock)
    members = {party: member(fed, room.seat(party), folder) for party in fed.members}
    speaker, answers = members[fed.speaker], []

    async def somebody_asks() -> None:
        while speaker.state.result is None:
            await clock.sleep_until(clock.now + SECOND // 10)
        for number in range(1, times + 1):
            speaker.questions.append(Question(ids, answers.append))
            speaker.wake.notify()
            while len(answers) < number:
                await clock.sleep_until(clock.now + SECOND // 10)

    for one in members.values():
        one.once = False
        clock.spawn(one.live(), one.party)
    clock.run(("somebody", somebody_asks()))
    return answers


def test_noise_of_real_parties_comes_from_the_operating_system() -> None:
    assert isinstance(Live.secrets(None, "client0", "noise"), SystemRandomness)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", ["splitnn", "fedonce", "mags"])
def test_real_parties_train_with_noise_and_the_result_says_what_it_is_worth(
    name: str, tmp_path: Path
) -> None:
    fed = federation(name, epsilon=50.0)
    members = calm(fed, tmp_path)
    (result,) = read_results(tmp_path / fed.speaker)
    releases = members[fed.speaker].algorithm.releases
    assert releases is not None
    assert result.privacy["train_releases"] == (1 if name == "fedonce" else 3)
    assert 0 < (result.privacy["epsilon"] or 0) <= 50.0
    # Planned: with the extra epochs that a real federation may need.
    usual, extra = 3, fed.network.extra_epochs
    assert releases.allowed == (1 if name == "fedonce" else usual + extra)
    assert (tmp_path / fed.speaker / "config.toml").read_text().count("epsilon = 50.0") == 1


def test_a_row_is_answered_about_until_its_budget_is_used_up(tmp_path: Path) -> None:
    fed = federation("splitnn", epsilon=50.0, releases=ALLOWED)
    answers = asked(fed, tmp_path, ["1", "2"], times=5)
    # Three epochs and one test were before.
    assert [answer.absent for answer in answers] == [{}] * 5
    again = asked(fed, tmp_path, ["2", "3"], times=5)  # the parties start again, and know it
    full = [i for i, answer in enumerate(again) if not answer.absent]
    assert full == [0, 1, 2], "12 = 3 epochs + 1 test + 5 and 3 answers about row 2"
    reason = "the privacy budget of 1 of 2 rows (2) is used up"
    assert again[3].absent == {f"client{i}": reason for i in range(4)}
    assert of_a_party(tmp_path / "client0" / RELEASED), "--fresh removes it"


def test_a_row_that_is_asked_for_twice_in_one_question_leaves_twice(tmp_path: Path) -> None:
    fed = federation("splitnn", epsilon=50.0, releases=ALLOWED)
    within, beyond = ["5"] * 4, ["5"] * 5  # 12 = 3 epochs + 1 test + 4 + 4
    assert [answer.absent for answer in asked(fed, tmp_path, within, times=1)] == [{}]
    assert len(asked(fed, tmp_path, beyond, times=1)[0].absent) == 4
    assert [answer.absent for answer in asked(fed, tmp_path, within, times=1)] == [{}]


def test_a_count_that_is_gone_is_not_begun_anew(tmp_path: Path) -> None:
    fed = federation("splitnn", epsilon=50.0, releases=ALLOWED)
    calm(fed, tmp_path)
    (tmp_path / "client1" / RELEASED).unlink()
    with pytest.raises(InputError, match=r"client1/released.json: is missing, .* --fresh"):
        calm(fed, tmp_path)


@pytest.mark.parametrize("text", ['{"tests": ', '{"train": -5}', '{"answers": {"5": -100}}'])
def test_a_damaged_count_of_answers_is_refused(text: str, tmp_path: Path) -> None:
    fed = federation("splitnn", epsilon=50.0, releases=ALLOWED)
    (tmp_path / "client1").mkdir()
    (tmp_path / "client1" / RELEASED).write_text(text)
    with pytest.raises(InputError, match=r"client1/released.json: damaged .* --fresh"):
        calm(fed, tmp_path)


def test_who_asks_beyond_the_budget_of_its_own_rows_sends_average_columns(tmp_path: Path) -> None:
    """A device without a server asks itself, too."""
    fed = federation("mags", epsilon=50.0, releases=ALLOWED)
    members: dict[str, Member] = calm(fed, tmp_path)
    one = members[fed.speaker]
    assert one.budget is not None
    parts = [one.part(["5"]).x for _ in range(ALLOWED)]
    within = sum(bool(x.any()) for x in parts)
    assert within == ALLOWED - 3 - one.budget.count.tests
    assert torch.equal(parts[-1], torch.zeros_like(parts[-1]))


def test_a_client_that_crashed_counts_at_least_what_left_it(tmp_path: Path) -> None:
    """Rounds since its checkpoint are done again, with new noise."""
    fed = federation("splitnn", epsilon=50.0, releases=ALLOWED)
    # How often each training row truly left, over all lives, and how often it was counted.
    truly = {party: torch.zeros(fed.task().rows["train"]) for party in fed.members}
    counted: dict[str, torch.Tensor] = {}

    async def live(seat: StormSeat, number: int) -> None:
        one = member(fed, seat, tmp_path, life=number + 1)
        releases = one.algorithm.releases
        assert releases is not None
        leave = releases.leave

        def watched(net: Any, value: Any, channel: Any, rows: int, where: Any) -> Any:
            value, where = leave(net, value, channel, rows, where)
            if net.phase == "training" and where is None and seat.party.startswith("client"):
                truly[seat.party][net.item.rows] += 1
                if (seat.party, number) == ("client1", 0) and truly["client1"].sum() > 400:
                    now = crew.clock.now
                    crew.clock.call_at(now, lambda: crew.crash("client1", now + SECOND // 50))
            return value, where

        releases.leave = watched  # pyright: ignore[reportAttributeAccessIssue]
        await one.live()
        counted[seat.party] = releases.left.counts["train"]

    crew = Crew(5, fed.members, live)
    crew.storm.weather = Weather(delay=2, gust=0, duplicate=0, notice=1, ordered=True)
    crew.run(crashes=0)
    assert len(crew.lives["client1"]) == 2
    for party in ("client0", "client1"):
        assert truly[party].max() > 1
        assert (truly[party] <= counted[party]).all()
        assert counted[party].max() <= ALLOWED


def federation_with(labels: dict[str, Any]) -> Federation:
    method = {"algorithm": "splitnn", "epochs": 2, **labels}
    table = {"name": "test", "data": {"dataset": "digits", "rows": 200}, "method": method}
    return parse_federation({**table, "network": {"gather": 5.0, "patience": 0.5}}, "test")


def test_a_label_holder_that_crashes_at_once_does_not_draw_the_noise_of_labels_again(
    tmp_path: Path,
) -> None:
    """Not even if it falls right after the first gradients left; and no part of the noise, however
    short it lives: an attacker would average two draws of it."""
    fed = federation_with({"hide_labels": 4.0, "label_privacy": {"epsilon": 2.0}})
    used: list[tuple[torch.Tensor, torch.Tensor]] = []  # by life of the server

    async def live(seat: StormSeat, number: int) -> None:
        one = member(fed, seat, tmp_path, life=number + 1)
        hidden, private = one.algorithm.hidden_labels, one.algorithm.private_labels
        assert hidden is not None
        assert private is not None
        leave = hidden.leave

        def watched(*sent: Any) -> Any:
            told = leave(*sent)
            if seat.party == "server" and len(used) == number:
                normal = torch.stack([hidden.normal[0].of(epoch) for epoch in range(3)])
                used.append((normal, private.evidence.value.clone()))
                now = crew.clock.now
                if number == 0:
                    crew.clock.call_at(now, lambda: crew.crash("server", now + SECOND // 50))
            return told

        hidden.leave = watched  # pyright: ignore[reportAttributeAccessIssue]
        await one.live()

    crew = Crew(5, fed.members, live)
    crew.storm.weather = Weather(delay=2, gust=0, duplicate=0, notice=1, ordered=True)
    crew.run(crashes=0)
    first, second = used
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))
    (result,) = read_results(tmp_path / fed.speaker)
    assert result.privacy == {"label_epsilon": 2.0}


@pytest.mark.parametrize("labels", [{"hide_labels": 4.0}, {"label_privacy": {"epsilon": 2.0}}])
def test_nothing_leaves_a_label_holder_before_its_noise_is_on_the_disk(
    labels: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """While its disk is full it waits: a process that fell would draw the noise again."""
    hall = Hall(federation_with(labels), tmp_path)
    save, full = safetensors.torch.save_file, [True]

    def save_file(tensors: Any, path: Path, facts: Any = None) -> None:
        if full[0] and Path(path).is_relative_to(tmp_path / "server"):
            raise safetensors.SafetensorError("No space left on device (os error 28)")
        save(tensors, path, facts)

    monkeypatch.setattr("safetensors.torch.save_file", save_file)

    def sent(server: Member) -> int:
        accounts = server.net.ledger.accounts()
        return sum(int(one.messages.sum()) for _, kind, one in accounts if kind == "gradient")

    async def story() -> None:
        hall.start(*hall.fed.members)
        server = hall.members["server"]
        await hall.clock.sleep_until(hall.clock.now + 60 * SECOND)
        assert server.state.result is None
        assert sent(server) == 0
        assert "No space left on device" in caplog.text
        full[0] = False
        await hall.trained()
        assert sent(server) > 0

    hall.tell(story)
