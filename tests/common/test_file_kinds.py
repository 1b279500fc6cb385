"""The three kinds of files: which one a file is, and which command takes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from colonnade.common.file_kinds import EXPERIMENT, FEDERATION, PARTY, Kind
from colonnade.errors import InputError
from colonnade.experiments.config import Experiment, read_experiment
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.federation_file import read_federation
from colonnade.federation.agreement.party_file import read_party

FILES = {
    EXPERIMENT: 'name = "e"\n[data]\ndataset = "digits"\n[[methods]]\nalgorithm = "splitnn"\n',
    FEDERATION: 'name = "f"\n[data]\ndataset = "digits"\n[method]\nalgorithm = "splitnn"\n',
    PARTY: 'federation = "federation.toml"\nparty = "clinic"\nkeys = "keys"\n',
}
READERS = {EXPERIMENT: read_experiment, FEDERATION: read_federation, PARTY: read_party}


def test_the_kinds_have_the_keys_that_the_files_have() -> None:
    assert set(EXPERIMENT.keys) == set(Experiment.__struct_fields__)
    assert set(FEDERATION.keys) == set(Federation.__struct_fields__)


@pytest.mark.parametrize("given", FILES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("expected", FILES, ids=lambda kind: kind.name)
def test_a_file_of_another_kind_is_named_with_the_command_that_takes_it(
    tmp_path: Path, given: Kind, expected: Kind
) -> None:
    if given is expected:
        return
    path = tmp_path / "some.toml"
    path.write_text(FILES[given])
    with pytest.raises(InputError, match=f"this is {given.name}.*`{given.command}`") as caught:
        READERS[expected](path)
    assert f"Expected here: {expected.name}" in str(caught.value)


def test_a_misspelt_table_in_a_file_of_the_right_kind_is_an_unknown_key(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text("seeds = [1]\n" + FILES[EXPERIMENT].replace("[[methods]]", "[[method]]"))
    with pytest.raises(InputError, match="method: unknown key; the nearest is 'methods'"):
        read_experiment(path)
