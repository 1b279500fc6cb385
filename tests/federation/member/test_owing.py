"""A member that is there and does not do its part, or does it with absurd numbers, costs the others
some time and nothing else."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.federation.member.test_member import member

from colonnade.errors import Diverged
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.member.member import Member
from colonnade.federation.member.stage import Stage
from colonnade.network.clock import SECOND, Clock
from colonnade.network.live.loudness import Loudness, magnitude
from colonnade.network.live.messages import HEARTBEAT
from colonnade.network.program_counter import MAIN
from colonnade.network.transport.memory import MemoryTransport

OWING = "client3"


def federation(algorithm: str = "splitnn", missing: str = "", **network: Any) -> Federation:
    data = {"dataset": "digits", "rows": 200}
    method = {"algorithm": algorithm, "epochs": 2}
    method |= {"missing": missing} if missing else {}
    settings = {"gather": 5.0, "patience": 0.5, "extra_epochs": 0, **network}
    table = {"name": "test", "data": data, "method": method, "network": settings}
    return parse_federation(table, "test")


def together(fed: Federation, folder: Path) -> tuple[Clock, dict[str, Member]]:
    clock = Clock()
    room = MemoryTransport(clock)
    return clock, {party: member(fed, room.seat(party), folder) for party in fed.members}


def sending(one: Member, change: Any) -> None:
    """Have every message with content that a member sends changed; None leaves it out."""
    publish = one.post.post

    def post(header: Any, value: Any, to: str) -> None:
        changed = value if value is None or header.kind == "decision" else change(value)
        if changed is not None or value is None:
            publish(header, changed, to)

    one.post.post = post


@pytest.mark.parametrize(
    ("algorithm", "missing"),
    [("splitnn", ""), ("mags", ""), ("splitnn", "wait"), ("fedonce", "retry"), ("fedvs", "wait")],
)
def test_heartbeats_without_the_message_that_is_due_stop_the_others_for_a_bounded_time(
    algorithm: str, missing: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At first twice `silence`, then half as long each time, also where everybody is waited for. It
    claims to be in the round that the others are in, and never to be done with its part."""
    fed = federation(algorithm, missing, silence=4.0)
    clock, members = together(fed, tmp_path)
    owing, other = members.pop(OWING), members[fed.speaker]

    async def heartbeats() -> None:
        owing.post.listen()
        while True:
            net = getattr(other, "net", None)
            counter = MAIN.at(0 if net is None else net.rounds_begun, 0)
            for party in owing.post.present():
                owing.post.main.generation = members[party].post.generation
                owing.post.tell(party, HEARTBEAT, counter)
            await clock.sleep_until(clock.now + SECOND // 5)
            assert clock.now < 120 * SECOND, "the others still wait"

    clock.spawn(heartbeats(), "heartbeats")
    clock.run(*[(party, one.live()) for party, one in members.items()])
    assert "its heartbeats come, its message does not" in caplog.text
    result = members[fed.speaker].state.result
    assert result is not None
    assert any(OWING in note for note in result.notes)


@pytest.mark.parametrize("algorithm", ["splitnn", "mags", "dvfl"])
def test_a_member_that_is_connected_and_says_nothing_is_named_in_the_log(
    algorithm: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    fed = federation(algorithm)
    clock, members = together(fed, tmp_path)
    silent = members.pop(OWING)
    setattr(silent.post.transport, "publish", lambda to, data: None)  # noqa: B010
    silent.post.listen()
    clock.run(*[(party, one.live()) for party, one in members.items()])
    told = [line for line in caplog.messages if f"going on without {OWING}" in line]
    assert told
    assert len(told) <= 2 * len(members), "not once per round"
    assert "says nothing" in told[0]


def test_a_member_that_falls_silent_where_nobody_waits_for_messages_is_named_as_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Registers of `dvfl` are read without waiting for longer than `patience`."""
    fed = federation("dvfl")
    clock, members = together(fed, tmp_path)
    silent, speaker = members[OWING], members[fed.speaker]
    publish = silent.post.transport.publish

    def speak(to: str, data: bytes) -> None:
        if silent.state.round < 5:
            publish(to, data)

    setattr(silent.post.transport, "publish", speak)  # noqa: B010
    clock.spawn(silent.live(), OWING)
    clock.run(*[(party, one.live()) for party, one in members.items() if party != OWING])
    assert speaker.state.result is not None
    assert f"{fed.speaker}: going on without {OWING}" in caplog.text


def test_whoever_waits_for_longer_than_a_few_seconds_says_for_whom_once_per_wait(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The label holder keeps its messages to itself from round 5 on, for 18 s."""
    caplog.set_level(logging.INFO)
    fed = federation(silence=60.0)
    clock, members = together(fed, tmp_path)
    leader = members[fed.speaker]
    publish = leader.post.transport.publish
    held: list[tuple[str, bytes]] = []

    def hold(to: str, data: bytes) -> None:
        if leader.state.round < 5:
            publish(to, data)
            return
        if not held:
            clock.call_at(clock.now + 18 * SECOND, release)
        held.append((to, data))

    def release() -> None:
        setattr(leader.post.transport, "publish", publish)  # noqa: B010
        for to, data in held:
            publish(to, data)

    setattr(leader.post.transport, "publish", hold)  # noqa: B010
    clock.run(*[(party, one.live()) for party, one in members.items()])
    assert held
    waits = [line for line in caplog.messages if f"waiting for {fed.speaker} for" in line]
    assert len(waits) == len(members) - 1
    assert {line.split(":")[0] for line in waits} == members.keys() - {fed.speaker}


@pytest.mark.parametrize("size", [3e38, 1e20, 1e9])
def test_absurd_numbers_are_refused_and_the_loss_stays_finite(size: float, tmp_path: Path) -> None:
    fed = federation()
    clock, members = together(fed, tmp_path)
    sending(members[OWING], lambda value: torch.full_like(value, size))
    clock.run(*[(party, one.live()) for party, one in members.items()])
    leader = members[fed.speaker]
    assert leader.post.refused
    assert all(math.isfinite(point["train_loss"]) for point in leader.record.points)
    assert leader.state.result is not None
    assert (leader.state.result.metrics["test_loss"] or math.inf) < 10


def test_without_a_bound_a_loss_that_is_no_number_names_round_and_senders(tmp_path: Path) -> None:
    fed = federation(loudness=0)
    clock, members = together(fed, tmp_path)
    sending(members[OWING], lambda value: torch.full_like(value, 3e38))
    with pytest.raises(
        Diverged, match=rf"round \d+ .*came from {OWING} \(embedding up to 3e\+38\)"
    ):
        clock.run(*[(party, one.live()) for party, one in members.items()])


def test_an_aggregator_without_labels_names_round_and_senders_as_well(tmp_path: Path) -> None:
    fed = federation("dvfl", loudness=0)
    clock, members = together(fed, tmp_path)
    sending(members[OWING], lambda value: torch.full_like(value, 3e38))
    with pytest.raises(Diverged, match=rf"round \d+ .*came from {OWING} \(encoding up to 3e\+38\)"):
        clock.run(*[(party, one.live()) for party, one in members.items()])
    assert members["owner"].state.stage == Stage.TRAINING, "long before its own rounds"


def test_the_bound_follows_what_was_heard_first_and_rises_once_at_most() -> None:
    loudness = Loudness(10.0)
    assert loudness.limit("embedding") == 10
    loudness.heard("embedding", "a", 5.0)
    assert loudness.limit("embedding") == 50
    loudness.heard("embedding", "a", 49.0)  # not its first message
    assert loudness.limit("embedding") == 50
    loudness.heard("embedding", "b", 50.0)
    assert loudness.limit("embedding") == 500
    assert loudness.limit("gradient") == 10
    assert loudness.loudest(1) == "b (embedding up to 50)"


@pytest.mark.parametrize(
    ("values", "size"),
    [([1.0, -3.0], 3.0), ([math.nan, 1.0], math.inf), ([-math.inf], math.inf), ([], 0.0)],
)
def test_magnitude(values: list[float], size: float) -> None:
    assert magnitude(torch.tensor(values)) == size
