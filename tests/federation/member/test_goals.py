"""Real parties that predict a number, or choose by another metric than accuracy."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colonnade.algorithms import registry
from colonnade.errors import InputError
from colonnade.experiments.report import write_report
from colonnade.federation.agreement.digest import differences
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.agreement.party_file import PartyFile, read_party
from colonnade.federation.asking.prediction_tables import write_csv
from colonnade.federation.asking.predictions import read_answer
from colonnade.federation.member.leaderless import member_kind
from colonnade.federation.member.member import Member
from colonnade.federation.member.own_data import read_own
from colonnade.federation.member.prediction_requests import Predicted, Predictor
from colonnade.federation.member.status import sentence
from colonnade.network.clock import SECOND, Clock
from colonnade.network.transport.memory import MemoryTransport
from colonnade.testing import stacked
from colonnade.testing.storm import Crew, StormSeat

METHODS: dict[str, dict[str, Any]] = {
    "dvfl": {"aggregators": 2, "client_epochs": 2, "aggregator_epochs": 3},
    "fedonce": {"client_epochs": 2},
    "fedvs": {"missing": "zeros"},  # else a test that too few clients answer in time is none
}
LEARN_CLASSES = ("cvfl",)
FEDERATED = [
    n for n, kind in registry().items() if not kind.settings.pooled and n not in LEARN_CLASSES
]


def federation(name: str, **data: Any) -> Federation:
    method = {"algorithm": name, "epochs": 4, **METHODS.get(name, {})}
    network = {"gather": 5.0, "patience": 0.5}
    table = {"data": {"dataset": "diabetes", **data}, "method": method, "network": network}
    return parse_federation({"name": "test", **table}, "test")


def member(fed: Federation, seat: Any, folder: Path, life: int = 1, once: bool = True) -> Member:
    own = read_own(PartyFile("test", fed, seat.party, folder))
    return member_kind(fed)(fed, own, seat, folder / seat.party, life=life, once=once)


@pytest.mark.parametrize("name", FEDERATED)
def test_a_federation_answers_with_numbers_in_the_unit_of_the_label(
    name: str, tmp_path: Path
) -> None:
    fed, clock = federation(name), Clock()
    room = MemoryTransport(clock)
    members = {p: member(fed, room.seat(p), tmp_path, once=False) for p in fed.members}
    asked, replies = members[fed.speaker], []

    async def somebody_asks() -> None:
        while asked.state.result is None:
            await clock.sleep_until(clock.now + SECOND // 10)
        await clock.sleep_until(clock.now + 5 * SECOND)
        Predictor(asked, replies.append).begin(b"{}")
        await clock.sleep_until(clock.now + 20 * SECOND)

    for one in members.values():
        clock.spawn(one.live(), one.party)
    clock.run(("somebody", somebody_asks()))
    result = asked.state.result
    assert result is not None
    found = read_answer(replies[0], fed.speaker)
    test = fed.vertical_data().test
    error = np.sqrt(np.mean((np.array(found.numbers) - test.y.numpy()) ** 2))
    assert error == pytest.approx(result.metrics["test_rmse"], rel=1e-5)
    one = stacked(fed.method, fed.vertical_data(), fed.seed)
    if fed.leader:  # else each device has a result of its own
        assert result.metrics == pytest.approx(one.metrics, rel=1e-5)
    assert f"test_rmse {result.metrics['test_rmse']:.4f}" in sentence(asked)
    assert "test RMSE" in write_report(tmp_path / fed.speaker).read_text()


@pytest.mark.parametrize("name", FEDERATED)
@pytest.mark.parametrize("seed", [1, 2, 7])
def test_the_scale_of_the_label_survives_a_storm(name: str, seed: int, tmp_path: Path) -> None:
    fed, members = federation(name), {}

    async def live(seat: StormSeat, life: int) -> None:
        one = members[seat.party] = member(fed, seat, tmp_path, seat.clock.now // 1000 + 1)
        await one.live()

    crew = Crew(seed, fed.members, live)
    try:
        crew.run(crashes=(0, 2, 6, 12)[seed % 4])
    except TimeoutError:
        if fed.leader not in crew.results:  # else it was over before somebody returned
            raise
    y = fed.vertical_data().train.y
    able = [members[p] for p in fed.label_holders if members[p].version is not None]
    expected = (float(y.mean()), float(y.std(correction=0)))
    assert able[0].algorithm.label_scale == pytest.approx(expected)
    assert able[0].state.result.metrics["test_rmse"] < 200


def test_all_parties_agree_on_the_metric_the_weights_and_the_goal() -> None:
    plain = federation("splitnn", dataset="breast_cancer")
    for key, value in (("metric", "auc"), ("weights", "balanced"), ("goal", "classes")):
        other = federation("splitnn", dataset="breast_cancer", **{key: value})
        assert differences(plain.digests, other.digests) == [f"data.{key}"]


# -- own files ------------------------------------------------------------------------------------

ROWS = """
name = "clinics"
[method]
algorithm = "splitnn"
[rows]
aligned = 40
GOAL
[[parties]]
name = "clinic"
roles = ["clients", "server"]
columns = 1
endpoint = "localhost:7001"
[[parties]]
name = "lab"
role = "clients"
columns = 1
endpoint = "localhost:7002"
[network]
transport = "tcp"
"""


def clinic(folder: Path, goal: str, labels: list[Any]) -> PartyFile:
    lines = ["age,cost", *(f"{20 + i},{label}" for i, label in enumerate(labels))]
    (folder / "clinic.csv").write_text("\n".join(lines) + "\n")
    (folder / "federation.toml").write_text(ROWS.replace("GOAL", goal))
    mine = 'federation = "federation.toml"\nparty = "clinic"\n'
    mine += '[data]\npath = "clinic.csv"\nlabel = "cost"\n'
    (folder / "clinic.toml").write_text(mine)
    return read_party(folder / "clinic.toml")


def test_labels_of_an_own_file_may_be_numbers(tmp_path: Path) -> None:
    costs = [100 + 3 * i for i in range(40)]
    party = clinic(tmp_path, 'goal = "number"\nmetric = "mae"', costs)
    own, task = read_own(party), party.federation.task()
    assert own.classes == ()
    parts = (own.data.train, own.data.validation, own.data.test)
    assert sorted(y for part in parts for y in part.y.tolist()) == costs
    assert (task.goal.name, task.goal.deciding.name) == ("regression", "mae")


@pytest.mark.parametrize(
    ("goal", "message"),
    [
        ("", r"rows\.classes: give exactly one of classes .* goal = .number."),
        ('goal = "number"\nclasses = 2', r"rows\.classes: give exactly one"),
        ('goal = "number"\nmetric = "auc"', r"rows\.metric = .auc.: .* one of rmse, mae, r2"),
        ('classes = 2\nmetric = "mae"', r"rows\.metric = .mae.: .* one of accuracy"),
        ('goal = "number"\nweights = "balanced"', r"rows\.weights = .balanced.: .* a number"),
    ],
)
def test_a_federation_file_that_contradicts_itself_is_refused(
    goal: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        clinic(tmp_path, goal, [1.5, 2.5] * 20)


def test_a_label_that_is_no_number_is_named(tmp_path: Path) -> None:
    party = clinic(tmp_path, 'goal = "number"', [*range(39), "much"])
    with pytest.raises(InputError, match=r"clinic.csv: label column 'cost', data row 40 is no num"):
        read_own(party)


def test_numbers_are_written_as_a_column_of_their_own() -> None:
    found = Predicted(["7", "8"], absent=[{}, {"lab": "away"}], numbers=[151.25, 1e-3])
    file = io.StringIO(newline="")
    write_csv(found, file)
    lines = ["id,prediction,absent,reasons", "7,151.25,,", "8,0.001,lab,lab: away"]
    assert file.getvalue().splitlines() == lines


@pytest.mark.parametrize("change", [{"numbers": [1.0]}, {"ids": ["7"]}, {"predictions": [0]}])
def test_numbers_that_do_not_belong_together_are_an_error(change: dict[str, Any]) -> None:
    good = {"ids": ["7", "8"], "classes": [], "predictions": [], "probabilities": []}
    good |= {"absent": [{}, {}], "numbers": [1.0, 2.0]}
    assert read_answer(json.dumps(good).encode(), "server").numbers == [1, 2]
    with pytest.raises(Exception, match="server answers with something"):
        read_answer(json.dumps(good | change).encode(), "server")
