"""Somebody watches a simulation and a real federation on the live page."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from tests.browser import NODE, browse, needs_browser, serving
from tests.command_line import colonnade

from colonnade.common.live import LiveTraining, read_live
from colonnade.common.results import LedgerRow, write_lines
from colonnade.errors import InputError
from colonnade.experiments import live_file
from colonnade.experiments.config import parse_experiment
from colonnade.experiments.runner import run_experiment
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.member.status import write_status
from colonnade.watch.federated import Federated
from colonnade.watch.finding import source_of
from colonnade.watch.server import Server
from colonnade.watch.simulation import Simulation
from colonnade.watch.snapshot import Curve, Link, Pace, Party, Snapshot, Training

NASTY = "<img src=x onerror=alert(1)>"
EXPERIMENT = {
    "name": "watched",
    "data": {"dataset": "digits", "rows": 150, "parties": 3},
    "faults": [{"name": "dead", "kind": "client", "down": 1.0, "up": 0.0}],
    "methods": [{"name": "SplitNN", "algorithm": "splitnn", "epochs": 2}],
}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Snapshot]]:
    """A simulation, and what a watcher saw whenever its live file was written."""
    folder, seen = tmp_path_factory.mktemp("watched") / "out", list[Snapshot]()
    write = live_file.write_live

    def written(out: Path, run: str, training: LiveTraining) -> None:
        write(out, run, training)
        seen.append(Simulation(out).snapshot())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_file, "write_live", written)
        patch.setattr(live_file, "PAUSE", 0.0)
        patch.setattr(live_file, "SHARE", 0.0)
        run_experiment(parse_experiment(EXPERIMENT, "watched"), folder)
    return folder, seen


def test_a_simulation_shows_its_parties_curve_bytes_and_pace(
    watched: tuple[Path, list[Snapshot]],
) -> None:
    _, seen = watched
    last = seen[-1]
    assert last.said == "1 of 1 runs under way, 0 done."
    [training] = last.trainings
    assert training.title == "SplitNN · dead · seed 0"
    assert 0 < training.round <= training.rounds
    assert training.rate is not None
    states = {party.name: party.state for party in training.parties}
    # All clients are dead, and no fault strikes the server.
    assert states == {"server": "up", "client0": "down", "client1": "down", "client2": "down"}
    assert {link.up for link in training.links if link.receiver == "server"} == {0.0}
    assert last.metric == "validation accuracy"
    assert last.curves[0].x == [3.0]
    assert dict(last.facts).keys() >= {"runs done", "rounds per second", "sent in training"}


def test_when_a_simulation_is_over_its_live_file_is_gone_and_the_page_says_so(
    watched: tuple[Path, list[Snapshot]],
) -> None:
    folder, _ = watched
    assert read_live(folder) == {}
    assert not (folder / "live").exists()
    shown = Simulation(folder).snapshot()
    assert shown.said.startswith("All 1 runs are over.")
    assert [curve.over for curve in shown.curves] == [True]


def test_a_folder_in_which_nothing_happened_yet_says_so(tmp_path: Path) -> None:
    experiment = parse_experiment(EXPERIMENT, "watched")
    (tmp_path / "config.toml").write_text(experiment.toml())
    assert source_of(tmp_path).snapshot().said.startswith("Nothing has happened here yet")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "there is no such folder"),
        (lambda path: path.mkdir(), "nothing to watch"),
        (lambda path: path.write_text('name = "x"'), "name: unknown key"),
        (lambda path: path.write_text(tomli_w.dumps(EXPERIMENT)), "is an experiment file"),
    ],
)
def test_what_cannot_be_watched_is_refused_with_the_reason(
    make: Any, reason: str, tmp_path: Path
) -> None:
    make(tmp_path / "it")
    with pytest.raises(InputError) as caught:
        source_of(tmp_path / "it")
    assert str(tmp_path / "it") in str(caught.value)
    assert reason in str(caught.value)
    assert colonnade("watch", "it", folder=tmp_path).returncode == 2


def test_the_folder_of_one_party_is_refused_with_what_to_give(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[method]\nname = "splitnn"\n')
    with pytest.raises(InputError, match="give its party file"):
        source_of(tmp_path)


def federation_folder(folder: Path) -> Path:
    """Of `up`, in which client1 was killed."""
    table = {"name": f"real {NASTY}", "data": {"dataset": "digits", "parties": 2}}
    table["method"] = {"algorithm": "splitnn", "epochs": 2}
    federation = parse_federation(table, "test")
    folder.mkdir()
    (folder / "federation.toml").write_text(tomli_w.dumps(federation.table()))
    run = "splitnn.as-it-happened.0"
    for name in federation.members:
        (folder / name).mkdir()
        status = {"party": name, "process": 1, "stage": "training", "round": 30, "rounds": 100}
        if name == "client1":
            end = {"at": "2026-01-01T00:00:00+00:00", "during": "training", "reason": NASTY}
            status |= {"stage": "gone", "ended": end}
        else:
            status |= {"away": {"client1": 3.0}, "metric": "accuracy"}
        write_status(folder / name / "status.json", status)
        sent = "gradient" if name == "server" else "embedding"
        other = "client0" if name == "server" else "server"
        row = LedgerRow("training", name, other, sent, 30, 3000)
        write_lines(folder / name / "ledger" / f"{run}.jsonl", [row])
    points = [
        {"round": 10 * i, "virtual_seconds": 2.0 * i, "validation_accuracy": i / 10}
        for i in (1, 2, 3)
    ]
    write_lines(folder / "server" / "history" / f"{run}.jsonl", points)
    return folder


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process holds the locks of these folders, as if all of them ran."""
    monkeypatch.setattr("colonnade.federation.member.status.is_running", lambda folder: True)


