"""Party files and the rows they lead to: alignment, splits, stand-ins, and what is wrong."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from colonnade.data import Rows, VerticalData
from colonnade.errors import InputError
from colonnade.federation.agreement.party_file import PartyFile, read_party
from colonnade.federation.keys.certificates import make_authority, make_certificate
from colonnade.federation.member.own_data import OwnData, read_own
from colonnade.learning.algorithm import Algorithm
from colonnade.network import Network
from colonnade.testing import run_projected, run_stacked

ROWS, EXTRA = 60, 5
FEDERATION = """
name = "hospitals"
seed = 1
[method]
algorithm = "ALGORITHM"
epochs = 2
[rows]
aligned = 60
classes = 2
[[parties]]
name = "clinic"
role = "clients"
endpoint = "localhost:7001"
columns = 2
[[parties]]
name = "lab"
role = "clients"
endpoint = "localhost:7002"
columns = 1
[[parties]]
name = "hospital"
roles = ["clients", "LABELS"]
endpoint = "localhost:7003"
columns = 1
[network]
transport = "tcp"
"""
CLINIC = '[data]\npath = "clinic.csv"\nid = "patient"\n'
LAB = '[data]\npath = "lab.parquet"\nid = "number"\ncolumns = ["sugar"]\n'
HOSPITAL = '[data]\npath = "hospital.npz"\nid = "id"\nlabel = "outcome"\n'


def table() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS + EXTRA, 4))
    ids = random.permutation(ROWS + EXTRA) + 100
    return {"id": ids, "x": x, "y": (x[:, 0] + x[:, 3] > 0).astype(int)}


def shuffled(seed: int) -> np.ndarray:
    """Aligned rows first, in any order."""
    return np.concatenate([np.random.default_rng(seed).permutation(ROWS), ROWS + np.arange(EXTRA)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three parties with files of three kinds, in three orders."""
    import polars

    t = table()
    lines = ["patient,age,bmi"]
    lines += [f"{t['id'][i]},{t['x'][i, 0]!r},{t['x'][i, 1]!r}" for i in shuffled(1)]
    (tmp_path / "clinic.csv").write_text(
        "\n".join(lines).replace("np.float64(", "").replace(")", "")
    )
    order = shuffled(2)
    columns = {"number": t["id"][order], "sugar": t["x"][order, 2], "note": ["n"] * len(order)}
    polars.DataFrame(columns).write_parquet(tmp_path / "lab.parquet")
    order = shuffled(3)
    words = np.array(["well", "sick"])[t["y"][order]]
    np.savez(tmp_path / "hospital.npz", id=t["id"][order], outcome=words, x=t["x"][order, 3:])
    write(tmp_path, "splitnn", "server")
    return tmp_path


def write(folder: Path, algorithm: str, labels: str) -> None:
    text = FEDERATION.replace("ALGORITHM", algorithm).replace("LABELS", labels)
    (folder / "federation.toml").write_text(text)


def party(folder: Path, name: str, rest: str) -> PartyFile:
    path = folder / f"{name}.toml"
    path.write_text(f'federation = "federation.toml"\nparty = "{name}"\n{rest}')
    return read_party(path)


def everybody(folder: Path) -> dict[str, OwnData]:
    data = {"clinic": CLINIC, "lab": LAB, "hospital": HOSPITAL}
    return {name: read_own(party(folder, name, rest)) for name, rest in data.items()}


def refused(folder: Path, name: str, rest: str, message: str) -> None:
    with pytest.raises(InputError, match=f"(?s){message}"):
        read_own(party(folder, name, rest))


def test_rows_meet_whatever_the_order_and_the_kind_of_file(folder: Path) -> None:
    own = everybody(folder)
    assert len({o.fingerprint for o in own.values()}) == 1
    assert len({o.ids[:ROWS] for o in own.values()}) == 1
    assert own["hospital"].classes == ("sick", "well")
    t = table()
    place = {str(one): i for i, one in enumerate(t["id"])}
    order = [place[one] for one in own["lab"].ids]
    raw = t["x"][order, 2]
    mine = own["lab"].x
    assert mine is not None
    assert np.corrcoef(raw, mine[torch.arange(len(raw))][:, 0].numpy())[0, 1] == pytest.approx(1)
    train = own["lab"].data.train.x[1]
    assert float(train.mean()) == pytest.approx(0, abs=1e-6)  # scaled on its training rows
    assert float(train.std(correction=0)) == pytest.approx(1, abs=1e-5)


