"""The names of parties: more are possible in a simulation than in a real federation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from colonnade.data.mapping import check as check_columns
from colonnade.errors import InputError
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.keys.certificates import make_request

NOWHERE = ["", "-lab", "lab/2", "../lab", "lab*"]
SIMULATED = ["Clinic", "9lab", "lab 2", "lab.2", "läb", "l" * 41]
GOOD = ["a", "lab-2_b", "l" * 40]


def in_a_federation(name: str) -> None:
    parties = [{"name": name, "role": "clients"}, {"name": "server", "role": "server"}]
    data = {"dataset": "digits", "parties": 1}
    table = {"name": "t", "data": data, "method": {"algorithm": "splitnn"}, "parties": parties}
    parse_federation(table, "t")


def in_an_experiment(name: str) -> None:
    check_columns({name: ["a"]}, ["a"], "table.csv")


REAL: dict[str, Callable[[str, Path], object]] = {
    "federation file": lambda name, _: in_a_federation(name),
    "certificate": lambda name, folder: make_request(folder, name),
}


@pytest.mark.parametrize("place", REAL)
@pytest.mark.parametrize("name", [*NOWHERE, *SIMULATED, "authority"])
def test_a_name_is_refused_everywhere_in_a_federation_or_nowhere(
    place: str, name: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"cannot name a party|belongs to the files"):
        REAL[place](name, tmp_path)


@pytest.mark.parametrize("name", GOOD)
def test_a_name_that_fits_is_taken_everywhere(name: str, tmp_path: Path) -> None:
    in_an_experiment(name)
    for take in REAL.values():
        take(name, tmp_path)


@pytest.mark.parametrize("name", SIMULATED)
def test_an_experiment_takes_names_as_people_write_them(name: str) -> None:
    in_an_experiment(name)


@pytest.mark.parametrize("name", NOWHERE)
def test_an_experiment_refuses_what_cannot_be_a_file_name(name: str) -> None:
    with pytest.raises(InputError, match="cannot name a party"):
        in_an_experiment(name)
