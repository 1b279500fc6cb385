"""What a path stands for: a simulation, the folder of `up`, or a party of a federation."""

from __future__ import annotations

from pathlib import Path

from colonnade.common.results import CONFIG, FEDERATION
from colonnade.common.toml import read_toml
from colonnade.errors import InputError
from colonnade.watch.snapshot import Source


def source_of(path: Path) -> Source:
    """InputError if there is nothing to watch."""
    if path.is_dir():
        return _folder(path)
    if not path.exists():
        raise InputError(f"{path}: there is no such folder or party file; start the run first")
    from colonnade.common.file_kinds import PARTY, check_kind

    check_kind(path, PARTY)
    from colonnade.federation.agreement.party_file import read_party
    from colonnade.watch.federated import Federated

    return Federated.of_party(read_party(path))


def _folder(path: Path) -> Source:
    if (path / FEDERATION).is_file():
        from colonnade.watch.federated import Federated

        return Federated.in_folder(path)
    if not (path / CONFIG).is_file():
        raise InputError(
            f"{path}: nothing to watch (no {CONFIG}, no {FEDERATION}); give the --out folder of "
            "colonnade run or colonnade up, or a party file"
        )
    if "method" in read_toml(path / CONFIG):
        raise InputError(
            f"{path}: the folder of one party; give its party file, or the folder of colonnade up"
        )
    from colonnade.watch.simulation import Simulation

    return Simulation(path)
