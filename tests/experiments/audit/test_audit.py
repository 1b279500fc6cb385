"""`colonnade audit`: what receivers infer, for methods of which it is known what they tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colonnade.data import load
from colonnade.errors import InputError
from colonnade.experiments.audit.findings import ALL, CHANCE, Finding, strongest
from colonnade.experiments.audit.leakage import strongest_of
from colonnade.experiments.audit.measure import ENOUGH, audit_run, record, standard_error
from colonnade.experiments.audit.present import sentence
from colonnade.experiments.audit.recorder import Seen, Stream
from colonnade.experiments.audit.run import Choice
from colonnade.experiments.audit.scene import stacked
from colonnade.experiments.config import parse_experiment
from colonnade.experiments.grid import grid
from colonnade.experiments.run import build, drive

DIGITS = {"dataset": "digits", "parties": 3, "rows": 600}


def audited(method: dict[str, Any], data: dict[str, Any] | None = None) -> list[Finding]:
    table = {"name": "test", "data": data or DIGITS, "methods": [{"epochs": 2, **method}]}
    experiment = parse_experiment(table, "test")
    [run] = grid(experiment)
    return audit_run(experiment, run.spec(experiment))


def said_of(data: dict[str, Any], method: dict[str, Any] | None = None) -> list[str]:
    """The sentences about what could not be attacked, or not well."""
    method = {"algorithm": "splitnn", "epochs": 2, **(method or {})}
    experiment = parse_experiment({"name": "test", "data": data, "methods": [method]}, "test")
    algorithm, net = build(experiment.methods[0], load(experiment.data, 0), 0)
    attack = record(algorithm, net, 0, ALL)
    drive(algorithm.train(net))
    return attack()[1]


def best(found: list[Finding], receiver: str, labels: bool) -> Finding:
    mine = [f for f in found if f.receiver.startswith(receiver) and f.about_labels == labels]
    return max(mine, key=lambda one: one.success)


def test_clients_of_split_learning_read_the_labels_and_the_server_the_columns() -> None:
    found = audited({"algorithm": "splitnn"})
    labels = best(found, "client", True)
    assert labels.exposed
    assert labels.success > 0.95
    assert best(found, "server", False).success > 0.3  # 20 known rows, two epochs
    assert all(one.control < 0.3 for one in found)


def test_the_direction_of_a_gradient_tells_a_binary_label() -> None:
    data = {"dataset": "breast_cancer", "parties": 2}
    found = {f.attack: f for f in audited({"algorithm": "splitnn"}, data)}
    direction, remembered = found["direction"], found["direction, all epochs"]
    assert direction.success > 0.98
    assert direction.control < 0.65
    assert "can read the labels" in sentence(direction)
    assert remembered.baseline is not None, "what its own columns tell it stands beside both"


def test_a_client_that_compares_epochs_is_played_with_many_classes_too() -> None:
    found = {f.attack: f for f in audited({"algorithm": "splitnn", "epochs": 4})}
    remembered = [found["clusters, all epochs"], found["100 known labels, all epochs"]]
    assert all(one.control < 0.3 < 0.8 < one.success for one in remembered)
    assert all(one.baseline_of == "its own columns" for one in remembered)


def finding(attack: str, success: float, control: float, baseline: float | None = None) -> Finding:
    facts = ("SplitNN", "clients", "client0", "labels", attack, "AUC", success, 1, control)
    return Finding(*facts, baseline=baseline, baseline_of="its own columns")


def test_the_sentence_is_about_what_is_as_good_as_told() -> None:
    """Though the attacker gains more from another attack: its own columns tell it less there."""
    norm, direction = finding("norm", 0.74, 0.52, 0.5), finding("direction", 1.0, 0.52, 0.9)
    other = finding("model completion", 0.99, 0.52, 0.98)  # it had that anyway
    assert strongest([norm, other, direction]) == strongest([direction, norm, other]) == [direction]
    assert strongest([norm, finding("direction", 0.7, 0.52, 0.4)]) == [norm]


def test_an_attack_at_chance_is_not_the_headline_beside_one_that_works() -> None:
    """With few rows of the rarer class chance may be far above 0.5."""
    works, at_chance = finding("norm", 0.71, 0.51, 0.61), finding("model completion", 0.76, 0.87)
    little = finding("direction", 0.8, 0.74)
    for found in ([works, little, at_chance], [at_chance, little, works]):
        assert strongest(found) == [works]
        assert strongest_of(found, "SplitNN", lambda one: True) == works
    assert strongest([at_chance, little]) == [little]


@pytest.mark.parametrize(
    ("success", "said"),
    [
        (0.55, "client0 learns nothing of the labels (direction)"),
        (0.62, "client0 learns little of the labels (direction: AUC 0.62, by chance 0.53)"),
        (0.64, "client0 can guess the labels"),
        (0.95, "client0 can read the labels"),
    ],
)
def test_nothing_is_said_of_what_is_at_chance_alone(success: float, said: str) -> None:
    assert said in sentence(finding("direction", success, 0.53))


def test_the_server_of_fedvs_reads_nothing_from_shares_but_something_from_the_opened_sum() -> None:
    """The server opens the sum of all embeddings, which is made of the columns of each client."""
    found = [one for one in audited({"algorithm": "fedvs"}) if one.group == "server"]
    shares = [one for one in found if one.attack in ("ridge", "network")]
    assert {one.attack for one in shares} == {"ridge", "network"}
    assert all(one.success < 0.05 and "learns nothing" in sentence(one) for one in shares)
    sums = {one.secret[:14]: one for one in found if one.attack == "ridge on the opened sum"}
    assert set(sums) == {"columns of all", "columns of cli"}
    assert all(one.success > 0.2 and one.control < 0.05 for one in sums.values())


def test_a_label_holder_reads_the_labels_of_another_one() -> None:
    """In CVFL, active parties send each other gradients of rows whose labels they hold."""
    found = audited({"algorithm": "cvfl", "active": 2})
    mine = {one.attack: one for one in found if one.group == "active" and one.about_labels}
    assert {"clusters", "100 known labels", "its own labels"} <= set(mine)
    assert mine["its own labels"].success > 0.9
    assert mine["its own labels"].baseline_of == "its own columns"
    assert all(one.control < 0.3 for one in mine.values())


def test_labels_that_are_numbers_are_attacked_as_numbers() -> None:
    data = {"dataset": "diabetes", "parties": 2}
    found = [one for one in audited({"algorithm": "splitnn"}, data) if one.about_labels]
    assert {one.measure for one in found} == {"R²"}
    by_attack = {one.attack: one for one in found}
    assert set(by_attack) == {"norm", "direction", "100 known labels", "model completion"}
    assert by_attack["direction"].success > 0.8
    assert by_attack["direction"].control < 0.1
    assert "of what makes labels differ" in sentence(by_attack["direction"])


def test_the_dual_variables_of_vim_tell_every_label() -> None:
    assert best(audited({"algorithm": "vim"}), "client", True).success > 0.95


def test_noise_on_encodings_hides_columns() -> None:
    clear = best(audited({"algorithm": "splitnn"}), "server", False)
    noisy = {"algorithm": "splitnn", "noise": {"clip": 1.0, "sigma": 5.0}}
    assert best(audited(noisy), "server", False).success < clear.success / 2


def test_noise_that_is_drawn_anew_hides_less_from_a_server_that_keeps_all_epochs() -> None:
    noisy = {"algorithm": "splitnn", "epochs": 8, "noise": {"clip": 1.0, "sigma": 0.3}}
    data = {"dataset": "breast_cancer", "parties": 2}
    found = {one.attack: one for one in audited(noisy, data) if not one.about_labels}
    once, together = found["ridge"], found["ridge, all epochs"]
    assert together.success > once.success + 0.05
    assert together.control < 0.05
    assert together.baseline_of == once.baseline_of == "the mean of each class"
    assert together.untrained is not None


def test_what_is_sent_once_is_not_put_together() -> None:
    found = {one.attack for one in audited({"algorithm": "fedonce"}) if not one.about_labels}
    assert found == {"ridge", "network"}


def test_of_many_epochs_eight_stand_side_by_side_with_rows_that_came_in_all_of_them() -> None:
    """And what came once is left out."""
    streams = []
    for epoch in range(20):
        there = np.arange(5) != (2 if epoch == 19 else 4)
        values = np.where(there[:, None], np.float32(epoch), np.float32(0))
        streams.append((Stream(epoch, "server", "client0", "encoding"), Seen(values, there)))
    once = Stream(0, "server", "client1", "encoding"), streams[0][1]
    [(stream, seen)] = stacked([once, *streams])
    assert stream == streams[-1][0]
    assert seen.there.tolist() == [True, True, False, True, False]
    assert seen.values[0].tolist() == [0, 3, 5, 8, 11, 14, 16, 19]
    [(_, seen)] = stacked(streams[:3])
    assert seen.values[0].tolist() == [0, 1, 2]


def test_of_a_small_table_nobody_is_told_that_columns_are_safe() -> None:
    """80 % of these rows are trained on: fewer than are attacked."""
    said = said_of({"dataset": "breast_cancer", "parties": 2, "rows": 110, "validation": 0.2})
    assert "Columns were not attacked: that needs 101 rows that a receiver is told about." in said
    assert not any("Nobody receives" in one for one in said)
    plenty = said_of({"dataset": "breast_cancer", "parties": 2})
    assert not any("olumns" in one for one in plenty)


def test_few_rows_of_the_rarer_class_are_told(tmp_path: Path) -> None:
    """One row in forty, and one in three."""
    for every, told in ((40, True), (3, False)):
        rows = [f"{k % 7},{k % 5},{int(k % every == 0)}" for k in range(800)]
        (tmp_path / "table.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
        data = {"path": str(tmp_path / "table.csv"), "label": "y"}
        said = said_of({**data, "columns": {"one": ["a"], "two": ["b"]}})
        assert any("Fewer than 67 of the attacked rows" in one for one in said) == told


def test_enough_rows_are_those_of_which_chance_seldom_looks_like_an_attack() -> None:
    """Two standard errors of the difference of two AUCs at chance, by trial."""
    random = np.random.default_rng(0)
    rare = np.arange(3000) < ENOUGH

    def at_chance() -> float:
        score = random.normal(size=3000)
        return float(np.searchsorted(np.sort(score[~rare]), score[rare]).mean() / (~rare).sum())

    values = np.array([at_chance() for _ in range(2000)])
    assert standard_error(ENOUGH) == pytest.approx(values.std(), rel=0.06)
    assert 2 * 2**0.5 * standard_error(ENOUGH) == pytest.approx(CHANCE, rel=0.01)


def test_nothing_is_audited_where_nothing_is_sent() -> None:
    assert audited({"algorithm": "centralised"}) == []


def test_a_recorder_changes_nothing() -> None:
    table = {"name": "t", "data": DIGITS, "methods": [{"algorithm": "cvfl", "epochs": 2}]}
    experiment = parse_experiment(table, "test")
    spec = grid(experiment)[0].spec(experiment)
    weights = []
    for recorded in (False, True):
        algorithm, net = build(spec.settings, load(experiment.data, 0), 0)
        seen: list[str] = []
        if recorded:
            net.recorder = lambda net, channel, inbox, seen=seen: seen.append(channel.kind)
        drive(algorithm.train(net))
        assert ("embedding" in seen) == recorded  # also in programs side by side
        weights.append(algorithm.tensors(net))
    for party, tensors in weights[0].items():
        assert all(tensors[key].equal(weights[1][party][key]) for key in tensors)


@pytest.mark.parametrize(
    ("data", "method", "said"),
    [
        ({"overlap": 0.7, "partial": True}, {"algorithm": "splitnn"}, "rows that every party has"),
        ({}, {"algorithm": "cvfl", "active": 2, "stale": True}, "stale = true sends embeddings"),
    ],
)
def test_messages_whose_rows_are_not_known_are_refused(
    data: dict[str, Any], method: dict[str, Any], said: str
) -> None:
    """Else what leaks by them would look harmless."""
    table = {"name": "x", "data": {"dataset": "digits", **data}, "methods": [method]}
    with pytest.raises(InputError, match=said):
        Choice().of(parse_experiment(table, "x"), "x")