def test_what_others_hold_is_nothing_and_takes_no_memory(folder: Path) -> None:
    data = everybody(folder)["clinic"].data
    assert data.clients == ("clinic", "lab", "hospital")
    assert data.widths == (2, 1, 1)
    assert [len(data.train), len(data.validation), len(data.test)] == [43, 5, 12]
    for stand_in in (*data.train.x[1:], data.train.y):
        assert not stand_in.any()
        assert stand_in.untyped_storage().nbytes() <= 8


def test_every_party_draws_the_same_rows(folder: Path) -> None:
    own = everybody(folder)
    y = own["hospital"].data.train.y
    # The sum of columns 0 and 3 decides who is sick, and they are at different parties.
    a, b = own["clinic"].data.train.x[0][:, 0], own["hospital"].data.train.x[2][:, 0]
    sick = own["hospital"].classes.index("sick")
    assert float(((a + b > 0) == (y == sick)).double().mean()) > 0.85


@pytest.mark.parametrize(("algorithm", "labels"), [("splitnn", "server"), ("dvfl", "owner")])
def test_parties_with_their_own_files_learn_what_one_with_all_of_them_learns(
    folder: Path, algorithm: str, labels: str
) -> None:
    """`hospital` holds columns and labels."""
    write(folder, algorithm, labels)
    own = everybody(folder)
    federation = party(folder, "lab", LAB).federation

    def training(net: Network, data: VerticalData) -> Coroutine[Any, Any, dict[str, Any]]:
        async def train() -> dict[str, Any]:
            plays: Algorithm = federation.algorithm()
            plays.join(net, data)
            await plays.train(net)
            return plays.tensors(net)

        return train()

    world = federation.algorithm().world()
    together: dict[str, dict[str, Tensor]] = run_stacked(
        world, lambda net: training(net, pooled(own))
    )
    alone = run_projected(world, lambda net: training(net, own[net.party].data))  # pyright: ignore[reportAttributeAccessIssue]
    assert set(alone) == {"clinic", "lab", "hospital"}
    for name, tensors in together.items():
        for key, value in tensors.items():
            torch.testing.assert_close(alone[name][name][key], value, rtol=1e-5, atol=1e-6)


def pooled(own: dict[str, OwnData]) -> VerticalData:
    def part(name: str) -> Rows:
        x = tuple(getattr(o.data, name).x[i] for i, o in enumerate(own.values()))
        return Rows(x, getattr(own["hospital"].data, name).y)

    parts = {name: part(name) for name in ("train", "validation", "test")}
    return replace(own["clinic"].data, **parts)


def test_predictions_may_be_asked_for_any_row_of_the_file(folder: Path) -> None:
    lab = everybody(folder)["lab"]
    assert lab.x is not None
    later = lab.ids[-1]  # beyond the aligned rows
    assert later not in lab.ids[:ROWS]
    assert lab.positions([later, "nobody"]).tolist() == [ROWS + EXTRA - 1, -1]
    torch.testing.assert_close(lab.rows([later, "nobody"])[0], lab.x[torch.tensor([-1])][0])
    assert not lab.rows(["nobody"]).any()


def test_without_ids_rows_stay_in_the_order_of_the_file(folder: Path) -> None:
    own = read_own(party(folder, "clinic", '[data]\npath = "clinic.csv"\ncolumns = ["age", "bmi"]'))
    assert own.fingerprint == ""
    assert own.ids[:3] == ("1", "2", "3")


def test_other_ids_give_another_fingerprint(folder: Path) -> None:
    before = read_own(party(folder, "clinic", CLINIC)).fingerprint
    lines = (folder / "clinic.csv").read_text().split("\n")
    lines[1], lines[-1] = lines[-1], lines[1]  # one of the aligned rows is another one
    (folder / "clinic.csv").write_text("\n".join(lines))
    assert read_own(party(folder, "clinic", CLINIC)).fingerprint != before


def test_in_a_federation_with_data_each_takes_its_columns(folder: Path) -> None:
    text = 'name = "t"\n[method]\nalgorithm = "dvfl"\naggregators = 1\n[data]\ndataset = "wine"\n'
    (folder / "federation.toml").write_text(text + '[network]\ntransport = "tcp"\n')
    own = read_own(party(folder, "client1", ""))
    assert own.x is not None
    assert own.ids[0] == "1"
    torch.testing.assert_close(own.rows(["2"])[0], own.data.test.x[1][1])
    assert read_own(party(folder, "aggregator0", "")).x is None
    refused(folder, "client1", CLINIC, r"client1.toml: data: the federation file has a \[data\]")


