"""The federation file: what it says, and what is wrong with it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from colonnade.errors import InputError
from colonnade.federation.agreement.digest import differences
from colonnade.federation.agreement.federation_file import (
    Federation,
    parse_federation,
    read_federation,
)
from colonnade.federation.agreement.party_file import PartyFile
from colonnade.federation.member.place import visiting

HOSPITALS = """
name = "three hospitals"
seed = 3

[method]
algorithm = "dvfl"

[rows]
aligned = 50
classes = 2

[[parties]]
name = "clinic"
role = "clients"
endpoint = "clinic.example:7447"
columns = 3

[[parties]]
name = "lab"
roles = ["clients"]
endpoint = "10.0.0.7:7447"
columns = 2

[[parties]]
name = "cloud"
role = "aggregators"
endpoint = "[2001:db8::1]:7447"

[[parties]]
name = "hospital"
roles = ["clients", "owner"]
endpoint = "hospital.example:7447"
columns = 1

[network]
topology = "complete"
"""

DIGITS = """
name = "trying"
[method]
algorithm = "splitnn"
epochs = 2
[data]
dataset = "digits"
parties = 4
"""


BANKS = """
name = "banks"
[method]
algorithm = "cvfl"
[rows]
aligned = 60
classes = ["no", "yes"]
[[parties]]
name = "west"
role = "clients"
columns = 3
[[parties]]
name = "south"
roles = ["active", "clients"]
columns = 2
[[parties]]
name = "north"
role = "active"
[[parties]]
name = "bureau"
role = "collaborator"
"""


def parse(text: str) -> Federation:
    return parse_federation(tomllib.loads(text), "federation.toml")


def changed(old: str, new: str, text: str = HOSPITALS) -> str:
    assert text.count(old) >= 1, old
    return text.replace(old, new, 1)


def test_a_federation_says_who_does_what_and_who_talks_to_whom() -> None:
    federation = parse(HOSPITALS)
    assert federation.members == ("clinic", "lab", "cloud", "hospital")
    assert federation.leader == "hospital"
    task = federation.task()
    assert task.clients == ("clinic", "lab", "hospital")
    assert task.widths == (3, 2, 1)
    assert task.rows == {"train": 36, "validation": 4, "test": 10, "extra": 0}
    assert task.players == {"owner": ("hospital",), "aggregators": ("cloud",)}
    algorithm = federation.algorithm()
    assert algorithm.labels.parties == ("hospital",)
    assert {g.name: g.parties for g in algorithm.groups}["aggregators"] == ("cloud",)
    assert federation.edges() == [
        ("clinic", "cloud"),
        ("clinic", "hospital"),
        ("lab", "cloud"),
        ("lab", "hospital"),
        ("cloud", "hospital"),
    ]


def test_several_parties_may_hold_labels_and_the_first_of_them_leads() -> None:
    federation = parse(BANKS)
    assert federation.leader == federation.speaker == "south"
    assert federation.label_holders == ("south", "north")
    algorithm = federation.algorithm()
    assert algorithm.columns.parties == ("west", "south")
    assert {g.name: g.parties for g in algorithm.groups}["collaborator"] == ("bureau",)
    assert ("west", "bureau") in federation.edges(), "which hears when a round has ended"
    assert parse(federation.toml()) == federation


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('["no", "yes"]', "2", "rows.classes = 2: south, north hold labels.*names of all"),
        ('["no", "yes"]', '["no", "no"]', "a class is named twice"),
        ('["no", "yes"]', '["no", "yes"]\nweights = "balanced"', "is for one label holder"),
        ('"collaborator"', '"clients"\ncolumns = 1', "none of them have the role 'collaborator'"),
        ('role = "active"', 'roles = ["active", "collaborator"]', "2 of them have the role"),
        ('"cvfl"', '"cvfl"\nactive = 3', "active = 3: but the role 'active' is that of south, nor"),
        ('"cvfl"', '"cvfl"\nsingle = true', "single = true: is for experiments"),
        ('"cvfl"', '"splitnn"', "'active' is not a role of this method"),
    ],
)
def test_what_is_wrong_with_label_holders_is_told(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(changed(old, new, BANKS))


def test_nobody_with_labels_is_an_error() -> None:
    nobody = BANKS.replace('["active", "clients"]', '["clients"]')
    nobody = nobody.replace('role = "active"', 'role = "clients"\ncolumns = 1')
    with pytest.raises(InputError, match="nobody has the role 'active'"):
        parse(nobody)


def test_the_number_of_aggregators_is_counted_unless_given() -> None:
    assert parse(HOSPITALS).method.aggregators == 1  # pyright: ignore[reportAttributeAccessIssue]
    nobody = changed('role = "aggregators"', 'role = "clients"\ncolumns = 1')
    assert "aggregators" not in [g.name for g in parse(nobody).algorithm().groups]


def test_without_parties_the_data_and_the_algorithm_name_them() -> None:
    federation = parse(DIGITS)
    assert federation.members == ("client0", "client1", "client2", "client3", "server")
    assert federation.leader == "server"
    assert federation.edges() == [(f"client{i}", "server") for i in range(4)]


def test_parties_take_the_columns_of_the_data_in_their_order() -> None:
    roles = {"north": "clients", "owl": "server", "south": "clients"}
    tables = "".join(f'[[parties]]\nname = "{n}"\nrole = "{r}"\n' for n, r in roles.items())
    federation = parse(changed("parties = 4", "parties = 2", DIGITS) + tables)
    assert federation.vertical_data().clients == ("north", "south")
    assert federation.task().clients == ("north", "south")
    assert federation.leader == "owl"


def test_where_the_data_names_the_parties_the_order_of_the_file_does_not_matter(
    tmp_path: Path,
) -> None:
    rows = "\n".join(f"{i},{i % 3},{i % 2}" for i in range(40))
    (tmp_path / "t.csv").write_text("a,b,y\n" + rows)
    data = '[data]\npath = "t.csv"\nlabel = "y"\ncolumns = { lab = ["a"], clinic = ["b"] }\n'
    roles = {"clinic": "clients", "lab": "clients", "owl": "server"}
    tables = "".join(f'[[parties]]\nname = "{n}"\nrole = "{r}"\n' for n, r in roles.items())
    text = 'name = "n"\n[method]\nalgorithm = "splitnn"\n' + data + tables
    (tmp_path / "f.toml").write_text(text)
    federation = read_federation(tmp_path / "f.toml")
    assert federation.task().clients == ("lab", "clinic")
    (tmp_path / "f.toml").write_text(text.replace('name = "lab"', 'name = "labor"'))
    with pytest.raises(InputError, match=r"data.columns names lab, clinic; use the same names"):
        read_federation(tmp_path / "f.toml")


def test_the_resolved_file_says_the_same() -> None:
    for text in (HOSPITALS, DIGITS):
        federation = parse(text)
        again = parse(federation.toml())
        assert again == federation
        assert again.hash == federation.hash


def test_the_hash_ignores_addresses_and_notices_everything_else() -> None:
    federation = parse(HOSPITALS)
    moved = federation.with_endpoints({"clinic": "localhost:1"})
    assert moved.party("clinic").endpoint == "localhost:1"
    assert moved.party("lab").endpoint == "10.0.0.7:7447"
    assert moved.hash == federation.hash
    assert moved.digests == federation.digests
    assert all(len(value) == 8 for value in federation.digests.values())
    with pytest.raises(InputError, match='is not a party of "three hospitals"; the nearest is'):
        federation.with_endpoints({"clinik": "localhost:1"})


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        ("seed = 3", "seed = 4", ["seed"]),
        ("columns = 2", "columns = 4", ["parties.lab.columns"]),
        ("classes = 2", "classes = 3", ["rows.classes"]),
        ('algorithm = "dvfl"', 'algorithm = "dvfl"\nepochs = 7', ["method.epochs"]),
        ('topology = "complete"', "lease = 2.0", ["network.lease"]),
        ('topology = "complete"', "lease = 1.5", []),  # the default, written out
    ],
)
def test_files_that_differ_say_where(old: str, new: str, keys: list[str]) -> None:
    mine, theirs = parse(HOSPITALS), parse(changed(old, new))
    assert differences(mine.digests, theirs.digests) == keys
    assert (mine.hash == theirs.hash) == (not keys)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seed = 3", "sede = 3", "sede: unknown key; the nearest is 'seed'"),
        ("aligned", "alined", r"rows.alined: unknown key; the nearest is 'aligned'"),
        ("endpoint =", "endpont =", r"parties\[0\].endpont: unknown key.*'endpoint'"),
        ("topology =", "topolgy =", r"network.topolgy: unknown key; the nearest is 'topology'"),
        ('name = "three hospitals"', "", "name: missing"),
        ('algorithm = "dvfl"', 'algorithm = "dvlf"', "method.algorithm: 'dvlf' is not known"),
        ('algorithm = "dvfl"', 'algorithm = "centralised"', "nothing to federate"),
        ('algorithm = "dvfl"', 'algorithm = "dvfl"\nbatch = 0', "method.batch = 0: expected 1"),
        (
            'algorithm = "dvfl"',
            'algorithm = "dvfl"\naggregators = 2',
            "method.aggregators = 2: but 1 parties are aggregators",
        ),
        ("aligned = 50", "aligned = 0", "rows.aligned = 0: expected 1 or more"),
        ("aligned = 50", "aligned = 50\ntest = 1.0", "rows.test = 1: expected a share"),
        ("aligned = 50", "aligned = 1\ntest = 0.9", "leave no rows to train on"),
        ("[rows]", '[data]\ndataset = "digits"\n[rows]', r"exactly one of \[rows\] .*and \[data\]"),
        ('name = "lab"', 'name = "Lab"', r"parties\[1\].name: 'Lab' cannot name a party"),
        ('name = "lab"', 'name = "clinic"', r"parties\[1\].name: 'clinic' is there twice"),
        (
            'role = "clients"',
            'role = "client"',
            r"parties\[0\].role: 'client' is not a role of this method; the nearest is 'clients'; "
            "there are clients, aggregators, owner",
        ),
        ('role = "clients"\n', "", r"parties\[0\].role: missing; expected one of clients"),
        (
            'role = "clients"\n',
            'role = "clients"\nroles = ["owner"]\n',
            r"parties\[0\].role: give role or roles, not both",
        ),
        ('["clients", "owner"]', '["clients"]', "nobody has the role 'owner'"),
        ('role = "aggregators"', 'role = "owner"', "cloud and hospital have the role 'owner'"),
        ("columns = 3\n", "columns = 0\n", r"parties\[0\].columns = 0: expected 1 or more"),
        (
            'role = "aggregators"',
            'role = "aggregators"\ncolumns = 3',
            r"parties\[2\].columns: 'cloud' is not one of the clients",
        ),
        ("clinic.example:7447", "clinic.example", r'parties\[0\].endpoint = "clinic.example": exp'),
        ("clinic.example:7447", "tls/clinic.example:7447", r"neither a host name nor an IP addr"),
        ("clinic.example:7447", "clinic.example:70000", r"the port must be 1 to 65535"),
        ("clinic.example:7447", "0.0.0.0:7447", r"stands for every address"),
        ("clinic.example:7447", "10.0.0.7:7447", r"is the endpoint of 'clinic' as well"),
        ('topology = "complete"', 'transport = "udp"', "network.transport: expected one of tls"),
        ('topology = "complete"', 'hub = "hospitl"', "network.hub.*the nearest is 'hospital'"),
        ('topology = "complete"', "lease = 0", "network.lease = 0: expected more than 0"),
        ('topology = "complete"', "gather = -1", "network.gather = -1: expected 0 or more"),
        ('topology = "complete"', 'topology = "grid"', "must be a square number"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"(?s)^federation.toml: .*{message}"):
        parse(changed(old, new))


def test_own_files_need_parties() -> None:
    text = HOSPITALS[: HOSPITALS.index("[[parties]]")]
    with pytest.raises(InputError, match=r"parties: missing; add a \[\[parties\]\] table"):
        parse(text)


def test_a_topology_that_is_not_connected_is_refused() -> None:
    apart = DIGITS + '[network]\ntopology = "geometric"\nradius = 0.5\n'
    with pytest.raises(InputError, match="not connected; nothing leads from client0 to client1"):
        parse(apart)
    assert parse(apart.replace("0.5", "1.5")).leader == "server"


def test_an_exchange_that_no_link_carries_is_refused() -> None:
    """On a ring of four, the label holder hears only its two neighbours."""
    tables = "".join(f'[[parties]]\nname = "p{i}"\nrole = "clients"\n' for i in range(3))
    tables += '[[parties]]\nname = "p3"\nroles = ["clients", "server"]\n'
    ring = DIGITS + tables + '[network]\ntopology = "ring"\n'
    with pytest.raises(InputError, match=r"p1 is not linked to any of server \(p3\)"):
        parse(ring)
    assert len(parse(ring.replace('"ring"', '"complete"')).edges()) == 3


def test_endpoints_are_needed_where_others_connect() -> None:
    text = changed('endpoint = "10.0.0.7:7447"\n', "")
    federation = parse(text)  # to try things on one machine it will do
    with pytest.raises(InputError, match=r"parties\[1\].endpoint: missing for 'lab'"):
        federation.check_endpoints()
    parse(changed('topology = "complete"', 'hub = "hospital"', text)).check_endpoints()
    with pytest.raises(InputError, match="missing for 'lab'"):
        parse(changed('topology = "complete"', 'hub = "lab"', text)).check_endpoints()
    federation.with_endpoints({"lab": "localhost:7448"}).check_endpoints()


def test_the_data_must_fit_the_parties() -> None:
    one = '[[parties]]\nname = "a"\nrole = "clients"\n[[parties]]\nname = "b"\nrole = "server"\n'
    with pytest.raises(InputError, match=r"1 have the role 'clients', but the columns.* over 4"):
        parse(DIGITS + one)
    wrong = changed("parties = 4", "parties = 1", DIGITS) + one.replace(
        '"clients"\n', '"clients"\ncolumns = 3\n'
    )
    with pytest.raises(InputError, match=r"parties\[0\].columns = 3: but 'a' has 64 columns"):
        parse(wrong)


def test_every_party_can_be_asked_by_a_second_process_of_its_own_also_the_hub(
    tmp_path: Path,
) -> None:
    federation = parse(DIGITS + '[network]\nhub = "server"\ntransport = "tcp"\n')
    at = {name: f"127.0.0.1:{7000 + i}" for i, name in enumerate(federation.members)}
    federation = federation.with_endpoints(at)
    for name in federation.members:
        place = visiting(PartyFile("test", federation, name, tmp_path))
        assert place.way_to(name) == {"server": at["server"]}


DEVICES = """
name = "devices"
[method]
algorithm = "mags"
aggregators = 2
[data]
dataset = "digits"
split = "patches"
"""


def test_where_nobody_leads_all_are_devices_and_neighbours_are_those_of_the_graph() -> None:
    federation = parse(DEVICES + '[network]\ntopology = "ring"\n')
    assert federation.leader is None
    assert [party.roles for party in federation.parties] == [("devices",)] * 4
    assert federation.neighbours("client0") == ("client1", "client3")
    assert len(federation.label_holders) == 2
    assert federation.speaker == federation.label_holders[0]
    with pytest.raises(InputError, match=r"'aggregators' is not a role of this method.*devices"):
        parse(DEVICES + '[[parties]]\nname = "a"\nrole = "aggregators"\n')
