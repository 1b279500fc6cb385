"""`colonnade join --track`: the training of a real federation, tracked at its label holder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console
from tests.federation.member.test_member import federation, member

from colonnade.common import tracking
from colonnade.common.results import read_history
from colonnade.common.tracking import Tracked
from colonnade.errors import InputError
from colonnade.federation.agreement.party_file import PartyFile
from colonnade.federation.member.process import join
from colonnade.federation.member.record import Record
from colonnade.network.clock import Clock
from colonnade.network.transport.memory import MemoryTransport

Told = list[tuple[str, int, dict[str, float]]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """What a tracker is told, in place of TensorBoard."""
    heard: Told = []

    class Listener:
        def __init__(self, tracked: Tracked) -> None:
            heard.append((tracked.experiment, 0, {}))

        def point(self, step: int, values: Mapping[str, float]) -> None:
            heard.append(("point", step, dict(values)))

        def end(self, figures: Mapping[str, float], failed: str = "") -> None:
            heard.append((f"end {failed}".strip(), 0, dict(figures)))

    monkeypatch.setitem(tracking.KINDS, "tensorboard", Listener)
    return heard


def test_the_curve_and_the_figures_of_a_federation_are_tracked(told: Told, tmp_path: Path) -> None:
    """After a restart, too: what was tracked before is told again."""
    fed, clock = federation("splitnn"), Clock()
    room = MemoryTransport(clock)
    members = {party: member(fed, room.seat(party), tmp_path) for party in fed.members}
    speaker = members[fed.speaker]
    speaker.record.track(["tensorboard"])
    clock.run(*[(party, one.live()) for party, one in members.items()])
    curve = read_history(tmp_path / fed.speaker, speaker.record.run)
    assert told[0][0] == fed.name
    points = [(step, values) for what, step, values in told if what == "point"]
    assert [step for step, _ in points] == [point["round"] for point in curve]
    for (_, values), point in zip(points, curve, strict=True):
        assert values["validation_accuracy"] == point["validation_accuracy"]
    assert speaker.state.result is not None
    what, _, figures = told[-1]
    assert what == "end"
    assert figures["test_accuracy"] == speaker.state.result.metrics["test_accuracy"]
    assert "cost/bytes" in figures

    told.clear()
    again = Record(tmp_path / fed.speaker, fed)
    again.track(["tensorboard"])
    assert again.tracking is not None
    again.tracking.end({}, "left before the end")
    assert [step for what, step, _ in told if what == "point"] == [p["round"] for p in curve]
    assert told[-1][0] == "end left before the end"


def test_a_party_without_labels_has_nothing_to_track(tmp_path: Path) -> None:
    fed = federation("splitnn")
    party = PartyFile("test", fed, "client0", tmp_path)
    with pytest.raises(InputError, match="--track: client0 has no labels"):
        join(party, Console(), track=["tensorboard"])
    with pytest.raises(InputError, match=r"--track tensorbord: expected .*nearest"):
        join(party, Console(), track=["tensorbord"])