def test_a_party_without_columns_and_labels_needs_no_data(folder: Path) -> None:
    text = (folder / "federation.toml").read_text().replace("splitnn", "dvfl")
    text = text.replace('"server"', '"owner"')
    text += '\n[[parties]]\nname = "cloud"\nrole = "aggregators"\nendpoint = "localhost:7004"\n'
    (folder / "federation.toml").write_text(text)
    own = read_own(party(folder, "cloud", ""))
    assert own.x is None
    assert own.data.widths == (2, 1, 1)
    refused(folder, "cloud", CLINIC, "data: 'cloud' holds neither columns nor labels")


@pytest.mark.parametrize(
    ("name", "rest", "message"),
    [
        ("clinic", "", "data: missing; 'clinic' holds columns"),
        ("clnic", CLINIC, r'party = "clnic": is not a party of "hospitals".*\'clinic\''),
        ("clinic", CLINIC + "lable = 'x'", "data.lable: unknown key; the nearest is 'label'"),
        ("clinic", "lisen = 'x'\n" + CLINIC, "lisen: unknown key; the nearest is 'listen'"),
        ("clinic", "listen = 'x'\n" + CLINIC, 'listen = "x": expected host:port'),
        ("clinic", CLINIC + "label = 'bmi'", "data.label: the labels are those of 'hospital'"),
        ("hospital", HOSPITAL.replace('label = "outcome"', ""), "data.label: missing; 'hospital'"),
        ("clinic", CLINIC.replace("csv", "xlsx"), "unknown kind of file '.xlsx'"),
        ("clinic", CLINIC.replace("clinic.csv", "none.csv"), r"none.csv: cannot be read"),
        ("clinic", CLINIC.replace("patient", "patients"), "no column 'patients', which data.id"),
        ("clinic", CLINIC + "columns = ['age', 'bmj']", "no column 'bmj', which data.columns"),
        ("clinic", CLINIC + "columns = ['age', 'age']", "data.columns names 'age' twice"),
        ("clinic", CLINIC + "columns = ['age', 'patient']", "'patient' is the id or the label"),
        (
            "clinic",
            CLINIC + "columns = ['age']",
            r"clinic.csv: gives 1 columns \(age\), but the federation file says columns = 2",
        ),
        ("lab", LAB.replace("sugar", "note"), "no column is left.*note: one value only: 'n'"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, name: str, rest: str, message: str) -> None:
    refused(folder, name, rest, message)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("9999,,1.0", "2 columns .age, bmi., which become 3 numbers, but .* columns = 2"),
        ("9999,inf,1.0", "column 'age', data row 1 is infinite"),
        (",1.0,1.0", "column 'patient', data row 1 has no id"),
        ("{second},1.0,1.0", "holds the id '{second}' twice"),
    ],
)
def test_a_bad_row_is_named(folder: Path, line: str, message: str) -> None:
    lines = (folder / "clinic.csv").read_text().split("\n")
    second = lines[2].split(",")[0]
    lines[1] = line.format(second=second)
    (folder / "clinic.csv").write_text("\n".join(lines))
    refused(folder, "clinic", CLINIC, "clinic.csv: .*" + message.format(second=second))


def test_too_few_rows_and_other_classes_are_refused(folder: Path) -> None:
    path = folder / "federation.toml"
    text = path.read_text()
    path.write_text(text.replace("aligned = 60", "aligned = 66"))
    refused(folder, "clinic", CLINIC, "has 65 rows, but rows.aligned = 66")
    path.write_text(text.replace("classes = 2", "classes = 3"))
    refused(folder, "hospital", HOSPITAL, r"'outcome' holds 2 classes \(sick, well\)")


def test_amounts_as_labels_are_told_with_advice(folder: Path) -> None:
    with np.load(folder / "hospital.npz") as stored:
        arrays = dict(stored)
    arrays["outcome"] = np.arange(ROWS + EXTRA) % 25
    np.savez(folder / "hospital.npz", allow_pickle=False, **arrays)
    refused(folder, "hospital", HOSPITAL, r"holds 25 classes .* rows.classes = 2\. .*amounts")


