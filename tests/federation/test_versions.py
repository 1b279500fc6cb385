"""A model is one thing across parties: whatever crashes, the parts that are used together are those
that were measured together.

The oracle knows nothing of how versions are kept: it notes a digest of every party's weights when
an epoch ends, before anybody decides anything, and of the encoders whose encodings are collected.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.federation.test_member import member
from torch import Tensor

from colonnade.algorithms.algorithm import Algorithm, Decision
from colonnade.algorithms.dvfl import DVFL
from colonnade.algorithms.fedonce import FedOnce
from colonnade.federation.federation import Federation
from colonnade.federation.files import parse_federation
from colonnade.federation.member import Member
from colonnade.network.live import Live
from colonnade.network.network import Network
from colonnade.network.parts import Version
from colonnade.network.transport.storm import Crew, StormSeat

STORMS = 48  # of the thousand that `python -m bench storms` runs
PARTS = 12
METHODS: dict[str, dict[str, Any]] = {
    "splitnn": {"epochs": 4},
    "splitnn wait": {"epochs": 4, "missing": "wait"},
    "splitnn stale": {"epochs": 4, "missing": "stale"},
    "dvfl": {"epochs": 4, "aggregators": 2, "client_epochs": 2, "aggregator_epochs": 3},
    "fedonce": {"epochs": 4, "client_epochs": 2},
    "mags": {"epochs": 4, "gossip": 1},
}


def small(name: str, parties: int) -> Federation:
    method = {"algorithm": name.split()[0], **METHODS[name]}
    data = {"dataset": "digits", "rows": 120, "test": 0.5, "parties": parties}
    network = {"gather": 5.0, "patience": 0.5}
    table = {"name": "test", "data": data, "method": method, "network": network}
    return parse_federation(table, "test")


def digest(tensors: Mapping[str, Tensor]) -> str:
    found = hashlib.blake2b(digest_size=8)
    for name in sorted(tensors):
        found.update(tensors[name].detach().contiguous().numpy().tobytes())
    return found.hexdigest()


class Oracle:
    """What every party's weights were."""

    def __init__(self, patch: Callable[[Any, str, Any], None]) -> None:
        self.measured: dict[tuple[str, Version], set[str]] = {}
        self.collected: dict[str, set[str]] = {}
        end_of_round, keep_versions = Algorithm.end_of_round, Algorithm.keep_versions
        now: dict[int, dict[str, str]] = {}

        async def ends(one: Algorithm, net: Network, batch: Any, loss: Any) -> bool:
            now[id(one)] = {party: digest(mine) for party, mine in one.tensors(net).items()}
            return await end_of_round(one, net, batch, loss)

        def keeps(one: Algorithm, net: Network, decision: Decision) -> None:
            for party, mine in now[id(one)].items():
                self.measured.setdefault((party, decision.version), set()).add(mine)
            keep_versions(one, net, decision)

        patch(Algorithm, "end_of_round", ends)
        patch(Algorithm, "keep_versions", keeps)
        for kind in (DVFL, FedOnce):
            patch(kind, "collect", self.collecting(kind.collect))

    def collecting(self, collect: Any) -> Any:
        async def collects(one: Algorithm, net: Network, *rest: Any) -> Any:
            muted = isinstance(net, Live) and net.post.muted
            if net.phase != "inference" and not muted:
                for party, mine in one.tensors(net).items():
                    if party not in one.labels.parties and net.resume_at <= net.rounds_begun:
                        self.collected.setdefault(party, set()).add(digest(mine))
            return await collect(one, net, *rest)

        return collects

    def check(self, one: Member, version: Version) -> None:
        """The part that a member uses is the one that was measured as this version."""
        mine = digest(one.algorithm.tensors(one.net)[one.party])
        if one.algorithm.versions.final is not None:
            assert {mine} == self.collected[one.party], f"{one.party}: was collected otherwise"
        else:
            assert mine in self.measured[one.party, version], f"{one.party}: another part"


def weather(seed: int, folder: Path) -> tuple[Federation, dict[str, Member]]:
    """One training in a storm, to its end."""
    random = Random(seed)
    fed = small(list(METHODS)[seed % len(METHODS)], random.choice([2, 3]))
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


def named(fed: Federation, members: dict[str, Member]) -> str:
    result = members[fed.speaker].state.result
    assert result is not None
    return " ".join(result.notes)


@pytest.mark.parametrize("part", range(PARTS))
def test_parts_that_are_used_together_were_measured_together(part: int, tmp_path: Path) -> None:
    for seed in range(part, STORMS, PARTS):
        try:
            in_a_storm(seed, tmp_path / str(seed))
        except Exception as error:
            raise AssertionError(f"storm {seed} failed: {error!r}") from error


def in_a_storm(seed: int, folder: Path) -> None:
    """Collections and tests in many parts, checkpoints in every round, often, or seldom."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda file: None)  # crashes of processes, not of the machine
        patch.setattr("colonnade.algorithms.algorithm.PREDICT_ROWS", 32)
        patch.setattr("colonnade.federation.member.SHARE", 0.0)
        patch.setattr("colonnade.federation.member.KEEP", (0.0, 0.05, 1.0)[seed % 3])
        oracle = Oracle(patch.setattr)
        check(*weather(seed, folder), oracle)


def check(fed: Federation, members: dict[str, Member], oracle: Oracle) -> None:
    speaker = members[fed.speaker]
    assert speaker.version is not None
    notes = named(fed, members)
    oracle.check(speaker, speaker.version)
    for party, one in members.items():
        if f"{party} (" not in notes:
            assert one.version == speaker.version, f"{party} has {one.version}, and is not named"
            oracle.check(one, speaker.version)
