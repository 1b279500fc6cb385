"""Members of a federation through storms, in virtual time, with the algorithms that exist."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from colonnade.algorithms import registry
from colonnade.experiments.report import write_report
from colonnade.federation.federation import Federation
from colonnade.federation.files import parse_federation
from colonnade.federation.member import Member
from colonnade.federation.own import read_own
from colonnade.federation.party import PartyFile
from colonnade.network.clock import Clock
from colonnade.network.transport.memory import MemoryTransport
from colonnade.network.transport.storm import Crew, StormSeat
from colonnade.testing import stacked

METHODS: dict[str, dict[str, Any]] = {
    "splitnn": {"epochs": 3},
    "dvfl": {"epochs": 3, "aggregators": 2, "client_epochs": 2, "aggregator_epochs": 3},
    "fedonce": {"epochs": 3, "client_epochs": 2},
}
FEDERATED = [name for name, kind in registry().items() if not kind.pooled]


@cache
def federation(name: str, **more: Any) -> Federation:
    method = {"algorithm": name, **METHODS.get(name, {"epochs": 3}), **more}
    data = {"dataset": "digits", "rows": 300}
    network = {"gather": 5.0, "patience": 0.5}
    table = {"name": "test", "data": data, "method": method, "network": network}
    return parse_federation(table, "test")


def member(fed: Federation, seat: Any, folder: Path, born: int = 1) -> Member:
    own = read_own(PartyFile("test", fed, seat.party, folder))
    return Member(fed, own, seat, folder / seat.party, born=born, once=True)


def calm(fed: Federation, folder: Path) -> dict[str, Member]:
    clock = Clock()
    room = MemoryTransport(clock)
    members = {party: member(fed, room.seat(party), folder) for party in fed.members}
    clock.run(*[(party, one.live()) for party, one in members.items()])
    return members


@pytest.mark.parametrize("name", FEDERATED)
def test_without_faults_a_federation_is_the_experiment(name: str, tmp_path: Path) -> None:
    fed = federation(name)
    members = calm(fed, tmp_path)
    one = stacked(fed.method, fed.vertical_data(), fed.seed)
    for party, tensors in one.weights.items():
        mine = members[party].algorithm.tensors(members[party].net)[party]
        assert all(float((mine[key] - value).abs().max()) < 1e-6 for key, value in tensors.items())
    leader = members[fed.leader]
    result = leader.state.result
    assert result is not None
    assert result.metrics == pytest.approx(one.metrics)
    told = [
        (r.phase, r.sender, r.receiver, r.kind, r.messages, r.bytes) for r in leader.record.rows()
    ]
    assert sorted(told) == sorted(one.net.ledger.rows())
    assert write_report(tmp_path / fed.leader).exists()


@pytest.mark.parametrize("name", FEDERATED)
@pytest.mark.parametrize("seed", range(12))
def test_a_training_survives_a_storm(name: str, seed: int, tmp_path: Path) -> None:
    fed = federation(name)
    members: dict[str, Member] = {}

    async def live(seat: StormSeat, life: int) -> Member:
        one = members[seat.party] = member(fed, seat, tmp_path, seat.clock.now // 1000 + 1)
        await one.live()
        return one

    crew = Crew(seed, fed.members, live)
    crew.run(crashes=(0, 2, 6, 12)[seed % 4])
    result = members[fed.leader].state.result
    assert result is not None
    assert result.metrics["test_accuracy"] is not None
