"""The label holder of a real federation asks which party contributes what."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest

from colonnade.common.explanations import Explanation
from colonnade.errors import ColonnadeError
from colonnade.experiments.run import build, drive
from colonnade.experiments.trained_model import TrainedModel
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.agreement.party_file import PartyFile
from colonnade.federation.asking.explaining import explained
from colonnade.federation.member.leaderless import member_kind
from colonnade.federation.member.member import Member
from colonnade.federation.member.messages import Call
from colonnade.federation.member.own_data import read_own
from colonnade.federation.member.score_requests import ScoreAsked, Scorer
from colonnade.learning.coalitions import shapley
from colonnade.network.clock import SECOND, Clock
from colonnade.network.transport.memory import MemoryTransport

BRIEF: dict[str, dict[str, Any]] = {
    "dvfl": {"aggregators": 2, "client_epochs": 1, "aggregator_epochs": 2},
    "fedvs": {"missing": "zeros"},
}


def federation(name: str, **more: Any) -> Federation:
    method = {"algorithm": name, "epochs": 2, "lr": 5e-3, **BRIEF.get(name, {}), **more}
    data = {"dataset": "digits", "parties": 3, "split": "bands", "rows": 400}
    network = {"gather": 5.0, "patience": 0.5}
    table = {"data": data, "method": method, "network": network}
    return parse_federation({"name": "test", **table}, "test")


COALITIONS: list[list[str]] = [
    sorted(some)
    for size in range(4)
    for some in combinations(("client0", "client1", "client2"), size)
]


class Asked:
    """A federation in one thread that is asked about every coalition when it is trained.
    `away`: of whom the label holder hears nothing any more by then."""

    def __init__(self, fed: Federation, folder: Path, away: str = "") -> None:
        self.clock, self.away = Clock(), away
        room = MemoryTransport(self.clock)
        self.members: dict[str, Member] = {}
        for party in fed.members:
            own = read_own(PartyFile("test", fed, party, folder))
            self.members[party] = member_kind(fed)(
                fed, own, room.seat(party), folder / party, life=1
            )
        self.holder = self.members[fed.speaker]
        self.replies: dict[bytes, bytes] = {}
        self.before = self.sent()
        for one in self.members.values():
            self.clock.spawn(one.live(), one.party)
        self.clock.run(("somebody", self._ask()))

    async def _ask(self) -> None:
        while self.holder.state.result is None:
            await self.clock.sleep_until(self.clock.now + SECOND // 10)
        await self.clock.sleep_until(self.clock.now + 5 * SECOND)
        self.before = self.sent()
        if self.away:
            self.holder.post.peers[self.away].there = False
        for without in COALITIONS:
            request, replies = msgspec.json.encode(ScoreAsked(without)), list[bytes]()
            Scorer(self.holder, replies.append).begin(request)
            while not replies:
                await self.clock.sleep_until(self.clock.now + SECOND // 100)
            self.replies[request] = replies[0]

    def sent(self) -> dict[str, tuple[int, int]]:
        """Messages and bytes that left each party for tests and answers."""
        rows = [row for m in self.members.values() for row in m.record.ledger.rows()]
        return {row[1]: (row[4], row[5]) for row in rows if row[0] == "inference"}

    def explanation(self) -> Explanation:
        return explained(self.replies.get, "nobody answers")


@pytest.mark.parametrize("name", ["splitnn", "dvfl", "mags"])
def test_what_real_parties_contribute_is_what_a_simulation_finds(name: str, tmp_path: Path) -> None:
    fed = federation(name)
    asked = Asked(fed, tmp_path)
    found = asked.explanation()
    algorithm, net = build(fed.method, fed.vertical_data(), fed.seed)
    tensors = algorithm.tensors(net)
    for party, member in asked.members.items():
        for key, value in member.algorithm.tensors(member.net)[party].items():
            tensors[party][key].copy_(value)
    model = TrainedModel(algorithm, net, algorithm.data.test)
    if name == "mags":  # who is asked answers for itself, and the entity is told that first
        model.score = lambda heard: _first(model, heard)  # pyright: ignore
    wanted = shapley(fed.vertical_data().clients, model.score)
    assert {p.party: p.shapley for p in found.parties} == pytest.approx(wanted.values, abs=1e-6)
    assert {p.party: found.full - p.absent for p in found.parties} == pytest.approx(wanted.without)
    assert found.evaluations == 2**3
    assert (found.full, found.empty) == pytest.approx((wanted.full, wanted.empty))


def _first(model: TrainedModel, heard: frozenset[str]) -> float:
    """The score of the first device's answers."""
    apart = model.net.within("inference")
    apart.without = frozenset(model.parties) - heard
    outputs = drive(model.algorithm.predict(apart, model.part))
    return model.algorithm.task.goal.deciding.of(outputs, model.part.y)


def test_a_party_that_is_left_out_sends_nothing_and_nothing_new_leaves_the_others(
    tmp_path: Path,
) -> None:
    asked = Asked(federation("splitnn"), tmp_path)
    after = asked.sent()
    for party in ("client0", "client1", "client2"):  # the test, and four of eight coalitions
        assert after[party] == tuple(5 * number for number in asked.before[party])
    kinds = {
        row[3] for row in asked.members["client0"].record.ledger.rows() if row[0] == "inference"
    }
    assert kinds == {"embedding"}


def test_sums_with_and_without_a_party_would_tell_its_part_so_they_are_refused(
    tmp_path: Path,
) -> None:
    asked = Asked(federation("fedvs"), tmp_path)
    with pytest.raises(ColonnadeError, match="the label holder learns sums over all parties only"):
        asked.explanation()
    # Nor do clients answer a label holder that runs other software.
    client = asked.members["client0"]
    assert client.refusal(Call(9)).why == ""
    assert "its part in a sum" in client.refusal(Call(9, without=["client1"])).why


def test_noise_is_not_spent_on_explanations(tmp_path: Path) -> None:
    asked = Asked(federation("splitnn", noise={"clip": 1.0, "sigma": 0.1}), tmp_path)
    with pytest.raises(ColonnadeError, match="would release the test rows once more"):
        asked.explanation()


def test_nothing_is_told_while_a_party_is_away(tmp_path: Path) -> None:
    asked = Asked(federation("splitnn"), tmp_path, away="client1")
    with pytest.raises(ColonnadeError, match=r"not heard: client1 \(away\)"):
        asked.explanation()
