"""A party's raw columns as numbers: prepared as fitted on the training rows, and kept.

The party's folder holds `preprocessing.json`, what was fitted, and `features.json`, what it was
fitted on. A party that is started again prepares its rows in the same way, and refuses a file whose
rows have changed since the training began. The numbers of a large table are in `features.f32`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.common.files import replacing
from colonnade.common.seeds import numpy_stream
from colonnade.common.text import first_of
from colonnade.data.preprocessing import (
    Column,
    Preprocessing,
    Remarks,
    cells,
    load_preprocessing,
)
from colonnade.data.rows import Indices
from colonnade.data.stored import FeatureFile, StoredRows, write_features
from colonnade.data.table_files import ParquetColumns, row_count
from colonnade.errors import InputError
from colonnade.federation.agreement.party_file import OwnSpec, PartyFile
from colonnade.federation.member.own_rows import RowOrder

SAMPLE = 10**6  # training rows that preprocessing is fitted on, at most
FITTED, KEPT, FEATURES = "preprocessing.json", "features.json", "features.f32"


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """What tells, without reading a file, that it is the same."""

    size: int
    changed: int  # nanoseconds

    @classmethod
    def of(cls, path: Path) -> Stamp:
        found = path.stat()
        return cls(size=found.st_size, changed=found.st_mtime_ns)


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What the features of a party were made from."""

    file: str
    stamp: Stamp
    spec: dict[str, Any]  # what the party file says of them
    used: str  # digest of which rows are for training, and of which are aligned
    rows: int
    width: int
    digest: str  # of the features of the aligned rows


@dataclass(frozen=True)
class OwnFeatures:
    """[rows, width], in the common order of rows, and those of the rows beside."""

    x: Tensor | StoredRows
    beside: Tensor | StoredRows
    fitted: Preprocessing
    kept: Kept
    remarks: Remarks = field(default_factory=Remarks)

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.fitted.notes(), *self.remarks.notes())

    @property
    def file_changed(self) -> bool:
        """Whether the file is not what it was when it was read, by its size and time."""
        try:
            return Stamp.of(Path(self.kept.file)) != self.kept.stamp
        except OSError:
            return True

    def keep(self, folder: Path) -> None:
        self.fitted.save(folder / FITTED)
        with replacing(folder / KEPT) as partial:
            partial.write_bytes(msgspec.json.encode(self.kept))


def own_features(
    party: PartyFile,
    columns: Mapping[str, Column],
    names: list[str],
    own: RowOrder,
    train: Indices,
) -> OwnFeatures:
    """`train`: places in the order of `own`. Rows beside are learnt from, too."""
    spec, rows = party.data, party.federation.rows
    assert spec is not None
    assert rows is not None
    path, aligned = Path(spec.path), _with(own.order[: rows.size], own.beside)
    training = _with(own.order[train], own.beside)
    used = hashlib.blake2b(training.tobytes() + aligned.tobytes(), digest_size=16).hexdigest()
    before, source = _before(party, spec, names, used), str(path)
    if before is None:
        sample = _sample(training, party.federation.seed)
        fitted = Preprocessing.fit(Chosen(columns, names), sample, source, spec.prepare)
    else:
        fitted = load_preprocessing(party.folder / FITTED)
    _check_width(fitted, party, names)
    remarks, stamp = Remarks(), Stamp.of(path)
    found, digest = _prepared(
        party.folder, columns, fitted, aligned, before, stamp, source, remarks
    )
    if before is not None and digest != before.digest:
        raise InputError(
            f"{path}: its rows have changed since the training began; put the file back as it was, "
            "or start over with --fresh at every party."
        )
    kept = Kept(
        file=str(path),
        stamp=stamp,
        spec=_told(spec, names),
        used=used,
        rows=row_count(columns),
        width=fitted.width,
        digest=digest,
    )
    x, beside = (
        StoredRows(found, places)
        if isinstance(found, FeatureFile)
        else found[torch.from_numpy(places)]
        for places in (own.order, own.beside)
    )
    return OwnFeatures(x, beside, fitted, kept, remarks)


def _with(rows: Indices, beside: Indices) -> Indices:
    """In the order of the file."""
    return np.sort(np.concatenate([rows, beside]))