def test_labels_are_needed_for_aligned_rows_only(folder: Path) -> None:
    with np.load(folder / "hospital.npz") as stored:
        arrays = dict(stored)
    arrays["outcome"][-1] = ""
    np.savez(folder / "hospital.npz", allow_pickle=False, **arrays)
    assert read_own(party(folder, "hospital", HOSPITAL)).classes == ("sick", "well")
    arrays["outcome"][0] = ""
    np.savez(folder / "hospital.npz", allow_pickle=False, **arrays)
    refused(folder, "hospital", HOSPITAL, "label column 'outcome' is empty in 1 of .* data row 1")


def test_large_ids_stay_exact_and_those_that_cannot_be_told_apart_are_refused(folder: Path) -> None:
    import polars

    frame = polars.read_parquet(folder / "lab.parquet")
    large = polars.Series(range(2**53, 2**53 + frame.height))  # float64 holds half of them
    frame.with_columns(number=large).write_parquet(folder / "lab.parquet")
    assert set(read_own(party(folder, "lab", LAB)).ids) <= {str(one) for one in large}
    rounded = frame.with_columns(number=large.cast(polars.Float64))
    rounded.write_parquet(folder / "lab.parquet")
    refused(folder, "lab", LAB, r"column 'number', data row 1 .*whole numbers, and below 2\^53")


# -- keys ------------------------------------------------------------------------------------------

NOW = datetime(2031, 5, 4, 12, tzinfo=UTC)


@pytest.fixture
def secured(folder: Path) -> Path:
    path = folder / "federation.toml"
    path.write_text(path.read_text().replace('transport = "tcp"', ""))
    make_authority(folder / "keys", "hospitals", now=NOW)
    for name in ("clinic", "lab"):
        make_certificate(folder / "keys", name, now=NOW)
    return folder


def checked(folder: Path, keys: str = 'keys = "keys"\n', now: datetime = NOW) -> None:
    party(folder, "clinic", keys + CLINIC).check(now)


def test_a_party_has_its_keys_where_it_says(secured: Path) -> None:
    checked(secured)
    files = {"certificate": "clinic.pem", "key": "clinic.key", "authority": "authority.pem"}
    checked(secured, "".join(f'{key} = "keys/{name}"\n' for key, name in files.items()))
    one = party(secured, "clinic", 'keys = "keys"\nlisten = "0.0.0.0:7447"\n' + CLINIC)
    assert one.identity is not None
    assert one.identity.key == secured / "keys" / "clinic.key"
    assert one.folder == secured / "clinic"
    assert one.listening == "0.0.0.0:7447"
    assert party(secured, "clinic", 'keys = "keys"\n' + CLINIC).listening == "localhost:7001"


def test_plain_tcp_needs_no_keys(folder: Path) -> None:
    assert party(folder, "clinic", CLINIC).identity is None


@pytest.mark.parametrize(
    ("keys", "days", "message"),
    [
        ("", 0, "clinic.toml: keys: expected the folder that holds authority.pem"),
        ('keys = "keys"\nkey = "a"\n', 0, "clinic.toml: keys: expected the folder"),
        ('keys = "nowhere"\n', 0, "nowhere.*: there is no such file"),
        ('keys = "keys"\n', 400, "clinic.pem: has expired.*clock says"),
        ('keys = "keys"\n', -1, "is not valid yet.*If the clock is wrong, set it"),
        (
            'certificate = "keys/lab.pem"\nkey = "keys/lab.key"\n'
            'authority = "keys/authority.pem"\n',
            0,
            "lab.pem: is the certificate of 'lab', not of 'clinic'",
        ),
        (
            'certificate = "clinic.csv"\nkey = "keys/lab.key"\nauthority = "keys/authority.pem"\n',
            0,
            "clinic.csv: is not a PEM file",
        ),
    ],
)
def test_keys_that_will_not_do_are_named(secured: Path, keys: str, days: int, message: str) -> None:
    with pytest.raises(InputError, match=f"(?s){message}"):
        checked(secured, keys, NOW + timedelta(days=days))


def test_a_certificate_for_another_host_is_named_before_others_refuse_it(secured: Path) -> None:
    path = secured / "federation.toml"
    path.write_text(path.read_text().replace("localhost:7001", "clinic.example:7001"))
    with pytest.raises(InputError, match=r"clinic.pem: is for localhost, 127.0.0.1, but others"):
        checked(secured)