@pytest.mark.usefixtures("running")
def test_a_federation_shows_who_is_down_and_what_each_link_carried(tmp_path: Path) -> None:
    source = source_of(federation_folder(tmp_path / "up"))
    assert isinstance(source, Federated)
    shown = source.snapshot()
    [training] = shown.trainings
    states = {party.name: party.state for party in training.parties}
    assert states == {"server": "up", "client0": "up", "client1": "down"}
    links = {(link.sender, link.receiver): link for link in training.links}
    assert links["client0", "server"].bytes == 3000
    assert links["client0", "server"].up == 1
    assert links["client1", "server"].up == 0
    assert shown.curves[0].y == [0.1, 0.2, 0.3]
    assert training.rate == pytest.approx(5), "of the whole training, at the first look"
    assert ("rounds per second", "5") in shown.facts
    assert "2 of 3 parties there, 1 not there: training." in shown.said
    assert any(message.startswith("client1: gone at 2026-01-01") for message in shown.messages)


def test_rounds_per_second_are_those_between_two_looks() -> None:
    pace = Pace()
    assert pace.rate("run", 10.0, 50, since=5.0) == 10
    assert pace.rate("run", 10.0, 50, since=5.0) == 10  # nothing new
    assert pace.rate("run", 11.0, 70) == pytest.approx(0.7 * 10 + 0.3 * 20)
    assert pace.rate("run", 12.0, 3) is None  # began anew


class Still:
    """A source that never changes, with texts that another party could have chosen."""

    def snapshot(self) -> Snapshot:
        parties = [Party("server", "up"), Party(NASTY, "down", NASTY), Party("client1", "up")]
        links = [Link(NASTY, "server", 1234567, 0.0), Link("client1", "server", 5000)]
        training = Training("SplitNN", 40, 100, 12.5, parties, links, NASTY)
        curves = [
            Curve("SplitNN", [1, 2, 3], [0.2, 0.5, 0.7]),
            Curve("old", [1, 2], [0.1, 0.2], True),
        ]
        facts = [("rounds per second", "12.5")]
        about = ("a title", "about", "said " + NASTY)
        return Snapshot(*about, facts, [training], "validation accuracy", curves, [NASTY])


def test_the_page_is_for_those_who_know_its_key_and_for_this_machine_only() -> None:
    with serving(Still()) as server:
        assert server.server_address[0] == "127.0.0.1"
        with urllib.request.urlopen(server.address) as answer:
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        for path in ("", "state", "wrong/state", f"{server.key}/../server.py", f"{server.key}x/"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/{path}")


def test_a_port_that_is_taken_is_named() -> None:
    with serving(Still()) as server:
        taken = server.server_port
        with pytest.raises(InputError, match=f"--port {taken}"):
            Server(Still(), taken)


@needs_browser
def test_a_browser_draws_the_page_and_runs_no_text_of_a_party(tmp_path: Path) -> None:
    with serving(Still()) as server:
        options = ("--dump-dom", "--virtual-time-budget=3000")
        page = browse(server.address, tmp_path, *options).decode()
    assert '<h1 id="title">a title</h1>' in page
    assert "<img" not in page
    assert page.count(NASTY.replace("<", "&lt;").replace(">", "&gt;")) >= 4
    assert len(NODE.findall(page)) == 3
    assert '<circle class="node down"' in page
    assert 'class="edge down"' in page
    assert "1.23 MB" in page
    assert page.count('class="curve"') == 1
    assert page.count('<path class="curve over"') >= 1
    assert "12.5 rounds/s" in page


class As:
    """A source as it was at one moment."""

    def __init__(self, shown: Snapshot) -> None:
        self.shown = shown

    def snapshot(self) -> Snapshot:
        return self.shown


@needs_browser
@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("kind", ["simulation", "federation"])
def test_a_browser_shows_a_simulation_and_a_real_federation_in_the_middle_of_their_training(
    kind: str, watched: tuple[Path, list[Snapshot]], tmp_path: Path
) -> None:
    federation = lambda: source_of(federation_folder(tmp_path / "up"))  # noqa: E731
    source = As(watched[1][-1]) if kind == "simulation" else federation()
    with serving(source) as server:
        options = ("--dump-dom", "--virtual-time-budget=3000")
        page = browse(server.address, tmp_path / "profile", *options).decode()
    assert sorted(NODE.findall(page)) == (
        ["down"] * 3 + ["up"] if kind == "simulation" else ["down", "up", "up"]
    )
    assert page.count('class="curve"') == 1
    assert 'class="edge down"' in page
    assert re.search(r"\d rounds/s", page)
    assert re.search(r"\d(\.\d+)? [kM]?B", page), "bytes of the links"


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(parse_experiment(EXPERIMENT, "watched").toml())
    command = [sys.executable, "-m", "colonnade", "watch", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/\S+/", said)
        assert address
        with urllib.request.urlopen(f"{address[0]}state") as answer:
            assert b"Nothing has happened here yet" in answer.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
