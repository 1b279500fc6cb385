"""Models of a party's own in a real federation: named in its party file, shown to the others."""

from __future__ import annotations

import hashlib
import logging
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tomli_w
from safetensors.torch import load_file
from typer.testing import CliRunner

from colonnade.cli import app
from colonnade.common.user_code import Source
from colonnade.errors import InputError
from colonnade.experiments.config import parse_experiment
from colonnade.experiments.engine import portable
from colonnade.experiments.runner import run_experiment
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.federation_file import parse_federation, read_federation
from colonnade.federation.agreement.party_file import PartyFile, read_party
from colonnade.federation.asking import parties, statuses
from colonnade.federation.member.known_code import KnownCode
from colonnade.federation.member.leaderless import member_kind
from colonnade.federation.member.local_files import prepare
from colonnade.federation.member.member import Member
from colonnade.federation.member.messages import Greeting, text
from colonnade.federation.member.own_data import read_own
from colonnade.federation.member.status import status
from colonnade.network.clock import Clock
from colonnade.network.transport.memory import MemoryTransport
from colonnade.network.wire import WireError
from colonnade.testing import stacked

MODELS = """
from torch import nn

class Tower(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.Linear(width, 20), nn.Tanh(), nn.Linear(20, 12), nn.Sigmoid())

def head(width, classes):
    return nn.Sequential(nn.Linear(width, 30), nn.GELU(), nn.Linear(30, classes))

def decoder(code, width):
    return nn.Sequential(nn.Linear(code, 25), nn.Tanh(), nn.Linear(25, width))

def wide(width):
    return nn.Linear(width, 13)

def signed(width):
    return nn.Sequential(nn.Linear(width, 12), nn.Tanh())

def clumsy(width):
    return nn.Linear(width + 1, 12)

def hesitant(width, depth):
    return nn.Linear(width, 12)

def nothing(width):
    return None

made = nn.Linear(16, 12)
number = 12
"""
EACH = {"encoder": "my_models:Tower"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With `my_models.py`, which is forgotten afterwards."""
    (tmp_path / "my_models.py").write_text(MODELS)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "my_models", None)  # so that it is put back
    del sys.modules["my_models"]
    return tmp_path


def table(algorithm: str, **method: Any) -> dict[str, Any]:
    return {
        "name": "test",
        "data": {"dataset": "digits", "rows": 200},
        "method": {"algorithm": algorithm, "epochs": 2, "encoder": [32, 12], **method},
        "network": {"gather": 5.0, "patience": 0.5, "transport": "tcp"},
    }


def federation(algorithm: str = "splitnn", **method: Any) -> Federation:
    return parse_federation(table(algorithm, **method), "test")


def party(fed: Federation, name: str, folder: Path, **models: str) -> PartyFile:
    return PartyFile(f"{name}.toml", fed, name, folder / name, models=models, code=folder)


def trained(fed: Federation, folder: Path, **own: dict[str, str]) -> dict[str, Member]:
    """All parties, in virtual time; `own`: models by party."""
    clock = Clock()
    room, kind = MemoryTransport(clock), member_kind(fed)
    members = {
        name: kind(
            fed,
            read_own(party(fed, name, folder, **own.get(name, {}))),
            room.seat(name),
            folder / name,
            life=1,
            once=True,
        )
        for name in fed.members
    }
    clock.run(*[(name, one.live()) for name, one in members.items()])
    return members


@pytest.mark.parametrize(
    ("algorithm", "more", "own"),
    [
        ("splitnn", {}, {}),
        ("fedonce", {"client_epochs": 2}, {"decoder": "my_models:decoder"}),
        ("fedonce", {"client_epochs": 2}, {}),
        ("dvfl", {"client_epochs": 2, "aggregators": 0}, {"decoder": "my_models:decoder"}),
        ("mags", {"gossip": 1}, {}),
    ],
)
def test_parties_with_models_of_their_own_train_what_python_trains(
    algorithm: str, more: dict[str, Any], own: dict[str, str], folder: Path
) -> None:
    fed = federation(algorithm, **more)
    each: dict[str, dict[str, str]] = {name: {**EACH, **own} for name in fed.clients}
    for name in fed.label_holders:
        each[name] = each.get(name, {}) | {"head": "my_models:head"}
    members = trained(fed, folder, **each)
    models = {key: members[fed.clients[0]].own.models[key].make for key in {**EACH, **own}}
    models["head"] = members[fed.speaker].own.models["head"].make
    one = stacked(msgspec.structs.replace(fed.method, **models), fed.vertical_data(), fed.seed)
    for name, tensors in one.weights.items():
        mine = members[name].algorithm.tensors(members[name].net)[name]
        assert mine.keys() == tensors.keys()
        assert all(float((mine[key] - value).abs().max()) < 1e-6 for key, value in tensors.items())


def test_one_party_has_a_model_of_its_own_and_all_are_told_which(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    fed = federation("dvfl", client_epochs=1, aggregator_epochs=1, aggregators=1)
    members = trained(fed, folder, client1=EACH)
    names = members["client1"].algorithm.tensors(members["client1"].net)["client1"]
    assert names["encoder.0.weight"].shape == (20, 16)
    digest = hashlib.sha256((folder / "my_models.py").read_bytes()).hexdigest()
    for other in ("owner", "aggregator0", "client1"):
        source = members[other].codes.known["client1"]["encoder"]
        assert (source.name, source.sha256) == ("my_models:Tower", digest)
    told = status(members["client1"])["code"]
    assert told == {"encoder": {"name": "my_models:Tower", "sha256": digest}}
    assert status(members["client2"])["code"] == {}
    shown = f"client1 runs code of its own: encoder my_models:Tower (sha256 {digest[:12]}…)"
    assert shown in caplog.messages


def test_the_command_status_shows_who_runs_which_code(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = federation()
    own = {"encoder": {"name": "my_models:Tower", "sha256": "0123456789ab" + "0" * 52}}
    told = {"stage": "training", "round": 3, "away": {}}
    answers: dict[str, Any] = dict.fromkeys(fed.members, told)
    monkeypatch.setattr(parties, "find_party", lambda path: party(fed, "server", folder))
    monkeypatch.setattr(statuses, "statuses", lambda party: answers)
    monkeypatch.setenv("COLUMNS", "160")
    assert "code" not in CliRunner().invoke(app, ["status", str(folder)]).output
    answers["client1"] = told | {"code": own}
    answers["client2"] = told | {"code": {"encoder": "something else"}}
    lines = CliRunner().invoke(app, ["status", str(folder)]).output.splitlines()
    (mine,) = (line for line in lines if "client1" in line)
    assert mine.rstrip().endswith("encoder my_models:Tower (sha256 0123456789ab…)")
    (other,) = (line for line in lines if "client2" in line)
    assert other.rstrip().endswith("not readable")


def test_a_restart_with_other_code_is_refused_and_the_others_log_the_change(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fed = federation()
    trained(fed, folder, client1=EACH)
    with pytest.raises(
        InputError, match=r"encoder: my_models:Tower .* before, none of its own now"
    ):
        trained(fed, folder)
    (folder / "my_models.py").write_text(MODELS.replace("nn.GELU()", "nn.ReLU()"))
    del sys.modules["my_models"]
    with pytest.raises(
        InputError, match=r"was kept with other code: encoder: my_models:Tower \(sh"
    ):
        trained(fed, folder, client1=EACH)
    shutil.rmtree(folder / "client1" / "checkpoints")  # as --fresh does
    shutil.rmtree(folder / "server" / "checkpoints")
    (folder / "client1" / "code.json").unlink()
    caplog.clear()
    trained(fed, folder, client1=EACH)
    changed = [m for m in caplog.messages if m.startswith("client1 runs other code than before")]
    assert len(changed) == 1, "the server's, whose code.json knows the code of before"


def test_parties_with_different_plugins_are_warned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine, theirs = (Source("average", digit * 64) for digit in "ab")
    book = KnownCode(tmp_path, {"plugin average": mine})
    book.hear("clinic", {"plugin average": mine})
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
    book.hear("lab", {"plugin average": theirs})
    assert "plugin average: lab has average (sha256 bbbbbbbbbbbb…), we have average" in caplog.text
    assert KnownCode(tmp_path, {}).known["lab"] == {"plugin average": theirs}


def test_a_member_cannot_fill_the_log_with_changes(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fed = federation()
    own = read_own(party(fed, "server", folder))
    seat = MemoryTransport(Clock()).seat("server")
    server = member_kind(fed)(fed, own, seat, folder / "server", life=1)
    for i in range(1000):
        source = {"name": "m:f", "sha256": f"{i:064x}"}
        greeting = Greeting(fed.digests, "", msgspec.convert({"encoder": source}, dict[str, Any]))
        server.greeted("client0", text(greeting))
    assert len(caplog.messages) < 50
    for name, sha256 in (("m:f\n[forged line]", "0" * 64), ("m:f", "0" * 63 + "\n")):
        source: Any = {"name": name, "sha256": sha256}
        with pytest.raises(WireError):  # refused by the post
            server.greeted("client1", text(Greeting(fed.digests, "", {"encoder": source})))
    assert "client1" not in server.codes.known


# -- what is wrong, told before anyone connects ----------------------------------------------------


@pytest.mark.parametrize(
    ("models", "says"),
    [
        ({"encoder": "no_models:Tower"}, r"there is no module 'no_models', neither in .* nor inst"),
        ({"encoder": "my_models:Towr"}, r"no 'Towr' in .*my_models.py; the nearest is 'Tower'"),
        ({"encoder": "my_models:number"}, r"is of type int; expected a class or a function that"),
        ({"encoder": "my_models:made"}, r"is a module that was made already; expected a class or"),
        ({"encoder": "my_models:wide"}, r"for width = 16, its output is 13 wide, not 12, which th"),
        ({"encoder": "my_models:clumsy"}, r"fails for width = 16: RuntimeError: mat1 and mat2"),
        ({"encoder": "my_models:hesitant"}, r"fails for width = 16: TypeError: .*'depth'"),
        ({"encoder": "my_models:nothing"}, r"gives NoneType, expected a torch.nn.Module"),
    ],
)
def test_a_model_that_cannot_work_is_an_error_that_names_file_and_key(
    folder: Path, models: dict[str, str], says: str
) -> None:
    with pytest.raises(InputError, match=says) as caught:
        read_own(party(federation(), "client0", folder, **models))
    assert str(caught.value).startswith(f'client0.toml: encoder = "{models["encoder"]}": ')


def test_a_head_of_another_width_than_there_are_classes_is_an_error(folder: Path) -> None:
    (folder / "my_models.py").write_text(
        MODELS.replace("nn.Linear(30, classes)", "nn.Linear(30, 2)")
    )
    with pytest.raises(InputError, match=r"width = 48, classes = 10, its output is 2 wide, not 10"):
        read_own(party(federation(), "server", folder, head="my_models:head"))


def test_aggregators_count_on_encodings_of_zero_or_more(folder: Path) -> None:
    fed = federation("dvfl", aggregators=2)
    read_own(party(fed, "client0", folder, encoder="my_models:Tower"))
    signed = party(fed, "client0", folder, encoder="my_models:signed")
    with pytest.raises(InputError, match=r"gives numbers below 0 .* end it with nn.ReLU\(\)"):
        read_own(signed)
    read_own(replace(signed, federation=federation("dvfl", aggregators=0)))


def test_a_model_that_the_method_does_not_use_is_an_error(folder: Path) -> None:
    fed = federation("fedonce", objective="noise")
    with pytest.raises(InputError, match=r'decoder = "my_models:decoder": this method, as it is'):
        read_own(party(fed, "client0", folder, decoder="my_models:decoder"))
    deep = federation("mags", depth=1)
    with pytest.raises(InputError, match="depth = 1: deals out the usual head; leave out head"):
        read_own(party(deep, "client0", folder, head="my_models:head"))


@pytest.mark.parametrize(
    ("name", "line", "says"),
    [
        ("server", 'encoder = "my_models:Tower"', "encoder: 'server' holds no columns, so it has"),
        (
            "client0",
            'head = "my_models:head"',
            "head: 'client0' holds no labels, so it has no head",
        ),
        ("client0", 'decoder = "my_models:decoder"', "decoder: splitnn has none; leave it out"),
        ("client0", 'encoder = "Tower"', 'encoder: expected "module:name"'),
        ("client0", "encoder = [64, 32]", r"widths for all parties are in \[method\]"),
        ("client0", 'code = "nowhere"', 'code = "nowhere": is not a folder'),
        ("client0", 'encodr = "my_models:Tower"', "encodr: unknown key; the nearest is 'encoder'"),
    ],
)
def test_a_party_file_says_what_is_wrong_without_importing_anything(
    folder: Path, name: str, line: str, says: str
) -> None:
    (folder / "federation.toml").write_text(tomli_w.dumps(table("splitnn")))
    (folder / f"{name}.toml").write_text(
        f'federation = "federation.toml"\nparty = "{name}"\n{line}\n'
    )
    with pytest.raises(InputError, match=says) as caught:
        read_party(folder / f"{name}.toml")
    assert str(caught.value).startswith(str(folder / f"{name}.toml"))
    assert "my_models" not in sys.modules


def test_a_federation_file_names_no_models() -> None:
    with pytest.raises(
        InputError, match=r'method.encoder = "my_models:Tower": a federation file n'
    ):
        parse_federation(table("splitnn", encoder="my_models:Tower"), "test")


def test_up_takes_the_models_of_the_party_files_beside_the_federation_file(folder: Path) -> None:
    file = folder / "federation.toml"
    file.write_text(tomli_w.dumps(table("splitnn")))
    mine = 'federation = "federation.toml"\nparty = "client1"\nencoder = "my_models:Tower"\n'
    (folder / "client1.toml").write_text(mine)
    prepare(read_federation(file), file, folder / "out")
    assert read_party(folder / "out" / "client0.toml").models == {}
    party = read_party(folder / "out" / "client1.toml")
    assert party.models == EACH
    assert read_own(party).code["encoder"].name == "my_models:Tower"


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("encoder = 'my_models:Tower'", 'encoder not used: party is missing, expected "client1"'),
        (
            "partty = 'client1'\nencoder = 'my_models:Tower'\nhead = 'my_models:head'",
            'encoder, head not used: party is missing, expected "client1"',
        ),
        (
            "party = 'client2'\nencoder = 'my_models:Tower'",
            'encoder not used: party is "client2", expected "client1"',
        ),
        ("something = 'else'", None),
        ("party = 'client2'", None),
    ],
)
def test_up_warns_of_models_in_a_file_that_does_not_say_whose_it_is(
    folder: Path, text: str, warning: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    file, beside = folder / "federation.toml", folder / "client1.toml"
    file.write_text(tomli_w.dumps(table("splitnn")))
    beside.write_text(text)
    prepare(read_federation(file), file, folder / "out")
    assert read_party(folder / "out" / "client1.toml").models == {}
    assert caplog.messages == ([] if warning is None else [f"{beside}: {warning}"])


# -- in an experiment ------------------------------------------------------------------------------


def test_an_experiment_file_names_models(folder: Path) -> None:
    own = {"encoder": "my_models:Tower", "head": "my_models:head"}
    methods = [
        {"name": "own", "algorithm": "splitnn", "epochs": 1, **own},
        {"name": "usual", "algorithm": "splitnn", "epochs": 1},
    ]
    data = {"dataset": "digits", "rows": 200}
    source = {"name": "own", "data": data, "methods": methods}
    experiment = parse_experiment(source, "own.toml", folder)
    assert experiment.table()["methods"][0]["encoder"] == "my_models:Tower"
    assert parse_experiment(experiment.table(), "config.toml") == experiment
    assert portable(experiment), "a worker process makes it anew from its table"
    outcome = run_experiment(experiment, folder / "out")
    assert not outcome.failures
    shapes = [
        load_file(folder / "out" / "models" / result.run / "client0.safetensors")
        for result in outcome.results
    ]
    assert [one["encoder.0.weight"].shape for one in shapes] == [(20, 16), (32, 16)]


def test_results_of_other_code_are_not_gone_on_with(folder: Path) -> None:
    method = {"algorithm": "splitnn", "epochs": 1, "encoder": "my_models:Tower"}
    source = {"name": "own", "data": {"dataset": "digits", "rows": 200}, "methods": [method]}
    run_experiment(parse_experiment(source, "own.toml", folder), folder / "out")
    (folder / "my_models.py").write_text(MODELS.replace("nn.Tanh()", "nn.ReLU()"))
    del sys.modules["my_models"]
    changed = parse_experiment(source, "own.toml", folder)
    with pytest.raises(InputError, match=r"holds another experiment \(its config.toml differs\)"):
        run_experiment(changed, folder / "out")
    assert parse_experiment(changed.table(), "config.toml") == changed


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ({"encoder": "my_models:Towr"}, r"own.toml: methods\[0\].encoder = .* no 'Towr' in"),
        ({"head": "my_models:made"}, r"own.toml: methods\[0\].head = .* was made already"),
        ({"encoder": "my models:Tower"}, r'expected "module:name", e.g. encoder = "my_models:To'),
    ],
)
def test_a_mistake_in_an_experiment_file_is_named(
    folder: Path, own: dict[str, str], says: str
) -> None:
    source = {"name": "own", "data": {"dataset": "digits"}}
    methods = [{"algorithm": "splitnn", **own}]
    with pytest.raises(InputError, match=says):
        parse_experiment({**source, "methods": methods}, "own.toml", folder)