class Chosen:
    """Some columns of a table, in this order, of which some rows are taken."""

    def __init__(self, columns: Mapping[str, Column], names: list[str]) -> None:
        self.columns, self.names = columns, names

    def take(self, name: str, rows: Indices) -> Column:
        if isinstance(self.columns, ParquetColumns):
            return self.columns.take(name, rows)
        return cells.take(self.columns[name], rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names


def _prepared(
    folder: Path,
    columns: Mapping[str, Column],
    fitted: Preprocessing,
    aligned: Indices,
    before: Kept | None,
    stamp: Stamp,
    source: str,
    remarks: Remarks,
) -> tuple[Tensor | FeatureFile, str]:
    """The features in the order of the file, and the digest of those of the aligned rows."""
    if not isinstance(columns, ParquetColumns):
        whole = fitted.features(columns, source, remarks)
        return torch.from_numpy(whole), _digest([whole], aligned)
    path = folder / FEATURES
    size = columns.rows * fitted.width * 4
    if before is not None and before.stamp == stamp and path.exists() and size == _size(path):
        return FeatureFile(path, columns.rows, fitted.width), before.digest
    folder.mkdir(parents=True, exist_ok=True)
    digest = Digest(aligned)
    names = [column.name for column in fitted.columns if column.width]

    def chunks() -> Iterator[NDArray[np.float32]]:
        for part in columns.chunks(names):
            found = fitted.features(part, source, remarks)
            digest.add(found)
            yield found

    with replacing(path) as partial:
        write_features(partial, chunks())
    return FeatureFile(path, columns.rows, fitted.width), digest.hex()


def _sample(training: Indices, seed: int) -> Indices:
    """The rows that preprocessing is fitted on: all training rows, or a million of them."""
    if len(training) <= SAMPLE:
        return training
    chosen = numpy_stream(seed, "preprocessing").choice(len(training), SAMPLE, replace=False)
    return training[np.sort(chosen)]


class Digest:
    """Of the features of some rows, of which the chunks hold all, one after the other."""

    def __init__(self, rows: Indices) -> None:
        self.rows, self.seen = rows, 0
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, chunk: NDArray[np.float32]) -> None:
        first, last = np.searchsorted(self.rows, (self.seen, self.seen + len(chunk)))
        self._hash.update(chunk[self.rows[first:last] - self.seen].tobytes())
        self.seen += len(chunk)

    def hex(self) -> str:
        return self._hash.hexdigest()


def _digest(chunks: list[NDArray[np.float32]], rows: Indices) -> str:
    digest = Digest(rows)
    for chunk in chunks:
        digest.add(chunk)
    return digest.hex()


def _size(path: Path) -> int:
    return path.stat().st_size


def _told(spec: OwnSpec, names: list[str]) -> dict[str, Any]:
    return {"columns": names, "prepare": dict(spec.prepare), "query": spec.query}


def _before(party: PartyFile, spec: OwnSpec, names: list[str], used: str) -> Kept | None:
    """What an earlier process kept, if the training has begun; refuses other settings."""
    path = party.folder / KEPT
    if not path.exists() or not any((party.folder / "checkpoints").glob("*")):
        return None
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=Kept)
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(f"{path}: cannot be read ({error}); start over with --fresh.") from error
    if kept.spec != _told(spec, names) or kept.used != used:
        what = "[data] of the party file" if kept.used == used else "which rows are trained on"
        raise InputError(
            f"{party.source}: {what} has changed since the training began; put it back as it was, "
            "or start over with --fresh at every party."
        )
    return kept


def _check_width(fitted: Preprocessing, party: PartyFile, names: list[str]) -> None:
    assert party.data is not None
    expected = party.federation.party(party.party).columns
    if expected is None or fitted.width == expected:
        return
    became = "" if fitted.width == len(names) else f", which become {fitted.width} numbers"
    raise InputError(
        f"{party.data.path}: gives {len(names)} columns ({first_of(names)}){became}, but the "
        f"federation file says columns = {expected} for {party.party!r}; leave columns out there, "
        "or list the right ones in data.columns."
    )
