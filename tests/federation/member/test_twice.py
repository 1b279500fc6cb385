"""A second process with the certificate of a party that takes part already, in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import InputError
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.agreement.party_file import PartyFile
from colonnade.federation.member.leaderless import member_kind
from colonnade.federation.member.member import Member
from colonnade.federation.member.own_data import read_own
from colonnade.federation.member.stage import Stage
from colonnade.network.clock import SECOND, Clock
from colonnade.network.live.messages import TWICE
from colonnade.testing import stacked
from colonnade.testing.storm import Storm, Weather

SLOW = Weather(delay=10, gust=0, duplicate=0, notice=20, ordered=True)
TWIN = "client1"


def federation(algorithm: str) -> Federation:
    method = {"algorithm": algorithm, "epochs": 8}
    data = {"dataset": "digits", "rows": 200, "parties": 4}
    network = {"gather": 5.0, "patience": 0.5, "lease": 0.1}
    table = {"name": "test", "data": data, "method": method, "network": network}
    return parse_federation(table, "test")


class Enough(Exception):
    """The story is told; what the parties would do next does not matter."""


class Scene:
    def __init__(self, algorithm: str, folder: Path) -> None:
        self.fed, self.folder, self.clock = federation(algorithm), folder, Clock()
        self.storm = Storm(self.clock, 0, SLOW)
        self.tasks: dict[int, Any] = {}
        self.errors: list[InputError] = []

    def start(self, party: str, life: int, folder: str = "") -> Member:
        own = read_own(PartyFile("test", self.fed, party, self.folder))
        seat = self.storm.seat(party)
        where = self.folder / (folder or party)
        one = member_kind(self.fed)(self.fed, own, seat, where, life=life, once=True)
        self.tasks[life] = self.clock.spawn(one.live(), f"{party}#{life}")
        obey = one.twice

        def end(sender: str, named: int) -> None:
            """As the process would, whose scheduler stops with the error."""
            try:
                obey(sender, named)
            except InputError as error:
                self.errors.append(error)
                seat.close()
                self.clock.cancel(self.tasks[life])

        one.post.on_twice = end
        return one

    def start_all(self) -> dict[str, Member]:
        return {party: self.start(party, i + 1) for i, party in enumerate(self.fed.members)}

    async def until(self, ready: Any, seconds: float = 300) -> None:
        limit = self.clock.now + int(seconds * SECOND)
        while not ready():
            assert self.clock.now < limit, "takes too long"
            await self.clock.sleep_until(self.clock.now + SECOND // 1000)


@pytest.mark.parametrize("algorithm", ["splitnn", "mags"])
@pytest.mark.parametrize("when", [0, 4])
def test_a_second_process_ends_with_an_error_and_changes_no_weight(
    algorithm: str, when: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(algorithm, tmp_path)
    members: dict[str, Member] = {}

    async def story() -> None:
        members.update(scene.start_all())
        await scene.until(lambda: members[TWIN].state.round >= when)
        await scene.clock.sleep_until(scene.clock.now + SECOND // 20)
        scene.start(TWIN, 1000, "elsewhere")
        await scene.until(lambda: scene.errors)
        assert all(one.state.stage == Stage.TRAINING for one in members.values())
        await scene.until(lambda: all(one.over for one in members.values()))

    scene.clock.run(("story", story()))
    (error,) = scene.errors
    assert "client1: another process with this party's certificate takes part already" in str(error)
    assert "client1: a second process has its certificate" in caplog.text  # at the others
    assert "a second process has our certificate" in caplog.text  # at the first
    fed = scene.fed
    one = stacked(fed.method, fed.vertical_data(), fed.seed, topology=fed.network.graph)
    for party, tensors in one.weights.items():
        mine = members[party].algorithm.tensors(members[party].net)[party]
        assert all(float((mine[key] - value).abs().max()) < 1e-6 for key, value in tensors.items())


@pytest.mark.parametrize(
    ("algorithm", "there", "victim"),
    [
        ("mags", ("client0", "client1", "client2", "client3"), "client1"),
        ("mags", ("client1", "client3"), "client1"),
        ("splitnn", ("server", "client3"), "server"),  # as after a restart of the label holder
    ],
)
def test_one_member_alone_cannot_send_another_one_away(
    algorithm: str,
    there: tuple[str, ...],
    victim: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(algorithm, tmp_path)

    async def story() -> None:
        members = {party: scene.start(party, i + 1) for i, party in enumerate(there)}
        await scene.clock.sleep_until(scene.clock.now + SECOND)
        for note in ("77", "9" * 40):
            members["client3"].post.tell(victim, TWICE, note=note)
        await scene.clock.sleep_until(scene.clock.now + SECOND)
        assert "client3 says that it listens to another process with our certificate" in caplog.text
        raise Enough

    with pytest.raises(Enough):
        scene.clock.run(("story", story()))
    assert not scene.errors


def test_two_members_of_three_send_a_process_away(tmp_path: Path) -> None:
    scene = Scene("mags", tmp_path)

    async def story() -> None:
        there = ("client0", "client1", "client2", "client3")
        members = {party: scene.start(party, i + 1) for i, party in enumerate(there)}
        await scene.until(lambda: len(members[TWIN].post.present()) == 3)
        for witness in ("client2", "client3"):
            members[witness].post.tell(TWIN, TWICE, note="77")
        await scene.until(lambda: scene.errors)
        raise Enough

    with pytest.raises(Enough):
        scene.clock.run(("story", story()))
