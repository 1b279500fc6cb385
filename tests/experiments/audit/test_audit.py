"""`colonnade audit`: what receivers infer, for methods of which it is known what they tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.command_line import colonnade

from colonnade.experiments.audit.measure import Finding, audit_run, specs
from colonnade.experiments.audit.present import is_exposed, sentence
from colonnade.experiments.config import parse_experiment
from colonnade.experiments.run import build, drive

DIGITS = {"dataset": "digits", "parties": 3, "rows": 600}


def audited(method: dict[str, Any], data: dict[str, Any] | None = None) -> list[Finding]:
    table = {"name": "test", "data": data or DIGITS, "methods": [{"epochs": 2, **method}]}
    experiment = parse_experiment(table, "test")
    [spec] = specs(experiment, None, None)
    return audit_run(experiment, spec)


def best(found: list[Finding], receiver: str, labels: bool) -> Finding:
    mine = [f for f in found if f.receiver.startswith(receiver) and f.about_labels == labels]
    return max(mine, key=lambda one: one.success)


def test_clients_of_split_learning_read_the_labels_and_the_server_the_columns() -> None:
    found = audited({"algorithm": "splitnn"})
    labels = best(found, "client", True)
    assert is_exposed(labels)
    assert labels.success > 0.95
    assert best(found, "server", False).success > 0.3  # 20 known rows, two epochs
    assert all(one.control < 0.3 for one in found)


def test_the_direction_of_a_gradient_tells_a_binary_label() -> None:
    data = {"dataset": "breast_cancer", "parties": 2}
    [direction] = [f for f in audited({"algorithm": "splitnn"}, data) if f.attack == "direction"]
    assert direction.success > 0.98
    assert direction.control < 0.65
    assert "can read the labels" in sentence(direction)


def test_the_server_of_fedvs_sees_nothing_of_any_client() -> None:
    server = best(audited({"algorithm": "fedvs"}), "server", False)
    assert server.success < 0.05
    assert "learns nothing" in sentence(server)


def test_the_dual_variables_of_vim_tell_every_label() -> None:
    assert best(audited({"algorithm": "vim"}), "client", True).success > 0.95


def test_noise_on_encodings_hides_columns() -> None:
    clear = best(audited({"algorithm": "splitnn"}), "server", False)
    noisy = {"algorithm": "splitnn", "noise": {"clip": 1.0, "sigma": 5.0}}
    assert best(audited(noisy), "server", False).success < clear.success / 2


def test_nothing_is_audited_where_nothing_is_sent() -> None:
    assert audited({"algorithm": "centralised"}) == []


def test_a_recorder_changes_nothing() -> None:
    table = {"name": "t", "data": DIGITS, "methods": [{"algorithm": "cvfl", "epochs": 2}]}
    experiment = parse_experiment(table, "test")
    [spec] = specs(experiment, None, None)
    weights = []
    for record in (False, True):
        from colonnade.data import load

        algorithm, net = build(spec.settings, load(experiment.data, 0), 0)
        seen: list[str] = []
        if record:
            net.recorder = lambda net, channel, inbox, seen=seen: seen.append(channel.kind)
        drive(algorithm.train(net))
        assert ("embedding" in seen) == record  # also in programs side by side
        weights.append(algorithm.tensors(net))
    for party, tensors in weights[0].items():
        assert all(tensors[key].equal(weights[1][party][key]) for key in tensors)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "nowhere"),
        (["file.toml", "--method", "DVFL"], "--method DVFL: there are SplitNN"),
    ],
)
def test_bad_input_is_told(words: list[str], said: str, tmp_path: Path) -> None:
    text = '[data]\ndataset = "digits"\n[[methods]]\nname = "SplitNN"\nalgorithm = "splitnn"\n'
    (tmp_path / "file.toml").write_text('name = "x"\n' + text)
    done = colonnade("audit", *words, folder=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr


def test_the_command_writes_a_page_and_a_document(tmp_path: Path) -> None:
    text = '[data]\ndataset = "digits"\nrows = 600\n[[methods]]\nalgorithm = "fdml"\nepochs = 1\n'
    (tmp_path / "file.toml").write_text('name = "who"\n' + text)
    done = colonnade("audit", "file.toml", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "runs" / "who-audit" / "audit.json").read_text())
    assert {one["secret"][:6] for one in document["findings"]} == {"labels", "column"}
    page = (tmp_path / "runs" / "who-audit" / "audit.html").read_text()
    assert "can read the labels" in page
