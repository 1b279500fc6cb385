"""One rule for the names of parties, wherever they are given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from colonnade.common.party_names import check_party, is_party_name
from colonnade.data.mapping import check as check_columns
from colonnade.errors import InputError
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.keys.certificates import make_request

BAD = ["", "Clinic", "9lab", "-lab", "lab/2", "../lab", "lab*", "lab 2", "lab.2", "läb", "l" * 41]


def in_a_federation(name: str) -> None:
    parties = [{"name": name, "role": "clients"}, {"name": "server", "role": "server"}]
    data = {"dataset": "digits", "parties": 1}
    table = {"name": "t", "data": data, "method": {"algorithm": "splitnn"}, "parties": parties}
    parse_federation(table, "t")


PLACES: dict[str, Callable[[str, Path], object]] = {
    "columns of an experiment": lambda name, _: check_columns({name: ["a"]}, ["a"], "table.csv"),
    "federation file": lambda name, _: in_a_federation(name),
    "certificate": lambda name, folder: make_request(folder, name),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", [*BAD, "authority"])
def test_a_name_is_refused_everywhere_or_nowhere(place: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot name a party|belongs to the files"):
        PLACES[place](name, tmp_path)
    PLACES[place]("lab-2_b", tmp_path)


@pytest.mark.parametrize("name", ["a", "lab-2_b", "l" * 40])
def test_a_name_that_fits_is_taken(name: str) -> None:
    assert is_party_name(name)
    check_party(name)
